"""What a search finds, and the one formula of its score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "stop_string", "length"]


@dataclass(frozen=True)
class Hypothesis:
    """A continuation of a prompt.

    ``tokens`` are the new ones; an end-of-sequence token that ended them is the last. ``finish_reason`` is ``stop``
    after such a token, ``stop_string`` after a stop string, ``length`` where there was no room for more.

    ``token_logprobs`` are the natural logarithms of the probabilities that the model itself gave to ``tokens``,
    before options changed them. There are two exceptions: a token that was forced counts 0, and in a beam search, as
    in transformers, ``repetition_penalty`` multiplies those of tokens that were there before.

    ``score`` is ``sum(token_logprobs) / len(tokens) ** length_penalty`` in every mode; without beams ``length_penalty``
    is 1. The token that ends a sequence counts like every other, in the sum and in the length.
    """

    tokens: tuple[int, ...]
    token_logprobs: tuple[float, ...]
    score: float
    finish_reason: FinishReason

    @classmethod
    def of(
        cls, tokens: Sequence[int], logprobs: Sequence[float], reason: FinishReason, length_penalty: float
    ) -> Hypothesis:
        """Score ``tokens`` by their log-probabilities."""
        return cls(tuple(tokens), tuple(logprobs), normalised(math.fsum(logprobs), len(tokens), length_penalty), reason)


def normalised(total: float, length: int, length_penalty: float) -> float:
    """Return the score of ``length`` tokens whose log-probabilities sum to ``total``."""
    return total / math.pow(length, length_penalty)
