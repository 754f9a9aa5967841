"""The report of a quantized bundle: sizes, speed, fidelity, batch invariance, and results on labelled examples."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from edgebert_exporters.bundles.bundle_files import fingerprint, tensors
from edgebert_exporters.fidelity.comparison import compare
from edgebert_exporters.fidelity.token_bytes import token_bytes
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.inference.sample_texts import Sample
from edgebert_exporters.progress import Progress
from edgebert_exporters.reports.labelled_examples import Examples
from edgebert_exporters.reports.task_evaluation import evaluate
from edgebert_exporters.reports.thresholds import advice
from edgebert_exporters.verification.batch_invariance import batch_invariance
from edgebert_runtime.benchmark import milliseconds

# Turns of each side for one workload.
TURNS = 7
# The kinds of weights, by parts of their names; the first match counts.
WEIGHT_KINDS = {
    "layers": ("layers",),
    "head": ("head",),
    "embeddings": ("embeddings", "token_embedding", "position_embedding", "target_token_embedding"),
}
OTHER = "other"


def complete_report(
    settings: Mapping[str, Any],
    source: OpenedBundle,
    quantized: OpenedBundle,
    samples: Sequence[Sample],
    examples: Examples | None,
    progress: Progress,
) -> dict[str, Any]:
    """Compare a float32 bundle with its quantized form; return the ``settings`` with all figures.

    ``samples`` were not used for quantization. The engines are evaluated on ``examples``.

    Raises:
        InputError: if an engine cannot take an example.
    """
    report = dict(settings) | sizes(source, quantized)
    progress("measure fidelity", 0, 1)
    counts = token_bytes(source.bundle) if source.kind.scores_samples else None
    report["fidelity"], cosine_min = compare(source, quantized, samples, counts)
    report["batch_invariance"] = batch_invariance(quantized) | {"cosine_min": cosine_min}
    progress("measure fidelity", 1, 1)
    report["speed"] = speed(source, quantized, progress)
    report["advice"] = advice(report)
    if examples is not None:
        report["evaluation"] = evaluate(source.bundle, quantized.bundle, examples, progress)
    return report


def sizes(source: OpenedBundle, quantized: OpenedBundle) -> dict[str, Any]:
    """Return the ``bytes`` of all weights before and after, and by ``kinds``."""
    before, after = (bytes_by_kind(opened.graphs.values()) for opened in (source, quantized))
    kinds = {kind: {"before": before[kind], "after": after[kind]} for kind in before if before[kind] or after[kind]}
    return {"bytes": {"before": sum(before.values()), "after": sum(after.values())}, "kinds": kinds}


def bytes_by_kind(models: Iterable[ir.Model]) -> dict[str, int]:
    """Return the bytes of the distinct weights of graphs, by kind.

    The kinds are ``layers``, ``head``, ``embeddings`` (tied ones included) and ``other``: norms between those, and the
    constants of a graph.
    """
    distinct = {fingerprint(tensor): tensor for tensor in reversed(tensors(models))}
    totals = dict.fromkeys((*WEIGHT_KINDS, OTHER), 0)
    for tensor in distinct.values():
        totals[weight_kind(tensor.name or "")] += tensor.nbytes
    return totals


def weight_kind(name: str) -> str:
    """Return the kind of a weight, by the parts of its name."""
    parts = name.split(".")
    return next((kind for kind, names in WEIGHT_KINDS.items() if any(part in names for part in parts)), OTHER)


def speed(before: OpenedBundle, after: OpenedBundle, progress: Progress) -> list[dict[str, Any]]:
    """Time both sides in short alternating turns; return the median ratio for each workload."""
    results, batches = [], after.kind.workloads(after.manifest)
    for done, batch in enumerate(batches):
        sides = [opened.kind.prepared(opened.session, batch) for opened in (before, after)]
        turns = [(milliseconds(sides[0]), milliseconds(sides[1])) for _ in range(TURNS)]
        results.append(
            {
                "shape": batch.name,
                "before_ms": statistics.median(turn[0] for turn in turns),
                "after_ms": statistics.median(turn[1] for turn in turns),
                "speedup": statistics.median(turn[0] / turn[1] for turn in turns),
            }
        )
        progress("measure speed", done + 1, len(batches))
    return results
