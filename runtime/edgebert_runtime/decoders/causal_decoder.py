"""The models that a search continues: rows of a cache, and one row that guesses ahead."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from edgebert_runtime.decoders.causal_kv_cache import Cache, Floats, Ints, Outputs
from edgebert_runtime.decoders.causal_signature import LOGITS, TOP
from edgebert_runtime.generation import Top
from edgebert_runtime.inputs.batching import pad

# Tokens of a draft at first, at least and at most, and the tokens before it that must have stood there before.
DRAFT, LEAST, MOST = 4, 2, 8
MATCH = 3


def prefill(cache: Cache, prompts: Sequence[Sequence[int]]) -> Floats:
    """Append a prompt to each row of a cache, and return the logits (rows, vocab) that follow."""
    ids, mask = pad(prompts)
    counts = mask.sum(1)
    (logits,) = cache.run(ids, counts, np.arange(len(ids)) * ids.shape[1] + counts - 1)
    return logits


class Continuing(ABC):
    """What a search continues, by one method; see :class:`~edgebert_runtime.generation.step_model.ContinuesTop`."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def advance(self, parents: Ints, tokens: Ints) -> Floats:
        """Continue rows, and return logits."""
        (logits,) = self.step(parents, tokens, LOGITS, 1)
        return logits

    def advance_top(self, parents: Ints, tokens: Ints, count: int) -> Top:
        """Continue rows, and return the best tokens."""
        return Top(*self.step(parents, tokens, TOP, min(count, self.vocab_size)))

    @abstractmethod
    def step(self, parents: Ints, tokens: Ints, outputs: Sequence[str], best: int) -> Outputs:
        """Continue rows, and return the ``outputs`` named, the ``best`` tokens in those."""


class Rows(Continuing):
    """Rows of a cache."""

    def __init__(self, cache: Cache, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.cache = cache

    def step(self, parents: Ints, tokens: Ints, outputs: Sequence[str], best: int) -> Outputs:
        """Continue rows, and return what is asked for."""
        self.cache.take(parents)
        rows = len(tokens)
        return self.cache.run(tokens[:, None], np.ones(rows, np.int64), np.arange(rows), outputs, best)


class Lookup(Rows):
    """One row that guesses what comes from what stood there before (Saxena, 2023, prompt lookup decoding).

    When the last tokens stand somewhere in the row already, those that followed there are computed along with the
    next token, which costs little more than the token alone. As long as the search then takes the very tokens that
    were guessed, what follows them is there. The search is not told, so that it gives the same in any mode. Drafts
    grow while they are right and shrink while they are wrong.
    """

    def __init__(self, cache: Cache, vocab_size: int, prompt: Sequence[int], room: int) -> None:
        super().__init__(cache, vocab_size)
        self.room = room
        self.tokens = list(prompt)
        self.places: dict[tuple[int, ...], int] = {}  # where the tokens after the last occurrence of a few start
        for end in range(MATCH, len(prompt)):
            self.places[tuple(prompt[end - MATCH : end])] = end
        self.draft: list[int] = []
        self.found: Outputs = []  # a row for the last token taken, and one for each of the draft
        self.size, self.steps = DRAFT, 0

    def step(self, parents: Ints, tokens: Ints, outputs: Sequence[str], best: int) -> Outputs:
        """Continue the row, and return what is asked for, which is the same in each call."""
        token = int(tokens[0])
        self.append(token)
        if self.draft and self.draft[0] == token:
            self.draft, self.found = self.draft[1:], [array[1:] for array in self.found]
            self.size = min(MOST, self.size + 1)
            return [array[:1] for array in self.found]
        if self.draft:
            self.size = max(LEAST, self.size - 1)
        # The row holds what the search took, the last token of it still missing.
        self.cache.keep(len(self.tokens) - 1)
        self.draft = self.guess()
        ids = np.array([[token, *self.draft]], np.int64)
        self.found = self.cache.run(ids, np.array([ids.size]), np.arange(ids.size), outputs, best)
        self.steps += 1
        return [array[:1] for array in self.found]

    def append(self, token: int) -> None:
        """Remember a token, and what came before it."""
        if len(self.tokens) >= MATCH:
            self.places[tuple(self.tokens[-MATCH:])] = len(self.tokens)
        self.tokens.append(token)

    def guess(self) -> list[int]:
        """Return the tokens that followed the last ones before."""
        place = self.places.get(tuple(self.tokens[-MATCH:]))
        room = self.room - len(self.tokens)
        return [] if place is None else self.tokens[place : place + max(0, min(self.size, room))]
