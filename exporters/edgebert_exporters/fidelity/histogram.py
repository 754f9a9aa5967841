"""Histograms of a bounded sample of many numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

# The largest sample, and the bins of a histogram.
MAX_SAMPLE = 256
BINS = 16


@dataclass
class Distribution:
    """A sample of every ``every``-th number, :data:`MAX_SAMPLE` at most."""

    every: int = 1
    count: int = 0
    sample: list[float] = field(default_factory=list)

    def add(self, number: float) -> None:
        """Add a number; a full sample drops every second one first."""
        if self.count % self.every == 0:
            if len(self.sample) == MAX_SAMPLE:
                self.sample, self.every = self.sample[::2], 2 * self.every
            self.sample.append(number)
        self.count += 1

    def histogram(self) -> dict[str, Any]:
        """Return the histogram of the sample."""
        return histogram(self.sample)


def histogram(numbers: Sequence[float]) -> dict[str, Any]:
    """Return ``low``, ``high`` and the ``counts`` of equal bins between them; equal numbers have one bin."""
    low, high = min(numbers), max(numbers)
    if low == high:
        return {"low": low, "high": high, "counts": [len(numbers)]}
    counts = [0] * BINS
    for number in numbers:
        counts[min(BINS - 1, int((number - low) / (high - low) * BINS))] += 1
    return {"low": low, "high": high, "counts": counts}
