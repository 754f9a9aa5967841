"""The models that a search continues: rows of a cache, and one row that guesses ahead."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgebert_runtime.batching import pad
from edgebert_runtime.caches import Cache, Floats, Ints

# Tokens of a draft at first, at least and at most, and the tokens before it that must have stood there before.
DRAFT, LEAST, MOST = 4, 2, 8
MATCH = 3


def prefill(cache: Cache, prompts: Sequence[Sequence[int]]) -> Floats:
    """Append a prompt to each row of a cache, and return the logits (rows, vocab) that follow."""
    ids, mask = pad(prompts)
    counts = mask.sum(1)
    return cache.run(ids, counts, np.arange(len(ids)) * ids.shape[1] + counts - 1)


class Rows:
    """Rows of a cache, as a search continues them."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache

    def advance(self, parents: Ints, tokens: Ints) -> Floats:
        """Continue rows; see :class:`~edgebert_runtime.decoding.model.Continues`."""
        self.cache.take(parents)
        rows = len(tokens)
        return self.cache.run(tokens[:, None], np.ones(rows, np.int64), np.arange(rows))


class Lookup:
    """One row that guesses what comes from what stood there before (Saxena, 2023, prompt lookup decoding).

    When the last tokens stand somewhere in the row already, those that followed there are computed along with the
    next token, which costs little more than the token alone. As long as the search then takes the very tokens that
    were guessed, their logits are there. The search is not told, so that it gives the same in any mode. Drafts grow
    while they are right and shrink while they are wrong.
    """

    def __init__(self, cache: Cache, prompt: Sequence[int], room: int) -> None:
        self.cache, self.room = cache, room
        self.tokens = list(prompt)
        self.places: dict[tuple[int, ...], int] = {}  # where the tokens after the last occurrence of a few start
        for end in range(MATCH, len(prompt)):
            self.places[tuple(prompt[end - MATCH : end])] = end
        self.draft: list[int] = []
        self.logits = np.zeros((0, 0), np.float32)
        self.size, self.steps = DRAFT, 0

    def advance(self, parents: Ints, tokens: Ints) -> Floats:
        """Continue the row; see :class:`~edgebert_runtime.decoding.model.Continues`."""
        token = int(tokens[0])
        self.append(token)
        if self.draft and self.draft[0] == token:
            self.draft, self.logits = self.draft[1:], self.logits[1:]
            self.size = min(MOST, self.size + 1)
            return self.logits[:1]
        if self.draft:
            self.size = max(LEAST, self.size - 1)
        # The row holds what the search took, the last token of it still missing.
        self.cache.keep(len(self.tokens) - 1)
        self.draft = self.guess()
        ids = np.array([[token, *self.draft]], np.int64)
        self.logits = self.cache.run(ids, np.array([ids.size]), np.arange(ids.size)).copy()
        self.steps += 1
        return self.logits[:1]

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
