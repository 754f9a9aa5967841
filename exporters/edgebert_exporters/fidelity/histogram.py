"""Histograms of many numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BINS = 16


def histogram(numbers: Sequence[float]) -> dict[str, Any]:
    """Return ``low``, ``high`` and the ``counts`` of equal bins between them; equal numbers have one bin."""
    low, high = min(numbers), max(numbers)
    if low == high:
        return {"low": low, "high": high, "counts": [len(numbers)]}
    counts = [0] * BINS
    for number in numbers:
        counts[min(BINS - 1, int((number - low) / (high - low) * BINS))] += 1
    return {"low": low, "high": high, "counts": counts}
