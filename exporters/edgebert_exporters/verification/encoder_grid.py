"""Verification batches of an encoder: every size and length at which exports go wrong, with every padding."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from edgebert_exporters.inference.batch import PADDINGS, Batch, choose, mask_row

BATCHES = (1, 2, 5)


def encoder_grid(
    inputs: Collection[str], vocab_size: int, max_tokens: int, type_vocab_size: int, seed: int = 0
) -> Iterator[Batch]:
    """Yield batches of 1, 2 and 5 rows of 1, 2, 7 and ``max_tokens`` tokens.

    The rows go through the kinds of padding in turn, starting from each kind: every kind is met alone and beside
    every other. The longest batches start from the first kind only.
    """
    rng = np.random.default_rng(seed)
    for length in sorted({n for n in (1, 2, 7, max_tokens) if n <= max_tokens}):
        for size in BATCHES:
            starts = range(len(PADDINGS)) if length < max_tokens and size < len(PADDINGS) else range(1)
            for start in starts:
                kinds = [PADDINGS[(start + row) % len(PADDINGS)] for row in range(size)]
                mask = np.stack([mask_row(kind, length, rng) for kind in kinds])
                feeds = {"input_ids": rng.integers(0, vocab_size, mask.shape), "attention_mask": mask}
                if "token_type_ids" in inputs:
                    feeds["token_type_ids"] = rng.integers(0, type_vocab_size, mask.shape)
                if "pooling_mask" in inputs:
                    feeds["pooling_mask"] = rng.integers(0, 2, mask.shape)
                if "logits_indices" in inputs:
                    feeds["logits_indices"] = choose(mask, rng)
                yield Batch(f"batch {size} x length {length}, padding {'/'.join(kinds)}", feeds)
