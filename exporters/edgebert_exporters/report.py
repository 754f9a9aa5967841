"""Measure what quantization gained and what it cost."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgebert_exporters.calibration import to_batches
from edgebert_exporters.grid import Batch
from edgebert_exporters.parity import Floats, Progress, Runs, cosines

# Batch size and length: one short text, one long text, a batch of short texts.
SHAPES = ((1, 16), (1, 128), (8, 32))
TURNS = 7


def embed_rows(session: Runs, rows: Sequence[Sequence[int]]) -> Floats:
    """Return the output (n, dim) for rows of token ids."""
    vectors: dict[int, Floats] = {}
    for indices, batch in to_batches(rows):
        vectors.update(zip(indices, session.run(None, batch.feeds)[0], strict=True))
    return np.stack([vectors[i] for i in range(len(rows))])


def fidelity(before: Runs, after: Runs, rows: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Compare vectors before and after, and each row alone with the same row in its batch.

    ``flips`` is the share of texts whose nearest other text changed.
    """
    old, new = embed_rows(before, rows), embed_rows(after, rows)
    agreement = cosines(old, new)
    alone = np.concatenate([embed_rows(after, [row]) for row in rows[:: max(1, len(rows) // 16)]])
    batched = new[:: max(1, len(rows) // 16)]
    return {
        "texts": len(rows),
        "cosine_mean": float(agreement.mean()),
        "cosine_min": float(agreement.min()),
        "nearest_flips": float((nearest(old) != nearest(new)).mean()),
        "alone_in_batch_cosine_min": float(cosines(alone, batched).min()),
    }


def nearest(vectors: Floats) -> Any:
    """Return, for each vector (n, dim), the number of the other vector with the largest cosine."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    similarity = unit @ unit.T
    np.fill_diagonal(similarity, -np.inf)
    return similarity.argmax(1)


def speed(before: Runs, after: Runs, vocab_size: int, max_tokens: int, progress: Progress) -> list[dict[str, Any]]:
    """Time both sides in short turns, one after the other, and return the median of the ratios for each shape."""
    results = []
    for done, (size, length) in enumerate(SHAPES):
        length = min(length, max_tokens)
        ids = np.random.default_rng(0).integers(0, vocab_size, (size, length))
        batch = Batch("speed", ids, np.ones_like(ids), np.zeros_like(ids))
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
