"""The finished hypotheses of one prompt in a beam search, and whether more can be expected."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from edgebert_runtime.generation.hypothesis import FinishReason, normalised


class End(NamedTuple):
    """The end of a hypothesis: at step ``step``, ``row`` is continued with ``token``."""

    step: int
    row: int
    token: int
    logprob: float
    reason: FinishReason


@dataclass
class Pool:
    """The best ``size`` finished hypotheses, best first; of equal ones that which came first.

    ``early_stopping`` says when a full pool is final. True: at once. False: when the best of those that go on, if it
    ended now, would be no better than the worst here. "never": when it could not become better at any length up to
    ``room``. With a negative ``length_penalty`` the last two are the same, as in transformers.
    """

    size: int
    length_penalty: float
    early_stopping: bool | Literal["never"]
    room: int
    found: list[tuple[float, End]] = field(default_factory=list)

    @property
    def full(self) -> bool:
        """Say whether it holds as many as it can."""
        return len(self.found) == self.size

    def add(self, total: float, end: End) -> None:
        """Add a hypothesis whose log-probabilities sum to ``total``, if it is among the best."""
        score = normalised(total, end.step + 1, self.length_penalty)
        bisect.insort(self.found, (score, end), key=lambda item: -item[0])
        del self.found[self.size :]

    def final(self, best: float, length: int) -> bool:
        """Say whether the search is over; ``best`` is the largest sum of those that go on, ``length`` theirs."""
        if not self.full:
            return False
        if self.early_stopping is True:
            return True
        longest = self.room if self.early_stopping == "never" and self.length_penalty > 0 else length
        return normalised(best, longest, self.length_penalty) <= self.found[-1][0]
