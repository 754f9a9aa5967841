"""Verification batches of a decoder: prompts, and new tokens after a past.

The KV cache has a column for each column of the mask, as in the reference, whatever the target;
:mod:`edgebert_exporters.inference.decoder_adapter` turns it into the cache of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from edgebert_exporters.inference.batch import PADDINGS, Batch, Ints, choose, mask_row
from edgebert_exporters.inference.random_past import RandomPast
from edgebert_exporters.verification.encoder_grid import BATCHES
from edgebert_runtime.bundle.manifest import TensorSpec
from edgebert_runtime.decoders.causal_signature import PAST

# Rows times columns at most, single rows excepted: five full contexts say no more than two, and take gigabytes.
MAX_COLUMNS = 2048
# The ``top_k`` that is asked for.
BEST = 5


def decoder_grid(
    inputs: Sequence[TensorSpec], vocab_size: int, max_tokens: int, target: str, seed: int = 0
) -> Iterator[Batch]:
    """Yield batches of 1, 2 and 5 rows with pasts and new tokens.

    For ``portable`` past and new tokens go through all kinds of padding in turn. For ``cpu`` they are the three kinds
    of calls of :func:`~edgebert_exporters.graphs.signatures.decoder_signature`.
    """
    rng = np.random.default_rng(seed)
    pasts = RandomPast([spec for spec in inputs if spec.name.startswith(PAST)], seed)
    for call in calls_without_gaps(max_tokens) if target == "cpu" else calls_with_padding(max_tokens):
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


def past_lengths(max_tokens: int, new: int) -> list[int]:
    """Return none, one, several and all tokens of past before ``new`` ones."""
    return sorted({past for past in (0, 1, 6, max_tokens - new) if 0 <= past <= max_tokens - new})


def calls_with_padding(max_tokens: int) -> list[Call]:
    """Return all combinations of batch size, past and new tokens."""
    news = sorted({new for new in (1, 2, 7, max_tokens) if new <= max_tokens})
    calls = [(size, past, new) for new in news for past in past_lengths(max_tokens, new) for size in BATCHES]
    return [(size, past, new) for size, past, new in calls if size == 1 or size * (past + new) <= MAX_COLUMNS]


def calls_without_gaps(max_tokens: int) -> list[Call]:
    """Return the calls that the attention kernel of the target ``cpu`` takes."""
    return [call for call in calls_with_padding(max_tokens) if call[1] == 0 or call[2] == 1 or call[0] == 1]


def call_masks(call: Call, target: str, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return the masks (rows, columns) of the past and of the new tokens."""
    size, past, new = call
    old_mask, new_mask = np.ones((size, past), np.int64), np.ones((size, new), np.int64)
    start = int(rng.integers(len(PADDINGS)))
    for row in range(size):
        old_padding, new_padding = (PADDINGS[(start + offset + row) % len(PADDINGS)] for offset in (0, 2))
        if past > 1 and (target == "portable" or size > 1):
            old_mask[row] = mask_row(old_padding, past, rng)
        if target == "portable":
            new_mask[row] = mask_row(new_padding, new, rng)
        elif past == 0:
            new_mask[row, rng.integers(1, new + 1) :] = 0  # one token at least
    return old_mask, new_mask
