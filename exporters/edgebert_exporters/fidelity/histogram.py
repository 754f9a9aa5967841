"""How many numbers are distributed, of which only a few are remembered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

# Numbers that are remembered at most, and the steps in which they are counted.
MOST_KEPT = 256
STEPS = 16


@dataclass
class Distribution:
    """Every so many-th of the numbers that came, :data:`MOST_KEPT` at most."""

    every: int = 1
    seen: int = 0
    kept: list[float] = field(default_factory=list)

    def add(self, number: float) -> None:
        """Take in a number. Where there is no room for it, every second one of those before is forgotten."""
        if self.seen % self.every == 0:
            if len(self.kept) == MOST_KEPT:
                self.kept, self.every = self.kept[::2], 2 * self.every
            self.kept.append(number)
        self.seen += 1

    def counted(self) -> dict[str, Any]:
        """Return the smallest and the largest number, and how many there are in each of the steps between them."""
        return counted(self.kept)


def counted(numbers: Sequence[float]) -> dict[str, Any]:
    """Return ``low``, ``high`` and the ``counts`` of equal steps between them; of equal numbers there is one step."""
    low, high = min(numbers), max(numbers)
    if low == high:
        return {"low": low, "high": high, "counts": [len(numbers)]}
    counts = [0] * STEPS
    for number in numbers:
        counts[min(STEPS - 1, int((number - low) / (high - low) * STEPS))] += 1
    return {"low": low, "high": high, "counts": counts}
