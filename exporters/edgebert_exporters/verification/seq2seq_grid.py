"""Verification batches of an encoder-decoder: sources, and targets under teacher forcing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgebert_exporters.inference.batch import Batch, choose
from edgebert_exporters.verification.decoder_grid import BEST
from edgebert_exporters.verification.encoder_grid import encoder_grid
from edgebert_runtime.bundle.manifest import Limits

# Lengths of targets, in turn. The longest sources come with a target of all positions.
TARGETS = (1, 2, 7)


def target_grid(limits: Limits, vocab_size: int, seed: int = 0) -> Iterator[Batch]:
    """Yield the sources of the encoder grid with targets.

    The targets of a batch have one length. ``vocab_size`` is theirs.
    """
    rng = np.random.default_rng(seed)
    for number, batch in enumerate(encoder_grid((), limits.vocab_size, limits.max_tokens, 1, seed)):
        size, source = batch.input_ids.shape
        length = min(TARGETS[number % len(TARGETS)], limits.max_tokens)
        if size == 1 and source == limits.max_tokens:
            length = source
        feeds = {
            "decoder_input_ids": rng.integers(0, vocab_size, (size, length)),
            "logits_indices": choose(np.ones((size, length), np.int64), rng),
            "top_k": np.array([min(BEST, vocab_size)]),
        }
        yield Batch(f"{batch.name}, target of {length}", {**batch.feeds, **feeds})
