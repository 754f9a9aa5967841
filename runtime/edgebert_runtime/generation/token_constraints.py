"""The constraints of the next token, in the order of transformers.

:class:`SuppressTokens` and :class:`ForceTokens` are data: token ids, and the steps at which they hold. They keep the
order of the other tokens, so a search with only these needs a few top-k tokens and never full logits. All others are
functions over full logits, from ``logits_processors.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np

from edgebert_runtime.generation import logits_processors as processors
from edgebert_runtime.generation.options import Options
from edgebert_runtime.generation.step_model import Floats, Ids, TokenHistory, TopK
from edgebert_runtime.generation.top_k import not_finite

# With more suppressed tokens than this, full logits are faster than a longer top-k.
MAX_EXTRA_CANDIDATES = 64


@dataclass(frozen=True)
class SuppressTokens:
    """Forbid tokens ``ids`` (n,) from step ``start`` to before step ``end`` (prompts,), None for ever."""

    ids: Ids
    start: int = 0
    end: Ids | None = None

    def active_rows(self, history: TokenHistory) -> Ids | slice:
        """Return the rows for which it holds now."""
        if history.generated < self.start:
            return slice(0, 0)
        return slice(None) if self.end is None else np.flatnonzero(history.generated < self.end[history.prompts])

    def __call__(self, scores: Floats, history: TokenHistory) -> None:
        """Set the tokens to -inf in ``scores`` (rows, vocab)."""
        rows = self.active_rows(history)
        scores[rows if isinstance(rows, slice) else rows[:, None], self.ids] = -np.inf

    def filter_top_k(self, top: TopK, history: TokenHistory) -> None:
        """Set the tokens to -inf among the best of each row."""
        rows = self.active_rows(history)
        matches = top.ids[rows, :, None] == self.ids
        if matches.any():
            top.logprobs[rows] = np.where(matches.any(axis=2), -np.inf, top.logprobs[rows])


@dataclass(frozen=True)
class ForceTokens:
    """Allow only tokens ``ids`` (n,) at step ``at`` (prompts,); their log-probability counts as 0."""

    ids: Ids
    at: Ids

    def active_rows(self, history: TokenHistory) -> Ids:
        """Return the numbers of the rows for which it holds now."""
        return np.flatnonzero(history.generated == self.at[history.prompts])

    def __call__(self, scores: Floats, history: TokenHistory) -> None:
        """Set all other tokens to -inf in ``scores`` (rows, vocab)."""
        rows = self.active_rows(history)
        scores[rows] = -np.inf
        scores[rows[:, None], self.ids] = 0

    def filter_top_k(self, top: TopK, history: TokenHistory) -> None:
        """Make the tokens the best of each row, and the only ones."""
        rows = self.active_rows(history)
        count = min(len(self.ids), top.ids.shape[1])
        top.logprobs[rows] = -np.inf
        top.logprobs[rows, :count] = 0
        top.ids[rows, :count] = self.ids[:count]


LogitsProcessor: TypeAlias = Callable[[Floats, TokenHistory], None]


@dataclass(frozen=True)
class TokenConstraints:
    """The constraints of a search, in order."""

    constraints: tuple[SuppressTokens | ForceTokens | LogitsProcessor, ...]

    @classmethod
    def from_options(cls, options: Options, lengths: Ids, max_new_tokens: Ids) -> TokenConstraints:
        """Read the constraints for prompts of ``lengths`` (prompts,) and ``max_new_tokens`` (prompts,) to come."""
        return cls((*history_processors(options), *suppressions(options, lengths), *forced(options, max_new_tokens)))

    @cached_property
    def needs_full_logits(self) -> bool:
        """Whether top-k tokens are not enough.

        A constraint may be a function over full logits, or suppress too many tokens.
        """
        return self.extra_candidates > MAX_EXTRA_CANDIDATES or not all(
            isinstance(constraint, (SuppressTokens, ForceTokens)) for constraint in self.constraints
        )

    @cached_property
    def extra_candidates(self) -> int:
        """The number of tokens that suppression can remove from the top-k of a row."""
        return sum(len(constraint.ids) for constraint in self.constraints if isinstance(constraint, SuppressTokens))

    def apply(self, scores: Floats, history: TokenHistory) -> None:
        """Apply all constraints to ``scores`` (rows, vocab), in place."""
        for constraint in self.constraints:
            constraint(scores, history)

    def filter_top_k(self, top: TopK, history: TokenHistory, k: int) -> TopK:
        """Return the ``k`` best allowed tokens of each row.

        Raises:
            EdgebertError: if a log-probability is infinite or not a number.
        """
        if not (top.logprobs < math.inf).all():
            raise not_finite()
        if not self.constraints:
            return top
        top = TopK(top.ids.copy(), top.logprobs.copy())
        for constraint in self.constraints:
            if isinstance(constraint, (SuppressTokens, ForceTokens)):
                constraint.filter_top_k(top, history)
        removed = top.logprobs == -np.inf
        if not removed[:, :k].any():
            return TopK(top.ids[:, :k], top.logprobs[:, :k])
        order = np.argsort(removed, axis=1, kind="stable")[:, :k]
        return TopK(np.take_along_axis(top.ids, order, axis=1), np.take_along_axis(top.logprobs, order, axis=1))

    def forced_rows(self, history: TokenHistory) -> Ids:
        """Return the numbers of the rows whose next token is forced."""
        rows = [force.active_rows(history) for force in self.constraints if isinstance(force, ForceTokens)]
        return np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)


def history_processors(options: Options) -> Iterator[LogitsProcessor]:
    """Yield the processors that read the token history."""
    if options.repetition_penalty not in (None, 1.0):
        yield partial(processors.repetition_penalty, penalty=options.repetition_penalty)
    if options.no_repeat_ngram_size:
        yield partial(processors.no_repeat_ngram, size=options.no_repeat_ngram_size)
    if sequences := [words for words in options.bad_words_ids if len(words) > 1]:
        yield partial(processors.bad_words, words=processors.group_words(sequences))


def suppressions(options: Options, lengths: Ids) -> Iterator[SuppressTokens | LogitsProcessor]:
    """Yield the constraints that forbid tokens, ``prefix_allowed_tokens_fn`` among them."""
    eos = set(options.eos_token_id)
    if single := {words[0] for words in options.bad_words_ids if len(words) == 1} - eos:
        yield SuppressTokens(as_ids(single))
    least = options.min_new_tokens or np.maximum((options.min_length or 0) - lengths, 0)
    if np.any(least):
        yield SuppressTokens(as_ids(eos), 0, np.broadcast_to(least, lengths.shape))
    if options.prefix_allowed_tokens_fn is not None:
        yield partial(processors.allowed_tokens, function=options.prefix_allowed_tokens_fn)
    if options.suppress_tokens:
        yield SuppressTokens(as_ids(options.suppress_tokens))
    if options.begin_suppress_tokens:
        begin = 0 if options.forced_bos_token_id is None else 1
        yield SuppressTokens(as_ids(options.begin_suppress_tokens), begin, np.full(len(lengths), begin + 1))


def forced(options: Options, max_new_tokens: Ids) -> Iterator[ForceTokens]:
    """Yield the constraints that force tokens. They come last, so no suppression holds against them."""
    if options.forced_bos_token_id is not None:
        yield ForceTokens(as_ids([options.forced_bos_token_id]), np.zeros_like(max_new_tokens))
    if options.forced_eos_token_id:
        yield ForceTokens(as_ids(options.forced_eos_token_id), max_new_tokens - 1)


def as_ids(ids: Sequence[int] | set[int]) -> Ids:
    """Return token ids as an array (n,), in rising order."""
    return np.array(sorted(ids), dtype=np.int64)
