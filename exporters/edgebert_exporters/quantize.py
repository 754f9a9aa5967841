"""Turn a float32 bundle into a quantized one, with a report of what that cost."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from edgebert import __version__
from edgebert_exporters.calibration import largest_inputs
from edgebert_exporters.fidelity import decisive, fidelity
from edgebert_exporters.golden import golden_sample
from edgebert_exporters.int8 import Rewriter
from edgebert_exporters.linears import Floats, Weight
from edgebert_exporters.opened import interface, open_graphs
from edgebert_exporters.parity import Progress, batches_of, not_finite, silent
from edgebert_exporters.plan import Plan, make_plans
from edgebert_exporters.report import speed
from edgebert_exporters.samples import Sample, sample_rows, to_batches, to_samples
from edgebert_exporters.schemes import MIN_AGREEMENT, WRITING, Scheme, choose_scheme, scheme_of
from edgebert_exporters.signature import Signature
from edgebert_exporters.staging import staged
from edgebert_exporters.writing import bytes_of, copy_tokenizers, list_files, write_graphs, write_manifest
from edgebert_runtime.bundle import Bundle
from edgebert_runtime.errors import QuantizationError
from edgebert_runtime.manifest import Manifest, Weights


def quantize_bundle(
    bundle: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    scheme: str = "int8",
    block_size: int | None = None,
    rows: str | None = None,
    exclude: Sequence[str] = (),
    calibration: Sequence[str] | None = None,
    min_agreement: float | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Bundle:
    """Quantize the float32 bundle in the folder ``bundle`` into the folder ``out``.

    ``scheme`` is ``int8`` or, for models that write text, ``int4``. Those also take ``rows``: ``few`` (the default)
    serves one text at a time, with ``block_size`` weights to a scale (128 in 8 bits and 32 in 4 unless given);
    ``many`` serves batches and long prompts better. All this is for the decoder; an encoder that reads for it is
    ``int8`` with a scale for each column.

    ``exclude`` holds patterns (``*.contract.weight``) of weights to leave in float32. ``calibration`` holds texts
    like those that the model will see; every second one sets the scales, the others measure the agreement with
    float32 (mean cosine, or correlation where a text gives one number), which must be at least ``min_agreement``
    (0.99 unless given, 0.95 for int4).

    Raises:
        QuantizationError: if an option does not exist or does not belong to the task or the scheme, the bundle is
            quantized already, nothing can be quantized, a pattern matches nothing, or the result is not finite or
            falls short of ``min_agreement``.
        ExportError: if ``out`` cannot be written.
    """
    progress, source = progress or silent, Bundle.open(bundle)
    chosen = choose_scheme(source.manifest.task, scheme, block_size, rows)
    least = MIN_AGREEMENT[scheme] if min_agreement is None else min_agreement
    if not 0 <= least <= 1:
        raise QuantizationError(f"min_agreement={least} is not between 0 and 1")
    check_source(source, scheme)
    with staged(out, force=force) as folder:
        texts = sample_rows(source, calibration)
        watched, measured = (to_samples(source, half) for half in (texts[::2], texts[1::2]))
        models, plan = quantized_models(source, chosen, exclude, watched, progress)
        manifest = write_quantized(folder, source, models, plan, chosen)
        report = measure(folder, source, manifest, measured, progress)
        figure, value = decisive(report["fidelity"])
        if not value >= least:
            raise QuantizationError(
                f"the quantized model has a {figure} of {value:.4f} to float32, less than {least}; leave layers out "
                "with --exclude, give --calibration texts like yours, or lower --min-agreement"
            )
        report |= {"scheme": scheme, "rows": chosen.rows, "block_size": chosen.block_size} | {
            "coverage": plan.coverage(),
            "min_agreement": least,
        }
        write_manifest(folder, finished(folder, manifest, report))
    return Bundle.open(out, verify="size")


def check_source(source: Bundle, scheme: str) -> None:
    """Refuse bundles that the scheme cannot serve."""
    manifest = source.manifest
    if manifest.weights.scheme != "fp32":
        raise QuantizationError(
            f"{source.path} is quantized already ({manifest.weights.scheme}); give a float32 bundle"
        )
    if manifest.target != "cpu":
        raise QuantizationError(
            f"{source.path} was exported for the target {manifest.target}, and {scheme} uses operators of ONNX "
            "Runtime's CPU kernels; export with --target cpu and quantize that"
        )


def quantized_models(
    source: Bundle, scheme: Scheme, exclude: Sequence[str], samples: Sequence[Sample], progress: Progress
) -> tuple[dict[str, ir.Model], Plan]:
    """Load the float32 graphs of a bundle and quantize them."""
    models = {name: ir.load(source.path / spec.file) for name, spec in source.manifest.graphs.items()}
    plans = make_plans(models, exclude, source.manifest.task in WRITING)
    writes = source.manifest.task in WRITING
    tied = {weight.name for plan in plans.values() for weight in plan.tables if weight.linears and writes}
    for name, model in models.items():
        own, plan, rewriter = scheme_of(name, scheme), plans[name], Rewriter(model)
        largest = {} if own.block_size or own.rows == "each" else watch(source, name, plan, samples, progress)
        for done, weight in enumerate(plan.linears):
            if own.rows == "each":
                rewriter.in_rows(weight.linears)
            elif own.block_size:
                rewriter.in_blocks(weight.linears, own.bits, own.block_size)
            else:
                rewriter.linear(weight.linears, np.maximum.reduce([largest[name] for name in input_names(weight)]))
            progress(f"quantize to {scheme.name}", done + 1, len(plan.linears))
        for weight in plan.tables:
            if scheme.rows == "many" and weight.name in tied:
                rewriter.tied_rows(weight)
            else:
                rewriter.table(weight, scheme.table_block)
        RemoveUnusedNodesPass()(model)
    return models, Plan.merged(list(plans.values()))


def watch(source: Bundle, graph: str, plan: Plan, samples: Sequence[Sample], progress: Progress) -> dict[str, Floats]:
    """Return the largest inputs (in,) of each layer that will be quantized, on samples, by the name of the input."""
    progress("watch sample texts", 0, 1)
    names = sorted({name for weight in plan.linears for name in input_names(weight)})
    batches = [batch for _, batch in to_batches(samples, interface(source.manifest).input_names)]
    largest = largest_inputs(source.path, source.manifest, graph, names, batches)
    progress("watch sample texts", 1, 1)
    return largest


def input_names(weight: Weight) -> list[str]:
    """Return the name of the input of each layer that uses a weight."""
    return [linear.input.name or "" for linear in weight.linears]


def write_quantized(folder: Path, source: Bundle, models: dict[str, ir.Model], plan: Plan, scheme: Scheme) -> Manifest:
    """Write graphs, tokenizers and manifest of the quantized bundle."""
    signatures = {name: Signature(old.inputs, old.outputs) for name, old in source.manifest.graphs.items()}
    specs = write_graphs(models, folder, signatures, single_file=False)
    copy_tokenizers(source.path, folder)
    coverage = (plan.quantized, plan.eligible)
    strictest = scheme_of("encoder", scheme) if "encoder" in models else scheme
    weights = Weights(scheme.name, bytes_of(models.values()), coverage, plan.kept, strictest.safe_cpus)
    return dataclasses.replace(
        source.manifest,
        edgebert_version=__version__,
        graphs=specs,
        weights=weights,
        files=list_files(folder),
        verification={},
    )


def measure(
    folder: Path, source: Bundle, manifest: Manifest, samples: Sequence[Sample], progress: Progress
) -> dict[str, Any]:
    """Open both bundles with the real engine and compare size, speed and outputs.

    Raises:
        QuantizationError: if the quantized graph gives numbers that are not finite on any batch of the grid.
    """
    write_manifest(folder, manifest)
    Bundle.open(folder)
    before, after = open_graphs(source.path, source.manifest), open_graphs(folder, manifest)
    for batch in batches_of(manifest):
        if problem := not_finite(interface(manifest).outputs, after.run(None, batch.feeds)):
            raise QuantizationError(f"the quantized model goes wrong: {problem} at {batch.name}")
    report = {"bytes": {"before": source.manifest.weights.bytes, "after": manifest.weights.bytes}}
    progress("measure fidelity", 0, 1)
    report["fidelity"] = fidelity(before, after, manifest, samples)
    progress("measure fidelity", 1, 1)
    return report | {"speed": speed(before, after, manifest, progress)}


def finished(folder: Path, manifest: Manifest, report: dict[str, Any]) -> Manifest:
    """Return the manifest with the report and a golden sample of the quantized graph."""
    golden = golden_sample(Bundle.open(folder), open_graphs(folder, manifest))
    return dataclasses.replace(manifest, report=report, verification={"golden": golden})
