"""Batches of rows of different lengths, in pure functions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def plan_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Put each index of ``lengths`` into a batch, longest first.

    A batch has at most ``max_tokens`` tokens with padding; a longer row is a batch of its own.
    """
    batches: list[list[int]] = []
    longest = 0
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if not batches or (len(batches[-1]) + 1) * longest > max_tokens:
            batches.append([])
            longest = max(1, lengths[index])
        batches[-1].append(index)
    return batches


def pad(rows: Sequence[Sequence[int] | NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ids and mask (batch, seq) of rows of token ids, padded on the right with id 0."""
    width = max(1, max(map(len, rows)))
    ids = np.zeros((len(rows), width), dtype=np.int64)
    mask = np.zeros((len(rows), width), dtype=np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        mask[i, : len(row)] = 1
    return ids, mask
