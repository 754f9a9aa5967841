"""What each row of a batch has been given and has produced so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgebert_runtime.generation.step_model import Ids

NO_TOKEN = -1


@dataclass(frozen=True)
class History:
    """The rows of a batch after ``generated`` new tokens each.

    ``prompts`` (rows,) is the number of each row's prompt. ``tokens`` (rows, width) are prompt and new tokens with the
    newest in the last column; shorter rows begin with ``NO_TOKEN``, which no token is equal to. It stays empty where
    ``kept`` is False, as nobody reads it.
    """

    prompts: Ids
    generated: int
    tokens: Ids
    kept: bool

    @classmethod
    def start(cls, prompts: Sequence[Sequence[int]], *, repeats: int = 1, kept: bool = True) -> History:
        """Return that of prompts of any lengths, each ``repeats`` times in a row."""
        width = max(map(len, prompts)) if kept else 0
        tokens = np.full((len(prompts), width), NO_TOKEN, dtype=np.int64)
        for row, prompt in zip(tokens, prompts if kept else (), strict=False):
            row[width - len(prompt) :] = prompt
        numbers = np.arange(len(prompts), dtype=np.int64)
        return cls(np.repeat(numbers, repeats), 0, np.repeat(tokens, repeats, axis=0), kept)

    def continued(self, parents: Ids, tokens: Ids) -> History:
        """Return that of rows which continue the rows ``parents`` with ``tokens``."""
        history = np.concatenate([self.tokens[parents], tokens[:, None]], axis=1) if self.kept else self.tokens
        return History(self.prompts[parents], self.generated + 1, history, self.kept)

    def row(self, number: int) -> list[int]:
        """Return the tokens of one row, prompt and new ones."""
        tokens = self.tokens[number]
        return [int(token) for token in tokens[tokens != NO_TOKEN]]
