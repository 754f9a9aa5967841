"""Group rows of different lengths into batches. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# A batch may be padded to this many times its budget of real tokens. Where padding is removed inside the graph it
# costs nothing but memory in attention; this keeps one long text among many short ones from multiplying that.
PADDING = 2


def plan_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Put each index of ``lengths`` into one batch, longest first.

    A batch holds at most ``max_tokens`` real tokens, and ``PADDING`` times that when padded to its longest row; a
    row that is longer than ``max_tokens`` is a batch of its own.
    """
    batches: list[list[int]] = []
    tokens = longest = 0
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        length = max(1, lengths[index])
        if not batches or tokens + length > max_tokens or (len(batches[-1]) + 1) * longest > PADDING * max_tokens:
            batches.append([])
            tokens, longest = 0, length
        batches[-1].append(index)
        tokens += length
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
