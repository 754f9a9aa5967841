"""Turn a float32 bundle into a quantized one, with a report of what that cost."""

from __future__ import annotations

import dataclasses
import fnmatch
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from edgebert import __version__
from edgebert_exporters.calibration import largest_inputs, sample_rows, to_batches
from edgebert_exporters.int8 import Rewriter
from edgebert_exporters.linears import Linear, Table, linears, tables
from edgebert_exporters.parity import Progress, batches_of, golden_sample, silent
from edgebert_exporters.report import fidelity, speed
from edgebert_exporters.signature import Signature
from edgebert_exporters.staging import staged
from edgebert_exporters.writing import list_files, weight_bytes, write_graph, write_manifest
from edgebert_runtime.bundle import Bundle
from edgebert_runtime.errors import QuantizationError
from edgebert_runtime.manifest import Manifest, Weights
from edgebert_runtime.session import open_session
from edgebert_runtime.tokenizer import Tokenizer

SCHEMES = ("int8",)
MIN_AGREEMENT = 0.99
# Smaller tables gain nothing that anyone would notice.
MIN_TABLE_ROWS = 4096
SAFE_CPUS = (
    "x86-64 with AVX2 or newer and Arm64 through edgebert, which sets session.x64quantprecision where a CPU has no "
    "VNNI; another program must set it there too, or 8-bit products overflow"
)


@dataclass
class Plan:
    """What will be quantized, and why the rest will not."""

    linears: list[Linear] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    eligible: int = 0


def quantize_bundle(
    bundle: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    scheme: str = "int8",
    exclude: Sequence[str] = (),
    calibration: Sequence[str] | None = None,
    min_agreement: float | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Bundle:
    """Quantize the float32 bundle in the folder ``bundle`` into the folder ``out``.

    ``exclude`` holds patterns (``*.contract.weight``) of weights to leave in float32. ``calibration`` holds texts
    like those that the model will see; every second one sets the scales, the others measure the mean cosine to
    float32, which must be at least ``min_agreement`` (0.99 unless given).

    Raises:
        QuantizationError: if the bundle is quantized already, nothing can be quantized, a pattern matches nothing,
            or the result is not finite or falls short of ``min_agreement``.
        ExportError: if ``out`` cannot be written.
    """
    progress, least = progress or silent, MIN_AGREEMENT if min_agreement is None else min_agreement
    if scheme not in SCHEMES:
        raise QuantizationError(f"scheme {scheme!r} is not one of {', '.join(SCHEMES)}")
    if not 0 <= least <= 1:
        raise QuantizationError(f"min_agreement={least} is not between 0 and 1")
    source = Bundle.open(bundle)
    check_source(source)
    with staged(out, force=force) as folder:
        rows = sample_rows(source, calibration)
        model, plan = quantized_model(source, scheme, exclude, rows[::2], progress)
        manifest = write_quantized(folder, source, model, plan, scheme)
        report = measure(folder, source, manifest, rows[1::2], progress)
        if report["fidelity"]["cosine_mean"] < least:
            raise QuantizationError(
                f"the quantized model has a mean cosine of {report['fidelity']['cosine_mean']:.4f} to float32, less "
                f"than {least}; leave layers out with --exclude, give --calibration texts like yours, or lower "
                "--min-agreement"
            )
        report |= {"scheme": scheme, "coverage": coverage(plan), "min_agreement": least}
        write_manifest(folder, finished(folder, manifest, report))
    return Bundle.open(out, verify="size")


def check_source(source: Bundle) -> None:
    """Refuse bundles that the scheme cannot serve."""
    manifest = source.manifest
    if manifest.weights.scheme != "fp32":
        raise QuantizationError(
            f"{source.path} is quantized already ({manifest.weights.scheme}); give a float32 bundle"
        )
    if manifest.target != "cpu":
        raise QuantizationError(
            f"{source.path} was exported for the target {manifest.target}, and int8 uses operators of ONNX Runtime's "
            "CPU kernels; export with --target cpu and quantize that"
        )


def make_plan(model: ir.Model, exclude: Sequence[str]) -> Plan:
    """Decide what to quantize.

    Raises:
        QuantizationError: if nothing is left, or a pattern of ``exclude`` matches no weight.
    """
    plan = Plan()
    found: dict[str, Linear | Table] = {linear.name: linear for linear in linears(model)}
    plan.eligible = len(found)
    for table in tables(model):
        if len(table.weight) >= MIN_TABLE_ROWS:
            found[table.name] = table
        else:
            plan.kept[table.name] = f"a table of only {len(table.weight)} rows"
    for pattern in exclude:
        if not fnmatch.filter(found, pattern):
            raise QuantizationError(f"--exclude {pattern!r} matches none of the weights {', '.join(sorted(found))}")
    for name, item in found.items():
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in exclude):
            plan.kept[name] = "excluded by the user"
        elif isinstance(item, Linear):
            plan.linears.append(item)
        else:
            plan.tables.append(item)
    if not plan.linears:
        raise QuantizationError(f"nothing to quantize: {plan.eligible} matrix products with weights, all left out")
    return plan


def quantized_model(
    source: Bundle, scheme: str, exclude: Sequence[str], rows: Sequence[Sequence[int]], progress: Progress
) -> tuple[ir.Model, Plan]:
    """Load the float32 graph of a bundle and quantize it."""
    graph = source.path / source.graph("model").file
    model = ir.load(graph)
    plan = make_plan(model, exclude)
    progress("watch sample texts", 0, 1)
    watched = sorted({linear.input.name or "" for linear in plan.linears})
    largest = largest_inputs(graph, watched, [batch for _, batch in to_batches(rows)])
    progress("watch sample texts", 1, 1)
    rewriter = Rewriter(model)
    for done, linear in enumerate(plan.linears):
        rewriter.linear(linear, largest[linear.input.name or ""])
        progress(f"quantize to {scheme}", done + 1, len(plan.linears))
    for table in plan.tables:
        rewriter.table(table)
    RemoveUnusedNodesPass()(model)
    return model, plan


def write_quantized(folder: Path, source: Bundle, model: ir.Model, plan: Plan, scheme: str) -> Manifest:
    """Write graph, tokenizer and manifest of the quantized bundle."""
    old = source.graph("model")
    spec = write_graph(model, folder, "model", Signature(old.inputs, old.outputs), single_file=False)
    shutil.copyfile(source.path / "tokenizer.json", folder / "tokenizer.json")
    weights = Weights(scheme, weight_bytes(model), (len(plan.linears), plan.eligible), plan.kept, SAFE_CPUS)
    return dataclasses.replace(
        source.manifest,
        edgebert_version=__version__,
        graphs={"model": spec},
        weights=weights,
        files=list_files(folder),
        verification={},
    )


def measure(
    folder: Path, source: Bundle, manifest: Manifest, rows: Sequence[Sequence[int]], progress: Progress
) -> dict[str, Any]:
    """Open both bundles with the real engine and compare size, speed and vectors.

    Raises:
        QuantizationError: if the quantized graph gives numbers that are not finite on any batch of the grid.
    """
    write_manifest(folder, manifest)
    before = open_session(source.path / source.graph("model").file)
    after = open_session(folder / Bundle.open(folder).graph("model").file)
    limits = manifest.limits
    for batch in batches_of(manifest):
        if not np.isfinite(after.run(None, batch.feeds)[0]).all():
            raise QuantizationError(f"the quantized model gives numbers that are not finite at {batch.name}")
    report = {"bytes": {"before": source.manifest.weights.bytes, "after": manifest.weights.bytes}}
    progress("measure fidelity", 0, 1)
    report["fidelity"] = fidelity(before, after, rows)
    progress("measure fidelity", 1, 1)
    return report | {"speed": speed(before, after, limits.vocab_size, limits.max_tokens, progress)}


def coverage(plan: Plan) -> dict[str, Any]:
    """Return the part of the report about what was quantized."""
    return {
        "quantized": len(plan.linears),
        "eligible": plan.eligible,
        "tables": [table.name for table in plan.tables],
        "kept": plan.kept,
    }


def finished(folder: Path, manifest: Manifest, report: dict[str, Any]) -> Manifest:
    """Return the manifest with the report and a golden sample of the quantized graph."""
    session = open_session(folder / manifest.graphs["model"].file)
    tokenizer = Tokenizer.load(folder / "tokenizer.json", manifest.limits.vocab_size)
    golden = golden_sample(session, tokenizer, manifest)
    return dataclasses.replace(manifest, report=report, verification={"golden": golden})
