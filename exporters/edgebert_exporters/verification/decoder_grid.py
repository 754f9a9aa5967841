"""The batches on which a decoder must agree with its reference: prompts, and new tokens after a past.

Past and present are given as the reference has them, a column for each column of the mask, whatever the target;
:mod:`edgebert_exporters.inference.decoder_adapter` turns them into what a graph takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from edgebert_exporters.inference.batch import PADDINGS, Batch, Ints, choose, mask_row
from edgebert_exporters.verification.encoder_grid import BATCHES
from edgebert_runtime.bundle.manifest import TensorSpec
from edgebert_runtime.decoders.causal_signature import PAST

# Rows times columns at most, but for one row: a batch of five full contexts says no more than one of two, and takes
# gigabytes.
MAX_COLUMNS = 2048
# How many of the best tokens are asked for.
BEST = 5


@dataclass
class Pasts:
    """Makes up pasts for a decoder: random keys and values, views of one array, so that a grid of them costs nothing.

    ``specs`` are the inputs of the graph that take a past.
    """

    specs: Sequence[TensorSpec]
    seed: int = 0
    numbers: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))

    def make(self, batch: int, columns: int) -> dict[str, npt.NDArray[Any]]:
        """Return a past of so many columns by the names of its inputs, each (batch, heads, columns, head_dim)."""
        feeds = {}
        for index, spec in enumerate(self.specs):
            shape = (batch, int(spec.shape[1]), columns, int(spec.shape[3]))
            start, size = 997 * index, int(np.prod(shape))
            if len(self.numbers) < start + size:
                rng = np.random.default_rng(self.seed)
                self.numbers = rng.standard_normal(2 * (start + size), np.float32)
            feeds[spec.name] = self.numbers[start : start + size].reshape(shape)
        return feeds


def decoder_grid(
    inputs: Sequence[TensorSpec], vocab_size: int, max_tokens: int, target: str, seed: int = 0
) -> Iterator[Batch]:
    """Yield batches of 1, 2 and 5 rows of 1, 2, 7 and more new tokens, up to ``max_tokens``, after pasts of 0 and more.

    For ``portable`` past and new tokens go through all kinds of padding in turn, as in an encoder. For ``cpu`` they
    are the three kinds of calls that :func:`~edgebert_exporters.graphs.signatures.decoder_signature` names.
    """
    rng = np.random.default_rng(seed)
    pasts = Pasts([spec for spec in inputs if spec.name.startswith(PAST)], seed)
    made = calls_without_gaps(max_tokens) if target == "cpu" else calls_with_padding(max_tokens)
    for call in made:
        size, past, new = call
        old_mask, new_mask = call_masks(call, target, rng)
        mask = np.concatenate([old_mask, new_mask], 1)
        feeds = {
            "input_ids": rng.integers(0, vocab_size, (size, new)),
            "attention_mask": mask,
            "logits_indices": choose(new_mask, rng),
            "top_k": np.array([min(BEST, vocab_size)]),
            **pasts.make(size, past),
        }
        kinds = "/".join("".join(map(str, row)) if len(row) <= 9 else f"{row.sum()} of {len(row)}" for row in mask)
        yield Batch(f"batch {size} x past {past} x new {new}, mask {kinds}", feeds)


Call = tuple[int, int, int]  # rows, columns of the past, columns of new tokens


def lengths(max_tokens: int, new: int) -> list[int]:
    """Return the lengths of pasts that come before ``new`` tokens: none, one, several, all that there is room for."""
    return sorted({past for past in (0, 1, 6, max_tokens - new) if 0 <= past <= max_tokens - new})


def calls_with_padding(max_tokens: int) -> list[Call]:
    """Return every batch size with every number of new tokens after every length of past."""
    news = sorted({new for new in (1, 2, 7, max_tokens) if new <= max_tokens})
    calls = [(size, past, new) for new in news for past in lengths(max_tokens, new) for size in BATCHES]
    return [call for call in calls if fits(call)]


def calls_without_gaps(max_tokens: int) -> list[Call]:
    """Return those of the calls that the kernel for the target cpu takes."""
    return [call for call in calls_with_padding(max_tokens) if call[1] == 0 or call[2] == 1 or call[0] == 1]


def fits(call: Call) -> bool:
    """Say whether a call is small enough for the grid."""
    size, past, new = call
    return size == 1 or size * (past + new) <= MAX_COLUMNS


def call_masks(call: Call, target: str, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return the masks (rows, columns) of the past and of the new tokens."""
    size, past, new = call
    old_mask, new_mask = np.ones((size, past), np.int64), np.ones((size, new), np.int64)
    start = int(rng.integers(len(PADDINGS)))
    for row in range(size):
        kind, other = (PADDINGS[(start + offset + row) % len(PADDINGS)] for offset in (0, 2))
        if past > 1 and (target == "portable" or size > 1):
            old_mask[row] = mask_row(kind, past, rng)
        if target == "portable":
            new_mask[row] = mask_row(other, new, rng)
        elif past == 0:
            new_mask[row, rng.integers(1, new + 1) :] = 0  # one token at least
    return old_mask, new_mask
