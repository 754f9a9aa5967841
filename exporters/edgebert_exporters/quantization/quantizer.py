"""Quantize the graphs of a bundle, each weight in the form that was chosen for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from edgebert_exporters.graphs.graph_editor import CONTRIB, GraphEditor
from edgebert_exporters.inference.batch import Batch
from edgebert_exporters.inference.graph_runner import interface
from edgebert_exporters.inference.sample_texts import Sample, to_batches
from edgebert_exporters.progress import Progress
from edgebert_exporters.quantization.activation_ranges import Histogram
from edgebert_exporters.quantization.blockwise import Blocks, fitting_block, quantize_blocks
from edgebert_exporters.quantization.calibration import Largest, Observer, observe
from edgebert_exporters.quantization.embeddings import rewrite_blocks, rewrite_table, rewrite_tied_rows
from edgebert_exporters.quantization.float16 import to_half
from edgebert_exporters.quantization.gptq import Moments, gptq_blocks
from edgebert_exporters.quantization.int8_per_channel import rewrite_columns
from edgebert_exporters.quantization.lstm import quantize_lstm
from edgebert_exporters.quantization.schemes import FLOAT16, Form, Scheme, scheme_of
from edgebert_exporters.quantization.static_qdq import rewrite_static, rewrite_static_table, static_factor
from edgebert_exporters.quantization.weight_discovery import Floats, Linear, Weight
from edgebert_exporters.quantization.weight_selection import Plan, make_plans
from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.task_specs import TASKS


@dataclass(frozen=True)
class Watched:
    """What was seen of the inputs of the linear layers of one graph on sample texts.

    ``largest`` and ``moments`` are by the names of the inputs. ``histograms`` are by those of the weights, for layers
    that read the same input may divide it by different factors; ``readers`` are the inputs of each weight.
    """

    largest: dict[str, Largest] = field(default_factory=dict)
    moments: dict[str, Moments] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)
    readers: dict[str, list[str]] = field(default_factory=dict)

    def channels(self) -> dict[str, Floats]:
        """Return the largest magnitudes (in,) of each input."""
        return {name: observer.channels for name, observer in self.largest.items()}

    def observers(self) -> dict[str, Observer]:
        """Return, by the names of the inputs, what is to be shown them."""
        found: dict[str, list[Observer]] = {}
        kinds: tuple[Mapping[str, Observer], ...] = (self.largest, self.moments)
        for kind in kinds:
            for name, observer in kind.items():
                found.setdefault(name, []).append(observer)
        for weight, histogram in self.histograms.items():
            for name in self.readers[weight]:
                found.setdefault(name, []).append(histogram)
        return {name: Several(observers) for name, observers in found.items()}

    def moments_of(self, linears: Sequence[Linear]) -> Moments:
        """Return what was seen of the inputs of layers that share a weight, added up."""
        parts = [self.moments[linear.input_name] for linear in linears]
        together = Moments(len(parts[0].total))
        together.total = np.sum([part.total for part in parts], axis=0)
        together.count = sum(part.count for part in parts)
        return together


def histograms(plan: Plan, largest: Mapping[str, Floats]) -> Watched:
    """Return a histogram of the inputs of each weight of a plan, of what the factors of :mod:`static` leave."""
    found = Watched()
    for weight in plan.weights:
        if weight.linears:
            factor = None if weight.tables else static_factor(weight.linears, largest)
            found.histograms[weight.name] = Histogram(factor)
            found.readers[weight.name] = list(dict.fromkeys(linear.input_name for linear in weight.linears))
    return found


@dataclass(frozen=True)
class Several:
    """Shows to several observers what it is shown."""

    observers: Sequence[Observer]

    def look(self, rows: Floats) -> None:
        """Take in activations (n, dim)."""
        for observer in self.observers:
            observer.look(rows)


@dataclass(frozen=True)
class Quantizer:
    """Quantizes the graphs of a bundle, as often as wanted, with what was seen of their activations once."""

    source: Bundle
    scheme: Scheme
    exclude: Sequence[str]
    watched: dict[str, Watched] = field(default_factory=dict)
    rounded: dict[tuple[str, str, Form], Blocks] = field(default_factory=dict)

    def load(self) -> tuple[dict[str, ir.Model], dict[str, Plan]]:
        """Load the float32 graphs, whose weights stay in their files, and say what there is to quantize."""
        models = {name: ir.load(self.source.path / spec.file) for name, spec in self.source.manifest.graphs.items()}
        writes = TASKS[self.source.manifest.task].generative
        return models, make_plans(models, self.exclude, writes, self.scheme.form)

    def watch(self, samples: Sequence[Sample], others: Sequence[Form], progress: Progress) -> None:
        """Look at activations on samples, for the forms that the scheme has and for ``others``."""
        _, plans = self.load()
        batches = [batch for _, batch in to_batches(samples, interface(self.source.manifest).input_names)]
        for done, (graph, plan) in enumerate(plans.items()):
            progress("watch sample texts", done, len(plans))
            forms = {scheme_of(graph, self.scheme).form, *others}
            sizes = {linear.input_name: len(linear.weight) for weight in plan.weights for linear in weight.linears}
            whole = any(form.bits == 8 and not form.block for form in forms)
            rounds = any(form.algorithm == "gptq" for form in forms)
            seen = self.watched[graph] = Watched(
                {name: Largest() for name in sizes if whole},
                {name: Moments(size) for name, size in sizes.items() if rounds},
            )
            self.observe(graph, seen, batches)
            if self.scheme.form.ranges:  # of what the factors leave, which were not known before
                found = histograms(plan, seen.channels())
                self.observe(graph, found, batches)
                seen.histograms.update(found.histograms)
        progress("watch sample texts", len(plans), len(plans))

    def observe(self, graph: str, seen: Watched, batches: Sequence[Batch]) -> None:
        """Show the activations in a graph to what is to see them."""
        if observers := seen.observers():
            observe(self.source.path, self.source.manifest, graph, observers, batches)

    def quantized(self, forms: Mapping[str, Form] | None, progress: Progress) -> tuple[dict[str, ir.Model], Plan]:
        """Return the graphs in the form that the scheme has for them, and what became of their weights.

        With ``forms``, by their names, only these weights are quantized, and have these forms.
        """
        models, plans = self.load()
        if forms is not None:
            plans = {graph: plan.only(forms) for graph, plan in plans.items()}
        tied = {weight.name for plan in plans.values() for weight in plan.tables if weight.linears}
        for graph, model in models.items():
            if self.scheme.form == FLOAT16:
                to_half(model, plans[graph].skipped)
                continue
            editor, own = GraphEditor(model), scheme_of(graph, self.scheme).form
            for done, weight in enumerate(plans[graph].linears):
                self.rewrite(editor, graph, weight, own if forms is None else forms[weight.name])
                progress(f"quantize to {self.scheme.name}", done + 1, len(plans[graph].linears))
            for weight in plans[graph].tables:
                self.rewrite_table(editor, graph, weight, weight.name in tied)
            for lstm in plans[graph].lstms:
                quantize_lstm(editor, lstm)
            RemoveUnusedNodesPass()(model)
            if all(node.domain != CONTRIB for node in model.graph):  # what is portable stays so
                model.opset_imports.pop(CONTRIB)
        return models, Plan.merged(list(plans.values()))

    def rewrite(self, editor: GraphEditor, graph: str, weight: Weight, form: Form) -> None:
        """Give layers that share a weight the form that was chosen for it."""
        seen = self.watched[graph]
        if form.block:
            rewrite_blocks(editor, weight.linears, self.blocks(graph, weight, form), form.bits)
        elif form.ranges:
            factor = static_factor(weight.linears, seen.channels())
            rewrite_static(editor, weight.linears, *seen.histograms[weight.name].range_by(form.ranges), factor)
        else:
            rewrite_columns(editor, weight.linears, seen.channels())

    def rewrite_table(self, editor: GraphEditor, graph: str, weight: Weight, tied: bool) -> None:
        """Quantize a table, and the layers that multiply by it; one that is ``tied`` has such in some graph."""
        seen, ranges = self.watched[graph], self.scheme.form.ranges
        if ranges:
            limits = seen.histograms[weight.name].range_by(ranges) if weight.linears else (0.0, 0.0)
            rewrite_static_table(editor, weight, *limits)
        elif self.scheme.granularity == "channel" and tied:
            rewrite_tied_rows(editor, weight, seen.channels())
        else:
            rewrite_table(editor, weight, self.scheme.table_block)

    def blocks(self, graph: str, weight: Weight, form: Form) -> Blocks:
        """Return a weight in blocks, which takes long enough to be done once only."""
        key = (graph, weight.name, form)
        if key not in self.rounded:
            rows = weight.linears[0].weight.T  # (out, in)
            block = fitting_block(form.block or 0, rows.shape[1])
            if form.algorithm == "gptq":
                moments = self.watched[graph].moments_of(weight.linears)
                self.rounded[key] = gptq_blocks(rows, moments, form.bits, block, form.asymmetric)
            else:
                self.rounded[key] = quantize_blocks(rows, form.bits, block, form.asymmetric)
        return self.rounded[key]
