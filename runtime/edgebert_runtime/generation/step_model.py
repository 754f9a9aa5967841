"""What a search asks of a model, and nothing more."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Ids: TypeAlias = "NDArray[np.int64]"
Floats: TypeAlias = "NDArray[np.float32]"
Doubles: TypeAlias = "NDArray[np.float64]"
Bools: TypeAlias = "NDArray[np.bool_]"


class Top(NamedTuple):
    """The best next tokens of each row.

    ``ids`` (rows, k) are best first, of equal ones the lowest first. ``logprobs`` (rows, k) are -inf where a row has
    fewer than k tokens to choose from.
    """

    ids: Ids
    logprobs: Floats


class Continues(Protocol):
    """A batch of rows that can be continued, repeated, put into another order, and dropped."""

    def advance(self, parents: Ids, tokens: Ids) -> Floats:
        """Return logits (rows, vocab) of a new batch whose row i continues row ``parents[i]`` with ``tokens[i]``.

        ``parents`` (rows,) are rows of the batch before, the first of which are the prompts. Those that are missing
        have ended and need not be kept. The array that is returned is only read, and only until the next call.
        """


@runtime_checkable
class ContinuesTop(Continues, Protocol):
    """A model that can also choose the best tokens by itself, so that whole rows of logits never leave it."""

    def advance_top(self, parents: Ids, tokens: Ids, count: int) -> Top:
        """Do what ``advance`` does, and return the ``count`` best tokens with their log-probabilities."""
