"""Find the best spans of a context that was computed in windows. Pure functions.

Scores are sums of two logits here, so that equal ones stay equal and no certainty is too small to be told from others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.inputs.character_spans import trim_to_graphemes, word_keys
from edgebert_runtime.tasks.entity_aggregation import group

Doubles = NDArray[np.float64]
# Of starts and of ends: a logit for "no answer", then one for each context token of a window.
StartEndLogits = tuple[NDArray[Any], NDArray[Any]]


class Span(NamedTuple):
    """A span of characters with its score; spans sort best first, ties by position."""

    negative_score: float
    start: int
    end: int


@dataclass(frozen=True)
class Words:
    """The words of a text: each token's word, and the first and last token of each word, with tokens' ``offsets``."""

    text: str
    offsets: Sequence[tuple[int, int]]
    of_token: NDArray[np.int64]
    runs: Sequence[tuple[int, int]]

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Return the characters from one word to another; none if they are white space."""
        return trim_to_graphemes(self.text, self.offsets[self.runs[first][0]][0], self.offsets[self.runs[last][1]][1])


def read_words(text: str, word_ids: Sequence[int | None], offsets: Sequence[tuple[int, int]]) -> Words:
    """Group the tokens of a text into its words."""
    runs = group(word_keys(text, word_ids, offsets))
    lengths = [last - first + 1 for first, last in runs]
    return Words(text, offsets, np.repeat(np.arange(len(runs)), lengths), runs)


def log_normalizer(windows: Sequence[StartEndLogits]) -> float:
    """Return the log of the normalizer of the logits of a start and an end together.

    Probabilities of starts, and those of ends, sum to 1 over "no answer" and the context tokens of all windows.
    """
    total = 0.0
    for side in (0, 1):
        logits = np.concatenate([window[side] for window in windows]).astype(np.float64)
        total += float(logits.max() + np.log(np.exp(logits - logits.max()).sum()))
    return total


def no_answer_score(windows: Sequence[StartEndLogits]) -> float:
    """Return the score of "no answer": the lowest that a window gives it."""
    return min(float(start[0]) + float(end[0]) for start, end in windows)


def best_spans(
    windows: Sequence[tuple[int, int]], logits: Sequence[StartEndLogits], words: Words, top_k: int, max_tokens: int
) -> list[Span]:
    """Return the ``top_k`` best distinct spans of whole words, fewer only if there are no more.

    A span starts and ends with tokens of one window, at most ``max_tokens`` apart. It is then widened to their words.
    Its score is the best of its tokens'.
    """
    best: list[Span] = []
    for (first, _), (start, end) in zip(windows, logits, strict=True):
        table = pairs(start[1:].astype(np.float64), end[1:].astype(np.float64), max_tokens)
        bar = -best[-1].negative_score if len(best) == top_k else -np.inf
        if table.max() >= bar:
            best = distinct([*best, *widen(table, first, words, top_k, bar)])[:top_k]
    return best


def pairs(start: Doubles, end: Doubles, max_tokens: int) -> Doubles:
    """Return start[i] + end[i + k] at [i, k] for ``k < max_tokens``, minus infinity where there is no such end."""
    width = min(max_tokens, len(end))
    padded = np.concatenate((end, np.full(width - 1, -np.inf)))
    table: Doubles = start[:, None] + np.lib.stride_tricks.sliding_window_view(padded, width)
    return table


def widen(table: Doubles, first: int, words: Words, top_k: int, bar: float) -> list[Span]:
    """Return at least the ``top_k`` best distinct spans of a window's ``table``, if so many score at least ``bar``.

    ``first`` is the number of the window's first token. Most spans of tokens lie in the same few words. So a few of
    them are widened, and more until there are enough.
    """
    flat = table.ravel()
    count = 8 * top_k
    while True:
        cut = max(bar, np.partition(flat, -count)[-count]) if count < flat.size else bar
        chosen = np.flatnonzero((flat >= cut) & (flat > -np.inf))
        spans = distinct(read_spans(flat[chosen], chosen, table.shape[1], first, words))
        if len(spans) >= top_k or cut == bar:
            return spans
        count *= 8


def read_spans(scores: Doubles, chosen: NDArray[np.int64], width: int, first: int, words: Words) -> list[Span]:
    """Return the spans of characters of ``chosen`` places of a table, the best of those of the same two words."""
    start, length = np.divmod(chosen, width)
    left, right = words.of_token[first + start], words.of_token[first + start + length]
    order = np.argsort(-scores, kind="stable")
    _, firsts = np.unique((left * len(words.runs) + right)[order], return_index=True)
    order = order[firsts]
    triples = zip(scores[order].tolist(), left[order].tolist(), right[order].tolist(), strict=True)
    spans = (Span(-score, *words.span(first_word, last_word)) for score, first_word, last_word in triples)
    return [span for span in spans if span.start < span.end]


def distinct(spans: Sequence[Span]) -> list[Span]:
    """Sort spans, and keep the best of those of the same characters."""
    places: dict[tuple[int, int], Span] = {}
    for span in sorted(spans):
        places.setdefault(span[1:], span)
    return list(places.values())
