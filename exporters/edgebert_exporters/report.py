"""Measure how much faster a quantized graph is."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from edgebert_exporters.grid import Batch
from edgebert_exporters.parity import Progress, Runs
from edgebert_runtime.manifest import Manifest

# Batch size and length: one short text, one long text, a batch of short texts.
SHAPES = ((1, 16), (1, 128), (8, 32))
TURNS = 7


def speed(before: Runs, after: Runs, manifest: Manifest, progress: Progress) -> list[dict[str, Any]]:
    """Time both sides in short turns, one after the other, and return the median of the ratios for each shape.

    Where tokens are chosen, one of each row is.
    """
    results = []
    for done, (size, length) in enumerate(SHAPES):
        length = min(length, manifest.limits.max_tokens)
        ids = np.random.default_rng(0).integers(0, manifest.limits.vocab_size, (size, length))
        values = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
            "logits_indices": np.arange(size) * length,
        }
        batch = Batch("speed", {spec.name: values[spec.name] for spec in manifest.graphs["model"].inputs})
        turns = [(milliseconds(before, batch), milliseconds(after, batch)) for _ in range(TURNS)]
        results.append(
            {
                "shape": f"{size} x {length}",
                "before_ms": statistics.median(turn[0] for turn in turns),
                "after_ms": statistics.median(turn[1] for turn in turns),
                "speedup": statistics.median(turn[0] / turn[1] for turn in turns),
            }
        )
        progress("measure speed", done + 1, len(SHAPES))
    return results


def milliseconds(session: Runs, batch: Batch, least: float = 0.03) -> float:
    """Return the milliseconds of one run, averaged over at least ``least`` seconds."""
    session.run(None, batch.feeds)
    start, runs = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < least:
        session.run(None, batch.feeds)
        runs += 1
    return passed / runs * 1000
