"""Quantize the graphs of a bundle, each weight in its own format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from edgebert_exporters.graphs.graph_editor import CONTRIB, GraphEditor
from edgebert_exporters.graphs.kernel_check import kernel_problems
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.inference.sample_texts import Sample, to_batches
from edgebert_exporters.progress import Progress
from edgebert_exporters.quantization.activation_statistics import ActivationStatistics, histogram_observers
from edgebert_exporters.quantization.blockwise import Blocks, fitting_block, quantize_blocks
from edgebert_exporters.quantization.calibration import observe_graph
from edgebert_exporters.quantization.embeddings import (
    quantize_blockwise,
    quantize_embedding,
    quantize_embedding_per_token,
)
from edgebert_exporters.quantization.float16 import to_float16
from edgebert_exporters.quantization.gptq import gptq_blocks
from edgebert_exporters.quantization.int8_per_channel import quantize_per_channel
from edgebert_exporters.quantization.lstm import quantize_lstm
from edgebert_exporters.quantization.schemes import FLOAT16, Scheme, WeightFormat, scheme_for_graph
from edgebert_exporters.quantization.static_qdq import quantize_static, quantize_static_embedding, static_factor
from edgebert_exporters.quantization.weight_discovery import Weight
from edgebert_exporters.quantization.weight_selection import Plan, make_plans
from edgebert_runtime.errors import QuantizationError
from edgebert_runtime.task_specs import TASKS

Formats = Mapping[str, WeightFormat]


@dataclass(frozen=True)
class Quantizer:
    """Quantizes the graphs of a bundle any number of times.

    Activation statistics are collected once.
    """

    source: OpenedBundle
    scheme: Scheme
    exclude: Sequence[str] = ()
    statistics: dict[str, ActivationStatistics] = field(default_factory=dict)
    blocks: dict[tuple[str, str, WeightFormat], Blocks] = field(default_factory=dict)

    @cached_property
    def plans(self) -> dict[str, Plan]:
        """Return the plan of each float32 graph."""
        return self.plan(self.source.graphs)

    def plan(self, models: Mapping[str, ir.Model]) -> dict[str, Plan]:
        """Return the plan of each of the float32 graphs ``models``.

        Raises:
            QuantizationError: as :func:`~edgebert_exporters.quantization.weight_selection.make_plans`.
        """
        generative = TASKS[self.source.manifest.task].generative
        return make_plans(models, self.exclude, generative, self.scheme.format)

    def collect_statistics(
        self, samples: Sequence[Sample], candidates: Sequence[WeightFormat], progress: Progress
    ) -> None:
        """Observe activations on samples, as the formats of the scheme and the ``candidates`` need."""
        batches = [batch for _, batch in to_batches(samples, self.source.signature.input_names)]
        for done, (graph, plan) in enumerate(self.plans.items()):
            progress("watch sample texts", done, len(self.plans))
            formats = {scheme_for_graph(graph, self.scheme).format, *candidates}
            statistics = self.statistics[graph] = ActivationStatistics.for_formats(plan, formats)
            if observers := statistics.observers():
                observe_graph(self.source, graph, observers, batches)
            if self.scheme.format.ranges:  # their factors depend on the peaks
                histograms = histogram_observers(plan, statistics.channel_peaks())
                observe_graph(self.source, graph, histograms.observers(), batches)
                statistics.histograms.update(histograms.histograms)
        progress("watch sample texts", len(self.plans), len(self.plans))

    def quantize(self, formats: Formats | None, progress: Progress) -> tuple[dict[str, ir.Model], Plan]:
        """Return quantized copies of the graphs, and the plan of all.

        Weights have the format of the scheme. With ``formats``, by weight name, only these are quantized, to these.

        Raises:
            QuantizationError: if no kernel of ONNX Runtime runs the result.
        """
        models = {graph: model.clone() for graph, model in self.source.graphs.items()}
        plans = self.plan(models)
        if formats is not None:
            plans = {graph: plan.only(formats) for graph, plan in plans.items()}
        tied = {weight.name for plan in plans.values() for weight in plan.embeddings if weight.linears}
        for graph, model in models.items():
            if self.scheme.format == FLOAT16:
                to_float16(model, plans[graph].skipped)
                continue
            editor, default = GraphEditor(model), scheme_for_graph(graph, self.scheme).format
            for done, weight in enumerate(plans[graph].linears):
                self.quantize_linears(editor, graph, weight, default if formats is None else formats[weight.name])
                progress(f"quantize to {self.scheme.name}", done + 1, len(plans[graph].linears))
            for weight in plans[graph].embeddings:
                self.quantize_embedding(editor, graph, weight, weight.name in tied)
            for lstm in plans[graph].lstms:
                quantize_lstm(editor, lstm)
            RemoveUnusedNodesPass()(model)
            if all(node.domain != CONTRIB for node in model.graph):  # portable graphs stay portable
                model.opset_imports.pop(CONTRIB)
            if problems := kernel_problems(model):
                raise QuantizationError(f"ONNX Runtime has no kernel for the result: {'; '.join(problems)}")
        return models, Plan.merged(list(plans.values()))

    def quantize_linears(self, editor: GraphEditor, graph: str, weight: Weight, weight_format: WeightFormat) -> None:
        """Quantize layers that share a weight."""
        statistics = self.statistics[graph]
        if weight_format.block:
            blocks = self.quantized_blocks(graph, weight, weight_format)
            quantize_blockwise(editor, weight.linears, blocks, weight_format.bits)
        elif weight_format.ranges:
            factor = static_factor(weight.linears, statistics.channel_peaks())
            limits = statistics.input_range(weight.name, weight_format.ranges)
            quantize_static(editor, weight.linears, limits, factor)
        else:
            quantize_per_channel(editor, weight.linears, statistics.channel_peaks())

    def quantize_embedding(self, editor: GraphEditor, graph: str, weight: Weight, tied: bool) -> None:
        """Quantize an embedding and the layers that multiply by it.

        A ``tied`` one has such layers in some graph.
        """
        statistics, ranges = self.statistics[graph], self.scheme.format.ranges
        if ranges:
            limits = statistics.input_range(weight.name, ranges) if weight.linears else (0.0, 0.0)
            quantize_static_embedding(editor, weight, limits)
        elif self.scheme.granularity == "channel" and tied:
            quantize_embedding_per_token(editor, weight, statistics.channel_peaks())
        else:
            quantize_embedding(editor, weight, self.scheme.embedding_block)

    def quantized_blocks(self, graph: str, weight: Weight, weight_format: WeightFormat) -> Blocks:
        """Return a weight in blocks, computed once: GPTQ takes long."""
        key = (graph, weight.name, weight_format)
        if key not in self.blocks:
            rows = weight.linears[0].weight.T  # (out, in)
            bits, block = weight_format.bits, fitting_block(weight_format.block or 0, rows.shape[1])
            if weight_format.algorithm == "gptq":
                hessian = self.statistics[graph].hessian(weight.linears)
                self.blocks[key] = gptq_blocks(rows, hessian, bits, block, weight_format.asymmetric)
            else:
                self.blocks[key] = quantize_blocks(rows, bits, block, weight_format.asymmetric)
        return self.blocks[key]
