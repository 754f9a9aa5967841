"""Measure what quantization gained and what it cost: size, speed, fidelity, and results on labelled examples."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from edgebert_exporters.bundles.bundle_files import fingerprint, tensors
from edgebert_exporters.fidelity.agreement import fidelity
from edgebert_exporters.fidelity.token_bytes import token_bytes
from edgebert_exporters.graphs.signatures import past_of
from edgebert_exporters.inference.batch import Batch
from edgebert_exporters.inference.decoder_adapter import Decoder
from edgebert_exporters.inference.graph_runner import interface
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.inference.sample_texts import Sample
from edgebert_exporters.progress import Progress
from edgebert_exporters.reports.labelled_examples import Examples
from edgebert_exporters.reports.task_evaluation import evaluate
from edgebert_exporters.reports.thresholds import advice
from edgebert_exporters.verification.batch_invariance import batch_invariance
from edgebert_exporters.verification.decoder_grid import Pasts
from edgebert_runtime.bundle.manifest import Limits, Manifest
from edgebert_runtime.session.session import Runnable

# Batch size and length: one short text, one long text, a batch of short texts.
SHAPES = ((1, 16), (1, 128), (8, 32))
# Batch size, past, and new tokens of a decoder: one token, a prompt, one token each for a batch.
STEPS = ((1, 32, 1), (1, 0, 128), (8, 32, 1))
# Sources, their length, and the tokens of a translation: the first token alone, one text, many.
TRANSLATIONS = ((1, 32, 1), (1, 32, 16), (32, 32, 8))
TURNS = 7
# What weights are for, by a part of their names; the first that fits counts, and what has none is called other.
KINDS = {
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
    """Compare a float32 bundle with a quantized one, and return the ``settings`` of quantization with all figures.

    ``samples`` were not used for calibration. The engines do the ``examples``, if there are any.

    Raises:
        InputError: if an engine cannot take an example.
    """
    manifest, before, after = quantized.manifest, source.session, quantized.session
    report = dict(settings) | sizes(source, quantized)
    progress("measure fidelity", 0, 1)
    counts = token_bytes(source.bundle) if source.manifest.task == "generate" else None
    report["fidelity"] = fidelity(before, after, manifest, samples, counts)
    report["batches"] = batch_invariance(after, manifest)
    progress("measure fidelity", 1, 1)
    report["speed"] = speed(before, after, manifest, progress)
    report["advice"] = advice(report)
    if examples is not None:
        report["evaluation"] = evaluate(source.path, quantized.path, examples, progress)
    return report


def sizes(source: OpenedBundle, quantized: OpenedBundle) -> dict[str, Any]:
    """Return the ``bytes`` of the weights of two bundles, and of the ``kinds`` of weights that they have."""
    before, after = (bytes_by_kind(opened.graphs.values()) for opened in (source, quantized))
    kinds = {kind: {"before": before[kind], "after": after[kind]} for kind in before if before[kind] or after[kind]}
    return {"bytes": {"before": sum(before.values()), "after": sum(after.values())}, "kinds": kinds}


def bytes_by_kind(models: Iterable[ir.Model]) -> dict[str, int]:
    """Return the bytes of the weights of graphs by what they are for; those that are the same count once.

    The kinds are ``layers``, ``head``, ``embeddings`` (a table that a head multiplies by is one) and ``other``: norms
    between those, and the constants of a graph.
    """
    distinct = {fingerprint(tensor): tensor for tensor in reversed(tensors(models))}
    found = dict.fromkeys((*KINDS, OTHER), 0)
    for tensor in distinct.values():
        found[kind_of(tensor.name or "")] += tensor.nbytes
    return found


def kind_of(name: str) -> str:
    """Return what a weight with this name is for."""
    parts = name.split(".")
    return next((kind for kind, names in KINDS.items() if any(part in names for part in parts)), OTHER)


def speed(before: Runnable, after: Runnable, manifest: Manifest, progress: Progress) -> list[dict[str, Any]]:
    """Time both sides in short turns, one after the other, and return the median of the ratios for each shape."""
    results, batches = [], workloads(manifest)
    for done, batch in enumerate(batches):
        sides = [prepared(session, batch) for session in (before, after)]
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


def workloads(manifest: Manifest) -> list[Batch]:
    """Return the batches to be timed, each called what it is. Where tokens are chosen, the last of each row is."""
    limits, inputs = manifest.limits, interface(manifest).inputs
    if manifest.task == "translate":
        return [translating(limits, *shape) for shape in TRANSLATIONS]
    pasts = Pasts(past_of(inputs))
    shapes = STEPS if pasts.specs else tuple((size, 0, length) for size, length in SHAPES)
    batches = []
    for size, past, new in shapes:
        past = min(past, limits.max_tokens - 1)
        new = min(new, limits.max_tokens - past)
        values: dict[str, npt.NDArray[Any]] = {
            "input_ids": np.random.default_rng(0).integers(0, limits.vocab_size, (size, new)),
            "attention_mask": np.ones((size, past + new), np.int64),
            "token_type_ids": np.zeros((size, new), np.int64),
            "logits_indices": np.arange(1, size + 1) * new - 1,
            "top_k": np.ones(1, np.int64),
            **pasts.make(size, past),
        }
        name = f"{size} x {new}" + (f" after {past}" if pasts.specs else "")
        batches.append(Batch(name, {spec.name: values[spec.name] for spec in inputs}))
    return batches


def translating(limits: Limits, size: int, source: int, target: int) -> Batch:
    """Return a batch of sources, and of targets to be written token by token."""
    source, target = min(source, limits.max_tokens), min(target, limits.max_tokens)
    feeds = {
        "input_ids": np.random.default_rng(0).integers(0, limits.vocab_size, (size, source)),
        "attention_mask": np.ones((size, source), np.int64),
        "decoder_input_ids": np.zeros((size, target), np.int64),
        "logits_indices": np.arange(1, size + 1) * target - 1,
        "top_k": np.ones(1, np.int64),
    }
    return Batch(f"{size} x {source} to {target}", feeds)


def prepared(session: Runnable, batch: Batch) -> Callable[[], object]:
    """Return a function that runs a batch and does nothing else."""
    return session.prepared(batch.feeds) if isinstance(session, Decoder) else lambda: session.run(None, batch.feeds)


def milliseconds(run: Callable[[], object], least: float = 0.03) -> float:
    """Return the milliseconds of one run, averaged over at least ``least`` seconds."""
    run()
    start, runs = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < least:
        run()
        runs += 1
    return passed / runs * 1000
