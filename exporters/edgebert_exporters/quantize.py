"""Turn a float32 bundle into a quantized one, with a report of what that cost."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgebert import __version__
from edgebert_exporters.bundles.atomic_folder import staged
from edgebert_exporters.bundles.bundle_files import bytes_of, copy_tokenizers, list_files, write_graphs, write_manifest
from edgebert_exporters.graphs.signatures import Signature
from edgebert_exporters.inference.graph_runner import interface, open_graphs
from edgebert_exporters.inference.sample_texts import Sample, sample_rows, to_samples
from edgebert_exporters.progress import Progress, silent
from edgebert_exporters.quantization.blockwise import DEFAULT_BLOCK
from edgebert_exporters.quantization.calibration import open_models
from edgebert_exporters.quantization.float16 import half_signature
from edgebert_exporters.quantization.mixed_precision import SAMPLES, Judge, measure_choices, table, within_max_loss
from edgebert_exporters.quantization.quantizer import Quantizer
from edgebert_exporters.quantization.schemes import (
    DEFAULT_ALGORITHM,
    FLOAT16,
    MIN_FIDELITY,
    Form,
    Scheme,
    choose_scheme,
    scheme_of,
)
from edgebert_exporters.quantization.weight_selection import Plan
from edgebert_exporters.reports.labelled_examples import read_examples
from edgebert_exporters.reports.report import complete_report
from edgebert_exporters.reports.thresholds import Gates
from edgebert_exporters.verification.golden_sample import golden_sample
from edgebert_exporters.verification.parity import batches_of, not_finite
from edgebert_runtime.bundle.manifest import Manifest, Weights
from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.errors import QuantizationError

# What a scheme's operators are for, where a bundle was exported for something else.
TARGETS = {"int8": ("cpu",), "int4": ("cpu",), "int8-static": ("cpu", "portable"), "fp16": ("cpu", "portable")}


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
    calibration_method: str | None = None,
    mixed_precision: float | None = None,
    eval: str | os.PathLike[str] | None = None,
    min_fidelity: float | None = None,
    max_slowdown: float | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Bundle:
    """Quantize the float32 bundle in the folder ``bundle`` into the folder ``out``.

    ``scheme`` is ``int8``, ``int4``, ``int8-static`` or ``fp16`` (:mod:`edgebert_exporters.quantization.schemes`).
    ``granularity`` is ``channel`` (one scale per output channel: batches and long texts) or ``block`` (one token at a
    time); None is what suits the task. Blocks are of ``block_size`` weights (128 in 8 bits and 64 in 4 unless given),
    with ``asymmetric`` if wanted, whose integers ``algorithm`` finds: ``rtn`` (in 8 bits, unless given) or ``gptq``
    (in 4). ``calibration_method`` finds the ranges of ``int8-static``: ``min-max``, ``percentile``, ``entropy`` or
    ``mse``.

    ``exclude`` holds patterns (``*.ffn_down.weight``) of weights to leave in float32. With ``mixed_precision``,
    the largest total loss of fidelity, each weight is int4, int8 or float32, in as few bytes as that loss allows.

    ``calibration`` holds texts like those that the model will see; every second one sets the scales, the others measure
    the fidelity to float32 (mean cosine, or correlation where a text gives one number), which must be at least
    ``min_fidelity``. ``max_slowdown`` is the most time that it may take, in that of float32. ``eval`` is a file of
    labelled examples (:mod:`edgebert_exporters.reports.labelled_examples`) on which both are judged.

    Raises:
        QuantizationError: if an option does not exist or does not belong to the scheme, the bundle is quantized
            already, nothing can be quantized, a pattern matches nothing, or the result is not finite or falls short.
        ExportError: if ``out`` cannot be written.
        InputError: if an example cannot be used.
    """
    progress, source = progress or silent, Bundle.open(bundle)
    chosen = choose_scheme(
        source.manifest.task, scheme, block_size, granularity, asymmetric, algorithm, calibration_method
    )
    check_source(source, scheme)
    least = MIN_FIDELITY[scheme] if mixed_precision is None else 1 - mixed_precision
    gates = Gates(least if min_fidelity is None else min_fidelity, max_slowdown)
    examples = None if eval is None else read_examples(eval, source.manifest)
    about = {"scheme": scheme, "granularity": chosen.granularity, "block_size": chosen.block_size} | dataclasses.asdict(
        gates
    )
    with staged(out, force=force) as folder:
        watched, measured = halves(source, calibration)
        quantizer = Quantizer(source, chosen, exclude)
        forms, chosen_by = choose_formats(quantizer, watched, measured, mixed_precision, progress)
        manifest, coverage = write_quantized(folder, quantizer, forms, progress)
        check_finite(folder, manifest)
        about |= chosen_by | {"coverage": coverage}
        report = complete_report(about, source, Bundle.open(folder), measured, examples, progress)
        gates.check(report)
        write_manifest(folder, finished(folder, manifest, report))
    return Bundle.open(out, verify="size")


def measure_sensitivity(
    bundle: str | os.PathLike[str],
    *,
    granularity: str | None = None,
    exclude: Sequence[str] = (),
    calibration: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Measure what each weight of a float32 bundle costs by itself in 8 bits and in 4, the most expensive first.

    The options are those of :func:`quantize_bundle`. A row has the name of the ``weight``, its ``bytes`` in float32,
    and under ``int8`` and ``int4`` the share of the fidelity that it costs.

    Raises:
        QuantizationError: as :func:`quantize_bundle`.
    """
    progress, source = progress or silent, Bundle.open(bundle)
    check_source(source, "int8")
    quantizer = Quantizer(source, choose_scheme(source.manifest.task, "int8", granularity=granularity), exclude)
    watched, _ = halves(source, calibration)
    forms = candidates(quantizer.scheme)
    quantizer.watch(watched, forms, progress)
    judge = Judge(source, open_graphs(source.path, source.manifest), watched[:SAMPLES])
    _, plans = quantizer.load()
    return table(measure_choices(Plan.merged(list(plans.values())), forms, loss_of(quantizer, judge), progress))


def halves(source: Bundle, texts: Sequence[str] | None) -> tuple[list[Sample], list[Sample]]:
    """Return the samples that are looked at and those that are measured, of texts or of our own."""
    rows = sample_rows(source, texts)
    return to_samples(source, rows[::2]), to_samples(source, rows[1::2])


def check_source(source: Bundle, scheme: str) -> None:
    """Refuse bundles that the scheme cannot serve."""
    manifest = source.manifest
    if manifest.weights.scheme != "fp32":
        raise QuantizationError(
            f"{source.path} is quantized already ({manifest.weights.scheme}); give a float32 bundle"
        )
    if manifest.target not in TARGETS[scheme]:
        raise QuantizationError(
            f"{source.path} was exported for the target {manifest.target}, and {scheme} uses operators of ONNX "
            "Runtime's CPU kernels; export with --target cpu and quantize that, or use --scheme int8-static"
        )


def candidates(scheme: Scheme) -> tuple[Form, Form]:
    """Return the formats among which mixed precision chooses beside float32: that of the scheme, and 4 bits."""
    return scheme.form, Form(4, DEFAULT_BLOCK[4], algorithm=DEFAULT_ALGORITHM[4])


def loss_of(quantizer: Quantizer, judge: Judge) -> Any:
    """Return a function from the forms of weights to what a model loses that has them."""

    def loss(forms: Mapping[str, Form]) -> float:
        models, _ = quantizer.quantized(forms, silent)
        return judge.loss(open_models(models, quantizer.source.path, quantizer.source.manifest))

    return loss


def choose_formats(
    quantizer: Quantizer,
    watched: Sequence[Sample],
    measured: Sequence[Sample],
    max_loss: float | None,
    progress: Progress,
) -> tuple[dict[str, Form] | None, dict[str, Any]]:
    """Return the forms of weights with which all lose at most ``max_loss``, and what the report says of it.

    Single weights are measured on the samples that are watched, the whole on the others. Without ``max_loss`` all have
    the form of the scheme, and samples are watched only.
    """
    if max_loss is None:
        quantizer.watch(watched, (), progress)
        return None, {}
    if not 0 < max_loss < 1:
        raise QuantizationError(f"mixed_precision={max_loss} is not between 0 and 1")
    if quantizer.scheme.name != "int8":
        raise QuantizationError(
            f"mixed_precision {max_loss} is for the scheme int8, from which it goes down to 4 bits; leave one out"
        )
    source, forms = quantizer.source, candidates(quantizer.scheme)
    quantizer.watch(watched, forms, progress)
    before = open_graphs(source.path, source.manifest)
    _, plans = quantizer.load()
    single = loss_of(quantizer, Judge(source, before, watched[:SAMPLES]))
    choices = measure_choices(Plan.merged(list(plans.values())), forms, single, progress)
    chosen = within_max_loss(choices, max_loss, loss_of(quantizer, Judge(source, before, measured)), progress)
    named = {name: choice.form for name, choice in chosen.items() if choice.form.bits < 32}
    return named, {
        "mixed_precision": max_loss,
        "formats": {name: str(choice.form) for name, choice in chosen.items()},
        "sensitivity": table(choices),
    }


def write_quantized(
    folder: Path, quantizer: Quantizer, forms: Mapping[str, Form] | None, progress: Progress
) -> tuple[Manifest, dict[str, Any]]:
    """Write graphs, tokenizers and manifest of the quantized bundle; return the manifest and what was covered."""
    models, plan = quantizer.quantized(forms, progress)
    source, scheme = quantizer.source, quantizer.scheme
    signatures = {name: Signature(old.inputs, old.outputs) for name, old in source.manifest.graphs.items()}
    if scheme.form == FLOAT16:
        signatures = {name: half_signature(signature) for name, signature in signatures.items()}
    specs = write_graphs(models, folder, signatures, single_file=source.manifest.target == "portable")
    copy_tokenizers(source.path, folder)
    strictest = scheme_of("encoder", scheme) if "encoder" in models else scheme
    weights = Weights(
        scheme.name if forms is None else "mixed",
        bytes_of(models.values()),
        (plan.quantized, plan.eligible),
        plan.skipped,
        strictest.cpu_requirements,
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
    return manifest, plan.coverage()


def check_finite(folder: Path, manifest: Manifest) -> None:
    """Run the quantized graphs on the grid.

    Raises:
        QuantizationError: if they give numbers that are not finite.
    """
    after = open_graphs(folder, manifest)
    for batch in batches_of(manifest):
        if problem := not_finite(interface(manifest).outputs, after.run(None, batch.feeds)):
            raise QuantizationError(f"the quantized model goes wrong: {problem} at {batch.name}")


def finished(folder: Path, manifest: Manifest, report: dict[str, Any]) -> Manifest:
    """Return the manifest with the report and a golden sample of the quantized graph."""
    golden = golden_sample(Bundle.open(folder), open_graphs(folder, manifest))
    return dataclasses.replace(manifest, report=report, verification={"golden": golden})
