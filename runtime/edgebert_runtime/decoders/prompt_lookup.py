"""Prompt lookup decoding (Saxena, 2023): the text so far is the draft model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgebert_runtime.decoders.causal_decoder import CausalDecoder
from edgebert_runtime.decoders.causal_kv_cache import KVCache
from edgebert_runtime.decoders.kv_cache import Ints, Outputs

# Tokens of the first draft, of the shortest and of the longest.
DRAFT, LEAST, MOST = 4, 2, 8
# Tokens that must have occurred before, in this order, for a draft.
MATCH = 3


class PromptLookupDecoder(CausalDecoder):
    """A decoder of one row with speculative tokens from earlier text.

    When the last tokens occurred before, the tokens that followed them then become a draft. One run of the graph
    checks all of it. As long as the search takes the tokens of the draft, their outputs are there already. The
    search does not know, so results are the same in every mode. Drafts grow while right and shrink while wrong.
    """

    def __init__(self, cache: KVCache, vocab_size: int, prompt: Sequence[int], capacity: int) -> None:
        super().__init__(cache, vocab_size)
        self.capacity = capacity
        self.tokens = list(prompt)
        self.positions: dict[tuple[int, ...], int] = {}  # where the tokens after the last occurrence of MATCH start
        for end in range(MATCH, len(prompt)):
            self.positions[tuple(prompt[end - MATCH : end])] = end
        self.draft: list[int] = []
        self.draft_outputs: Outputs = []  # a row for the last token taken, and one for each of the draft
        self.draft_size, self.steps = DRAFT, 0

    def run(self, parents: Ints, tokens: Ints, outputs: Sequence[str], top_k: int) -> Outputs:
        """Continue the row; ``outputs`` and ``top_k`` are the same in each call."""
        token = int(tokens[0])
        if len(self.tokens) >= MATCH:
            self.positions[tuple(self.tokens[-MATCH:])] = len(self.tokens)
        self.tokens.append(token)
        if self.draft and self.draft[0] == token:
            self.draft, self.draft_outputs = self.draft[1:], [array[1:] for array in self.draft_outputs]
            self.draft_size = min(MOST, self.draft_size + 1)
            return [array[:1] for array in self.draft_outputs]
        if self.draft:
            self.draft_size = max(LEAST, self.draft_size - 1)
        # The KV cache keeps the tokens that the search took, without the last one.
        self.cache.crop(len(self.tokens) - 1)
        self.draft = self.next_draft()
        ids = np.array([[token, *self.draft]], np.int64)
        self.draft_outputs = self.cache.run(ids, np.array([ids.size]), np.arange(ids.size), outputs, top_k)
        self.steps += 1
        return [array[:1] for array in self.draft_outputs]

    def next_draft(self) -> list[int]:
        """Return the tokens that followed the last ``MATCH`` tokens before."""
        position = self.positions.get(tuple(self.tokens[-MATCH:]))
        size = max(0, min(self.draft_size, self.capacity - len(self.tokens)))
        return [] if position is None else self.tokens[position : position + size]
