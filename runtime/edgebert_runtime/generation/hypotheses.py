"""Finished sequences, their score, and the finished beams of a prompt."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

FinishReason = Literal["stop", "stop_string", "length"]


@dataclass(frozen=True)
class Hypothesis:
    """A continuation of a prompt.

    ``tokens`` are the new ones. ``finish_reason`` is ``stop`` after an end-of-sequence token. That token is then the
    last of ``tokens``. It is ``stop_string`` after a stop string, ``length`` at the limit of tokens.

    ``token_logprobs`` are natural logarithms of the probabilities that the model gave to ``tokens``, before any logits
    processor. There are two exceptions. A forced token counts 0. In a beam search, as in transformers,
    ``repetition_penalty`` multiplies those of repeated tokens.

    ``score`` is ``sum(token_logprobs) / len(tokens) ** length_penalty``; without beams ``length_penalty`` is 1. The
    token that ends a sequence counts in the sum and in the length.
    """

    tokens: tuple[int, ...]
    token_logprobs: tuple[float, ...]
    score: float
    finish_reason: FinishReason

    @classmethod
    def of(
        cls, tokens: Sequence[int], logprobs: Sequence[float], reason: FinishReason, length_penalty: float = 1.0
    ) -> Hypothesis:
        """Score ``tokens`` by their log-probabilities."""
        score = sequence_score(math.fsum(logprobs), len(tokens), length_penalty)
        return cls(tuple(tokens), tuple(logprobs), score, reason)


def sequence_score(total: float, length: int, length_penalty: float) -> float:
    """Return the score of ``length`` tokens whose log-probabilities sum to ``total``."""
    return total / math.pow(length, length_penalty)


class FinishedBeam(NamedTuple):
    """The end of a beam: at step ``step``, ``token`` continued ``row``."""

    step: int
    row: int
    token: int
    logprob: float
    reason: FinishReason


@dataclass
class BeamHypotheses:
    """The ``size`` best finished beams of a prompt, best first.

    Of equal scores the first one finished comes first. ``early_stopping`` decides when a full list is final. True: at
    once. False: when the best running beam, finished now, would not beat the worst of the list. "never": when it could
    not beat it at any length up to ``max_new_tokens``. With a negative ``length_penalty`` the last two are the same, as
    in transformers.
    """

    size: int
    length_penalty: float
    early_stopping: bool | Literal["never"]
    max_new_tokens: int
    finished: list[tuple[float, FinishedBeam]] = field(default_factory=list)

    def add(self, total: float, beam: FinishedBeam) -> None:
        """Add a beam whose log-probabilities sum to ``total``, if it is among the best."""
        score = sequence_score(total, beam.step + 1, self.length_penalty)
        bisect.insort(self.finished, (score, beam), key=lambda item: -item[0])
        del self.finished[self.size :]

    def is_final(self, best_total: float, length: int) -> bool:
        """Say whether the search is over, given the best running beam."""
        if len(self.finished) < self.size:
            return False
        if self.early_stopping is True:
            return True
        at_any_length = self.early_stopping == "never" and self.length_penalty > 0
        best = sequence_score(best_total, self.max_new_tokens if at_any_length else length, self.length_penalty)
        return best <= self.finished[-1][0]
