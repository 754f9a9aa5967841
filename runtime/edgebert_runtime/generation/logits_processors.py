"""Logits processors that read the token history. Each edits ``scores`` (rows, vocab) in place.

Scores are logits, or in a beam search log-probabilities; -inf is a forbidden token. Each function equals the class of
its name in transformers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from edgebert_runtime.errors import InputError
from edgebert_runtime.generation.options import AllowedTokens
from edgebert_runtime.generation.step_model import NO_TOKEN, Floats, Ids, TokenHistory


def repetition_penalty(scores: Floats, history: TokenHistory, *, penalty: float) -> None:
    """Make tokens of the history less likely (Keskar et al., 2019, "CTRL").

    Scores below 0 are multiplied by ``penalty``, others divided; a token counts once however often it came. Without
    an encoder the prompt counts too.
    """
    tokens = history.tokens
    rows, columns = np.nonzero((tokens != NO_TOKEN) & (tokens < scores.shape[1]))
    ids = tokens[rows, columns]
    values = scores[rows, ids]
    scores[rows, ids] = np.where(values < 0, values * penalty, values / penalty)


def no_repeat_ngram(scores: Floats, history: TokenHistory, *, size: int) -> None:
    """Forbid tokens that would repeat an n-gram of ``size`` tokens."""
    tokens = history.tokens
    count = tokens.shape[1] - size + 1  # n-grams of the history
    if count <= 0:
        return
    last = tokens[:, size - 1 :]
    matches = (last != NO_TOKEN) & (last < scores.shape[1])
    for offset in range(size - 1):
        matches &= tokens[:, offset : offset + count] == tokens[:, count + offset, None]
    rows, columns = np.nonzero(matches)
    scores[rows, last[rows, columns]] = -np.inf


class Words(NamedTuple):
    """Token sequences of one length: all tokens but the last (n, length - 1), and the last (n,)."""

    beginnings: Ids
    lasts: Ids


def group_words(sequences: Sequence[Sequence[int]]) -> tuple[Words, ...]:
    """Group sequences of two or more tokens by length."""
    arrays = (np.array([s for s in sequences if len(s) == n], dtype=np.int64) for n in sorted(set(map(len, sequences))))
    return tuple(Words(array[:, :-1], array[:, -1]) for array in arrays)


def bad_words(scores: Floats, history: TokenHistory, *, words: tuple[Words, ...]) -> None:
    """Forbid the last token of each sequence after all the others of it."""
    for beginnings, lasts in words:
        length = beginnings.shape[1]
        if length <= history.tokens.shape[1]:
            matches = (history.tokens[:, None, -length:] == beginnings).all(axis=2)  # (rows, n)
            rows, which = np.nonzero(matches)
            scores[rows, lasts[which]] = -np.inf


def allowed_tokens(scores: Floats, history: TokenHistory, *, function: AllowedTokens) -> None:
    """Allow only the tokens that ``function`` returns for the prompt and the tokens so far.

    If other constraints forbid all of them in every row of a prompt, they get a score of 0.

    Raises:
        InputError: if it returns nothing, or no token ids.
    """
    masks = np.full_like(scores, -np.inf)
    for row, mask in enumerate(masks):
        prompt = int(history.prompts[row])
        mask[check_allowed(function(prompt, history.row(row)), prompt, scores.shape[1])] = 0
    scores += masks
    possible = np.zeros(int(history.prompts.max()) + 1, dtype=bool)
    np.logical_or.at(possible, history.prompts, scores.max(axis=1) > -np.inf)
    impossible = ~possible[history.prompts]
    scores[impossible] = masks[impossible]


def check_allowed(result: Iterable[int], prompt: int, vocab_size: int) -> Ids:
    """Make sure that a function returned tokens of the vocabulary."""
    ids = list(result) if isinstance(result, Iterable) else result
    array = np.asarray(ids)
    if (
        not array.size
        or array.ndim != 1
        or array.dtype.kind not in "iu"
        or array.min() < 0
        or array.max() >= vocab_size
    ):
        raise InputError(
            f"prefix_allowed_tokens_fn returned {ids!r:.60} for prompt {prompt}; it must name at least one token, by "
            f"ids from 0 to {vocab_size - 1}"
        )
    return array.astype(np.int64)
