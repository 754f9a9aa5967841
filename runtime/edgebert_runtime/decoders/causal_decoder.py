"""Step models of decoders: the rows of a KV cache, continued token by token."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from edgebert_runtime.decoders.causal_kv_cache import KVCache
from edgebert_runtime.decoders.causal_signature import LOGITS, TOP
from edgebert_runtime.decoders.kv_cache import Floats, Ints, Outputs
from edgebert_runtime.generation import TopK
from edgebert_runtime.inputs.batching import pad


def prefill(cache: KVCache, prompts: Sequence[Sequence[int]]) -> Floats:
    """Append a prompt to each row of a KV cache, and return the logits (rows, vocab) after it."""
    ids, mask = pad(prompts)
    counts = mask.sum(1)
    (logits,) = cache.run(ids, counts, np.arange(len(ids)) * ids.shape[1] + counts - 1)
    return logits


class DecoderStepModel(ABC):
    """A :class:`~edgebert_runtime.generation.TopKStepModel` over one run of a graph a step."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def step(self, parents: Ints, tokens: Ints) -> Floats:
        """Continue rows, and return logits (rows, vocab)."""
        (logits,) = self.run(parents, tokens, LOGITS, 1)
        return logits

    def step_top_k(self, parents: Ints, tokens: Ints, k: int) -> TopK:
        """Continue rows, and return the ``k`` best tokens."""
        return TopK(*self.run(parents, tokens, TOP, min(k, self.vocab_size)))

    @abstractmethod
    def run(self, parents: Ints, tokens: Ints, outputs: Sequence[str], top_k: int) -> Outputs:
        """Continue row ``parents[i]`` with ``tokens[i]``, and return the ``outputs`` named."""


class CausalDecoder(DecoderStepModel):
    """A decoder over its KV cache."""

    def __init__(self, cache: KVCache, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.cache = cache

    def run(self, parents: Ints, tokens: Ints, outputs: Sequence[str], top_k: int) -> Outputs:
        """Continue rows; see :class:`DecoderStepModel`."""
        self.cache.reorder(parents)
        rows = len(tokens)
        return self.cache.run(tokens[:, None], np.ones(rows, np.int64), np.arange(rows), outputs, top_k)
