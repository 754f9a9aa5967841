"""Between a search and its model: what the search asks for, what it yields, and the token history of its rows."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.generation.hypotheses import FinishReason, Hypothesis

Ids: TypeAlias = "NDArray[np.int64]"
Floats: TypeAlias = "NDArray[np.float32]"
Doubles: TypeAlias = "NDArray[np.float64]"
Bools: TypeAlias = "NDArray[np.bool_]"

NO_TOKEN = -1


class TopK(NamedTuple):
    """The k best next tokens of each row.

    ``ids`` (rows, k) are best first. Of equal ones the lowest id comes first. ``logprobs`` (rows, k) are -inf where
    a row has fewer than k possible tokens.
    """

    ids: Ids
    logprobs: Floats


class StepRequest(NamedTuple):
    """The next tokens of a search: row i continues row ``parents[i]`` with ``tokens[i]``, both (rows,).

    ``top_k`` is the number of best tokens to answer with, None for full logits. The rows of the first request continue
    the prompts. Rows that are no parent have ended.
    """

    parents: Ids
    tokens: Ids
    top_k: int | None


@dataclass(frozen=True)
class Step:
    """One new token of each running sequence.

    ``rows`` (n,) are the numbers of the sequences, in rising order: ``num_return_sequences`` for each prompt.
    ``tokens`` and ``logprobs`` (n,) are theirs. ``reasons`` say why they end, None if they go on. ``pieces`` are the
    text that is final now. All pieces of a sequence join to its text.
    """

    rows: Ids
    tokens: Ids
    logprobs: Floats
    reasons: tuple[FinishReason | None, ...]
    pieces: tuple[str, ...]


# A search yields requests, which are answered with logits (rows, vocab) or top-k tokens, and steps, which are not. It
# returns the hypotheses of each prompt. Arrays that it is sent are only read, and only until its next request.
Search: TypeAlias = "Generator[StepRequest | Step, Floats | TopK | None, list[list[Hypothesis]]]"


class StepModel(Protocol):
    """A batch of rows that can be continued, repeated, reordered and dropped."""

    def step(self, parents: Ids, tokens: Ids) -> Floats:
        """Return logits (rows, vocab) of a new batch whose row i continues row ``parents[i]`` with ``tokens[i]``.

        ``parents`` (rows,) are rows of the batch before. The rows of the first batch are the prompts. All other rows
        have ended. The array returned is only read, and only until the next call.
        """


@runtime_checkable
class TopKStepModel(StepModel, Protocol):
    """A model that can find the top-k tokens itself, so that full logits never leave it."""

    def step_top_k(self, parents: Ids, tokens: Ids, k: int) -> TopK:
        """Do the same as ``step``, and return the ``k`` best tokens with their log-probabilities."""


@dataclass(frozen=True)
class TokenHistory:
    """The tokens of each row after ``generated`` new tokens.

    ``prompts`` (rows,) is the number of each row's prompt. ``tokens`` (rows, width) are prompt and new tokens, aligned
    on the right and padded with ``NO_TOKEN``. They are empty without ``with_tokens``, when no processor reads them.
    """

    prompts: Ids
    generated: int
    tokens: Ids
    with_tokens: bool

    @classmethod
    def start(cls, prompts: Sequence[Sequence[int]], *, repeats: int = 1, with_tokens: bool = True) -> TokenHistory:
        """Return the history of prompts of any lengths, each ``repeats`` times in a row."""
        width = max(map(len, prompts)) if with_tokens else 0
        tokens = np.full((len(prompts), width), NO_TOKEN, dtype=np.int64)
        for row, prompt in zip(tokens, prompts if with_tokens else (), strict=False):
            row[width - len(prompt) :] = prompt
        numbers = np.arange(len(prompts), dtype=np.int64)
        return cls(np.repeat(numbers, repeats), 0, np.repeat(tokens, repeats, axis=0), with_tokens)

    def append(self, parents: Ids, tokens: Ids) -> TokenHistory:
        """Return the history of rows that continue the rows ``parents`` with ``tokens``."""
        columns = self.tokens
        if self.with_tokens:
            columns = np.concatenate([self.tokens[parents], tokens[:, None]], axis=1)
        return TokenHistory(self.prompts[parents], self.generated + 1, columns, self.with_tokens)

    def row(self, number: int) -> list[int]:
        """Return the tokens of one row, prompt and new ones."""
        tokens = self.tokens[number]
        return [int(token) for token in tokens[tokens != NO_TOKEN]]
