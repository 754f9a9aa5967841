"""The batches on which an encoder and its decoder must agree with their reference: sources, and targets as given."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgebert_exporters.inference.batch import Batch, choose
from edgebert_exporters.verification.decoder_grid import BEST
from edgebert_exporters.verification.encoder_grid import encoder_grid
from edgebert_runtime.bundle.manifest import Limits

# Lengths of targets, which take turns; one of all positions comes with the longest sources.
TARGETS = (1, 2, 7)


def target_grid(limits: Limits, vocab_size: int, seed: int = 0) -> Iterator[Batch]:
    """Yield the sources of the encoder grid, each batch with targets of one length.

    ``vocab_size`` is that of the targets. A single source also comes with a target that takes all positions.
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
