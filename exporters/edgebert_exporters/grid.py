"""The batches on which a graph must agree with its reference.

Every batch size and length at which exporters go wrong, with every kind of padding that callers produce.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

BATCHES = (1, 2, 5)
PADDINGS = ("none", "right", "left", "holes", "all")


@dataclass(frozen=True)
class Batch:
    """One batch: its name for messages, and the inputs of an encoder, each (batch, seq) int64."""

    name: str
    input_ids: Ints
    attention_mask: Ints
    token_type_ids: Ints

    @property
    def feeds(self) -> dict[str, Ints]:
        """Return the inputs by name."""
        return {
            "input_ids": self.input_ids,
            "attention_mask": self.attention_mask,
            "token_type_ids": self.token_type_ids,
        }


def encoder_grid(vocab_size: int, max_tokens: int, type_vocab_size: int, seed: int = 0) -> Iterator[Batch]:
    """Yield batches of 1, 2 and 5 rows of 1, 2, 7 and ``max_tokens`` positions.

    The rows of a batch go through the kinds of padding in turn, starting from each kind, so that every kind is
    met alone and beside every other. The longest batches, which cost the most, start from the first kind only.
    """
    rng = np.random.default_rng(seed)
    for length in sorted({n for n in (1, 2, 7, max_tokens) if n <= max_tokens}):
        for size in BATCHES:
            starts = range(len(PADDINGS)) if length < max_tokens and size < len(PADDINGS) else range(1)
            for start in starts:
                kinds = [PADDINGS[(start + row) % len(PADDINGS)] for row in range(size)]
                mask = np.stack([mask_row(kind, length, rng) for kind in kinds])
                yield Batch(
                    f"batch {size} x length {length}, padding {'/'.join(kinds)}",
                    rng.integers(0, vocab_size, mask.shape),
                    mask,
                    rng.integers(0, type_vocab_size, mask.shape),
                )


def mask_row(kind: str, length: int, rng: np.random.Generator) -> Ints:
    """Return a mask (length,) with the kind of padding asked for."""
    mask = np.ones(length, np.int64)
    padded = max(1, length // 3) if length > 1 else 0
    if kind == "right":
        mask[length - padded :] = 0
    elif kind == "left":
        mask[:padded] = 0
    elif kind == "holes":
        mask[rng.choice(length, padded, replace=False)] = 0
    elif kind == "all":
        mask[:] = 0
    return mask


def rows_alone(batch: Batch) -> Iterator[tuple[int, Batch]]:
    """Yield each row that has real tokens as a batch of its own, without its padding."""
    for row, mask in enumerate(batch.attention_mask.astype(bool)):
        if mask.any():
            ids, types = batch.input_ids[row, mask][None], batch.token_type_ids[row, mask][None]
            yield row, Batch(f"row {row} of {batch.name}", ids, np.ones_like(ids), types)
