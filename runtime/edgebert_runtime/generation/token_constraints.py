"""Which rules the options of a search set for the next token, in the order in which transformers applies them.

A rule is data where it can be: a :class:`Veto` or a :class:`Force` names tokens and the steps at which they cannot, or
must, come. As neither changes the order of the other tokens, a search that has only such rules needs a few of the best
tokens of each row, and never whole rows. The rest are functions over whole rows, from ``processors.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from edgebert_runtime.generation import logits_processors as processors
from edgebert_runtime.generation.options import Options
from edgebert_runtime.generation.step_model import Floats, Ids, Top
from edgebert_runtime.generation.token_history import History

MOST_SPARE = 64


@dataclass(frozen=True)
class Veto:
    """Tokens ``ids`` (n,) which cannot come at the steps from ``start`` to before ``end`` (prompts,), None for ever."""

    ids: Ids
    start: int = 0
    end: Ids | None = None

    def holds(self, history: History) -> Ids | slice:
        """Return the rows for which it holds now."""
        if history.generated < self.start:
            return slice(0, 0)
        return slice(None) if self.end is None else np.flatnonzero(history.generated < self.end[history.prompts])

    def __call__(self, scores: Floats, history: History) -> None:
        """Take the tokens out of ``scores`` (rows, vocab)."""
        rows = self.holds(history)
        scores[rows if isinstance(rows, slice) else rows[:, None], self.ids] = -np.inf

    def narrow(self, top: Top, history: History) -> None:
        """Take the tokens out of the best of each row."""
        rows = self.holds(history)
        hit = top.ids[rows, :, None] == self.ids
        if hit.any():
            top.logprobs[rows] = np.where(hit.any(axis=2), -np.inf, top.logprobs[rows])


@dataclass(frozen=True)
class Force:
    """Tokens ``ids`` (n,) of which one must come at step ``at`` (prompts,); their log-probability counts as 0."""

    ids: Ids
    at: Ids

    def holds(self, history: History) -> Ids:
        """Return the numbers of the rows for which it holds now."""
        return np.flatnonzero(history.generated == self.at[history.prompts])

    def __call__(self, scores: Floats, history: History) -> None:
        """Take all other tokens out of ``scores`` (rows, vocab)."""
        rows = self.holds(history)
        scores[rows] = -np.inf
        scores[rows[:, None], self.ids] = 0

    def narrow(self, top: Top, history: History) -> None:
        """Make the tokens the best of each row, and the only ones."""
        rows = self.holds(history)
        count = min(len(self.ids), top.ids.shape[1])
        top.logprobs[rows] = -np.inf
        top.logprobs[rows, :count] = 0
        top.ids[rows, :count] = self.ids[:count]


Edit: TypeAlias = Callable[[Floats, History], None]


@dataclass(frozen=True)
class Rules:
    """The rules of a search, in order. ``whole`` says whether any of them needs whole rows."""

    rules: tuple[Veto | Force | Edit, ...]

    @property
    def whole(self) -> bool:
        """Say whether a rule needs whole rows and their history, or so many tokens are vetoed that they cost less."""
        return self.spare > MOST_SPARE or not all(isinstance(rule, (Veto, Force)) for rule in self.rules)

    @property
    def spare(self) -> int:
        """The number of tokens which vetoes can take out of the best of a row."""
        return sum(len(rule.ids) for rule in self.rules if isinstance(rule, Veto))

    def apply(self, scores: Floats, history: History) -> None:
        """Apply all to ``scores`` (rows, vocab), in place."""
        for rule in self.rules:
            rule(scores, history)

    def narrow(self, top: Top, history: History, count: int) -> Top:
        """Return the ``count`` best tokens of each row that vetoes and forces leave of ``top``."""
        if not self.rules:
            return top
        top = Top(top.ids.copy(), top.logprobs.copy())
        for rule in self.rules:
            if isinstance(rule, (Veto, Force)):
                rule.narrow(top, history)
        gone = top.logprobs == -np.inf
        if not gone[:, :count].any():
            return Top(top.ids[:, :count], top.logprobs[:, :count])
        order = np.argsort(gone, axis=1, kind="stable")[:, :count]
        return Top(np.take_along_axis(top.ids, order, axis=1), np.take_along_axis(top.logprobs, order, axis=1))

    def forced(self, history: History) -> Ids:
        """Return the numbers of the rows whose next token is forced."""
        rows = [rule.holds(history) for rule in self.rules if isinstance(rule, Force)]
        return np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)


def rules_of(options: Options, lengths: Ids, room: Ids) -> Rules:
    """Return the rules for prompts of ``lengths`` (prompts,) which have ``room`` (prompts,) for new tokens."""
    return Rules(tuple([*edits(options), *vetoes(options, lengths), *forces(options, room)]))


def edits(options: Options) -> Iterator[Edit]:
    """Yield the rules that need whole rows."""
    if options.repetition_penalty not in (None, 1.0):
        yield partial(processors.repetition_penalty, penalty=options.repetition_penalty)
    if options.no_repeat_ngram_size:
        yield partial(processors.no_repeat_ngram, size=options.no_repeat_ngram_size)
    if words := processors.group_words([words for words in options.bad_words_ids if len(words) > 1]):
        yield partial(processors.bad_words, words=words)


def vetoes(options: Options, lengths: Ids) -> Iterator[Veto | Edit]:
    """Yield the rules that forbid tokens, among them the function that a caller gave."""
    eos = set(options.eos_token_id)
    if single := {words[0] for words in options.bad_words_ids if len(words) == 1} - eos:
        yield Veto(as_ids(single))
    least = options.min_new_tokens or np.maximum((options.min_length or 0) - lengths, 0)
    if np.any(least):
        yield Veto(as_ids(eos), 0, np.broadcast_to(least, lengths.shape))
    if options.prefix_allowed_tokens_fn is not None:
        yield partial(processors.allowed_tokens, function=options.prefix_allowed_tokens_fn)
    pad = set() if options.pad_token_id is None else {options.pad_token_id} - eos
    if never := pad | set(options.suppress_tokens):
        yield Veto(as_ids(never))
    if options.begin_suppress_tokens:
        begin = 0 if options.forced_bos_token_id is None else 1
        yield Veto(as_ids(options.begin_suppress_tokens), begin, np.full(len(lengths), begin + 1))


def forces(options: Options, room: Ids) -> Iterator[Force]:
    """Yield the rules that leave no choice. They come last: what is forced comes, whatever forbids it."""
    if options.forced_bos_token_id is not None:
        yield Force(as_ids([options.forced_bos_token_id]), np.zeros_like(room))
    if options.forced_eos_token_id:
        yield Force(as_ids(options.forced_eos_token_id), room - 1)


def as_ids(ids: Sequence[int] | set[int]) -> Ids:
    """Return token ids as an array (n,), in rising order."""
    return np.array(sorted(ids), dtype=np.int64)
