"""Random keys and values in the place of a past."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from edgebert_runtime.bundle.manifest import TensorSpec


@dataclass
class RandomPast:
    """Makes random pasts for the inputs ``specs`` of a decoder.

    They are views of one array, so that a grid of them costs nothing.
    """

    specs: Sequence[TensorSpec]
    seed: int = 0
    numbers: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))

    def make(self, batch: int, columns: int) -> dict[str, npt.NDArray[Any]]:
        """Return a past by the names of its inputs, each (batch, heads, columns, head_dim)."""
        feeds = {}
        for index, spec in enumerate(self.specs):
            shape = (batch, int(spec.shape[1]), columns, int(spec.shape[3]))
            start, size = 997 * index, int(np.prod(shape))
            if len(self.numbers) < start + size:
                rng = np.random.default_rng(self.seed)
                self.numbers = rng.standard_normal(2 * (start + size), np.float32)
            feeds[spec.name] = self.numbers[start : start + size].reshape(shape)
        return feeds
