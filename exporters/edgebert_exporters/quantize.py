"""Quantize a float32 bundle, and report size, speed and fidelity."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgebert import __version__
from edgebert_exporters import arguments
from edgebert_exporters.bundles.atomic_folder import staged
from edgebert_exporters.bundles.bundle_files import bytes_of, copy_tokenizers, list_files, write_graphs, write_manifest
from edgebert_exporters.graphs.signatures import Signature
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.inference.sample_texts import MAX_UNKNOWN, Sample, sample_rows, unknown_share
from edgebert_exporters.progress import Progress, report_notes, silent
from edgebert_exporters.quantization.float16 import float16_signature
from edgebert_exporters.quantization.mixed_precision import (
    check_max_loss,
    choose_formats,
    measure_each_weight,
    sensitivity_rows,
)
from edgebert_exporters.quantization.quantizer import Formats, Quantizer
from edgebert_exporters.quantization.schemes import FLOAT16, MIN_FIDELITY, resolve_scheme, scheme_for_graph
from edgebert_exporters.quantization.weight_selection import Plan
from edgebert_exporters.reports.conditions import BUILT_IN_TEXTS, run_conditions
from edgebert_exporters.reports.labelled_examples import read_examples
from edgebert_exporters.reports.report import complete_report
from edgebert_exporters.reports.thresholds import Gates
from edgebert_exporters.verification.checks import batches_of
from edgebert_exporters.verification.golden_sample import golden_sample
from edgebert_exporters.verification.parity import not_finite
from edgebert_runtime.bundle.manifest import Manifest, Weights
from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.errors import QuantizationError

# The targets of float32 bundles that a scheme can quantize.
TARGETS = {"int8": ("cpu",), "int4": ("cpu",), "int8-static": ("cpu", "portable"), "fp16": ("cpu", "portable")}


@arguments.typed(
    bundle=arguments.path,
    out=arguments.path,
    scheme=arguments.text,
    granularity=arguments.text,
    block_size=arguments.whole,
    asymmetric=arguments.flag,
    algorithm=arguments.text,
    exclude=arguments.texts,
    calibration=arguments.texts,
    calibration_name=arguments.text,
    calibration_method=arguments.text,
    mixed_precision=arguments.number,
    eval=arguments.path,
    min_fidelity=arguments.number,
    max_slowdown=arguments.number,
    force=arguments.flag,
    progress=arguments.function,
)
def quantize_bundle(
    bundle: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    scheme: str = "int8",
    granularity: str | None = None,
    block_size: int | None = None,
    asymmetric: bool = False,
    algorithm: str | None = None,
    exclude: Sequence[str] = (),
    calibration: Sequence[str] | None = None,
    calibration_name: str | None = None,
    calibration_method: str | None = None,
    mixed_precision: float | None = None,
    eval: str | os.PathLike[str] | None = None,
    min_fidelity: float | None = None,
    max_slowdown: float | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Bundle:
    """Quantize the float32 bundle in the folder ``bundle`` into the folder ``out``.

    Args:
        bundle: The folder of a float32 bundle.
        out: The folder of the quantized bundle.
        scheme: ``int8``, ``int4``, ``int8-static`` or ``fp16`` (:mod:`edgebert_exporters.quantization.schemes`).
        granularity: ``channel``, a scale per output channel for batches and long texts, or ``block``, a scale per
            block for one token at a time. None is the default of the task.
        block_size: The weights per block; None is 128 in 8 bits and 64 in 4.
        asymmetric: Whether blocks have a zero point.
        algorithm: ``rtn`` (round to nearest; the default in 8 bits) or ``gptq`` (in 4), for blocks.
        exclude: Patterns of weights to leave in float32, such as ``*.ffn_down.weight``.
        calibration: Texts like those that the model will read. Every second one sets scales; the others measure
            fidelity. None is our own.
        calibration_name: The name of those texts in the report.
        calibration_method: The method of the activation ranges of ``int8-static``: ``min-max``, ``percentile``,
            ``entropy`` or ``mse``.
        mixed_precision: The largest total loss of fidelity, with which each weight is int4, int8 or float32.
        eval: A file of labelled examples (:mod:`edgebert_exporters.reports.labelled_examples`) for both bundles.
        min_fidelity: The least fidelity to float32: mean cosine, or correlation where a text gives one number.
        max_slowdown: The most time of a call, in that of float32.
        force: Whether to replace a bundle in ``out``.
        progress: A function of each step, and of the parts that are done and all parts.

    Raises:
        QuantizationError: if an option does not exist or does not belong to the scheme, the bundle is quantized
            already, nothing can be quantized, a pattern matches nothing, or the result is not finite or falls short.
        ExportError: if ``out`` cannot be written.
        InputError: if an example cannot be used.
    """
    progress, source = progress or silent, OpenedBundle.open(bundle)
    resolved = resolve_scheme(
        source.manifest.task, scheme, block_size, granularity, asymmetric, algorithm, calibration_method
    )
    check_source(source, scheme)
    report_notes(source.manifest.notes)
    if mixed_precision is not None:
        check_max_loss(mixed_precision, scheme)
    default_fidelity = MIN_FIDELITY[scheme] if mixed_precision is None else 1 - mixed_precision
    gates = Gates(default_fidelity if min_fidelity is None else min_fidelity, max_slowdown)
    examples = None if eval is None else read_examples(eval, source.manifest)
    settings: dict[str, Any] = {"scheme": scheme, "granularity": resolved.granularity}
    settings |= {"block_size": resolved.block_size, **dataclasses.asdict(gates)}
    chosen = {
        **{"scheme": scheme, "granularity": granularity, "block_size": block_size, "asymmetric": asymmetric},
        **{"algorithm": algorithm, "exclude": tuple(exclude), "calibration_method": calibration_method},
        **{"mixed_precision": mixed_precision, "eval": eval and Path(eval).name},
        **{"min_fidelity": min_fidelity, "max_slowdown": max_slowdown},
    }
    settings["unknown_tokens"] = check_samples(source, calibration, min_fidelity)
    with staged(out, force=force) as folder:
        calibration_samples, test_samples = split_samples(source, calibration)
        origin = BUILT_IN_TEXTS if calibration is None else calibration_name or "given by the caller"
        texts = {"origin": origin, "calibration": len(calibration_samples), "test": len(test_samples)}
        settings["conditions"] = run_conditions(source, chosen, texts)
        quantizer, formats = Quantizer(source, resolved, exclude), None
        if mixed_precision is None:
            quantizer.collect_statistics(calibration_samples, (), progress)
        else:
            formats, entries = choose_formats(quantizer, calibration_samples, test_samples, mixed_precision, progress)
            settings |= entries
        settings["coverage"] = write_quantized(folder, quantizer, formats, progress).coverage()
        quantized = OpenedBundle(Bundle.open(folder, verify="size"))  # its hashes were just computed
        check_finite(quantized)
        report = complete_report(settings, source, quantized, test_samples, examples, progress)
        gates.check(report)
        manifest = with_report(quantized, report)
        write_manifest(folder, manifest)
    return Bundle(Path(out), Manifest.from_json(manifest.to_json()))


@arguments.typed(
    bundle=arguments.path,
    granularity=arguments.text,
    exclude=arguments.texts,
    calibration=arguments.texts,
    progress=arguments.function,
)
def measure_sensitivity(
    bundle: str | os.PathLike[str],
    *,
    granularity: str | None = None,
    exclude: Sequence[str] = (),
    calibration: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Measure the fidelity loss of quantizing each weight alone.

    The options are those of :func:`quantize_bundle`.

    Returns:
        Rows with the name of the ``weight``, its ``bytes`` in float32, and its loss as ``int8`` and ``int4``.

    Raises:
        QuantizationError: as :func:`quantize_bundle`.
    """
    source = OpenedBundle.open(bundle)
    check_source(source, "int8")
    quantizer = Quantizer(source, resolve_scheme(source.manifest.task, "int8", granularity=granularity), exclude)
    calibration_samples, _ = split_samples(source, calibration)
    return sensitivity_rows(measure_each_weight(quantizer, calibration_samples, progress or silent))


def split_samples(source: OpenedBundle, texts: Sequence[str] | None) -> tuple[list[Sample], list[Sample]]:
    """Return calibration samples and test samples, of texts or of our own."""
    rows = sample_rows(source.bundle, texts)
    return source.samples(rows[::2]), source.samples(rows[1::2])


def check_samples(source: OpenedBundle, texts: Sequence[str] | None, min_fidelity: float | None) -> float:
    """Return the share of unknown tokens in the sample texts.

    Raises:
        QuantizationError: if a fidelity is asked for on texts that the model cannot read.
    """
    share = unknown_share(source.bundle, texts)
    if share > MAX_UNKNOWN and min_fidelity:
        raise QuantizationError(
            f"{share:.0%} of the tokens of the sample texts are unknown to the model: a fidelity on them means nothing",
            hint="give {calibration} texts of the kind that it reads, or leave out {min_fidelity}",
            options={"calibration": ..., "min_fidelity": ...},
        )
    return share


def check_source(source: OpenedBundle, scheme: str) -> None:
    """Refuse bundles that are quantized, and targets without the operators of a scheme."""
    manifest = source.manifest
    if manifest.weights.scheme != "fp32":
        raise QuantizationError(
            f"{source.path} is quantized already ({manifest.weights.scheme})", hint="give a float32 bundle"
        )
    if manifest.target not in TARGETS[scheme]:
        raise QuantizationError(
            f"{source.path} was exported for the target {manifest.target}, and {scheme} uses operators of ONNX "
            "Runtime's CPU kernels",
            hint="export for the target cpu and quantize that, or use {scheme}",
            options={"scheme": "int8-static"},
        )


def write_quantized(folder: Path, quantizer: Quantizer, formats: Formats | None, progress: Progress) -> Plan:
    """Write graphs, tokenizers and a manifest without a report; return the plan of all graphs."""
    models, plan = quantizer.quantize(formats, progress)
    source, scheme = quantizer.source, quantizer.scheme
    signatures = {name: Signature(spec.inputs, spec.outputs) for name, spec in source.manifest.graphs.items()}
    if scheme.format == FLOAT16:
        signatures = {name: float16_signature(signature) for name, signature in signatures.items()}
    specs = write_graphs(models, folder, signatures, single_file=source.manifest.target == "portable")
    copy_tokenizers(source.path, folder)
    strictest = scheme_for_graph("encoder", scheme) if "encoder" in models else scheme
    weights = Weights(
        scheme=scheme.name if formats is None else "mixed",
        bytes=bytes_of(models.values()),
        coverage=(plan.quantized, plan.eligible),
        skipped=plan.skipped,
        cpu_requirements=strictest.cpu_requirements,
    )
    manifest = dataclasses.replace(
        source.manifest,
        edgebert_version=__version__,
        graphs=specs,
        weights=weights,
        files=list_files(folder),
        verification={},
    )
    write_manifest(folder, manifest)
    return plan


def check_finite(quantized: OpenedBundle) -> None:
    """Run the quantized graphs on the grid.

    Raises:
        QuantizationError: if an output is not finite.
    """
    for batch in batches_of(quantized.manifest):
        if problem := not_finite(quantized.signature.outputs, quantized.run(None, batch.feeds)):
            raise QuantizationError(f"the quantized model goes wrong: {problem} at {batch.name}")


def with_report(quantized: OpenedBundle, report: dict[str, Any]) -> Manifest:
    """Return the manifest with a report and a golden sample."""
    golden = golden_sample(quantized)
    return dataclasses.replace(quantized.manifest, report=report, verification={"golden": golden})
