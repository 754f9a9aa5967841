"""Change the scores of the next tokens by what came before. Each function edits ``scores`` (rows, vocab) in place.

Scores are logits, or in a beam search log-probabilities; -inf is a token that cannot come. What each function does is
what the class of that name does in transformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgebert_runtime.errors import InputError
from edgebert_runtime.generation.options import AllowedTokens
from edgebert_runtime.generation.step_model import Floats, Ids
from edgebert_runtime.generation.token_history import NO_TOKEN, History


def repetition_penalty(scores: Floats, history: History, *, penalty: float) -> None:
    """Make tokens of the history less likely (Keskar et al., 2019, "CTRL").

    Scores below 0 are multiplied by ``penalty``, others divided, once however often the token came. For a decoder
    without an encoder the prompt counts too.
    """
    tokens = history.tokens
    rows, columns = np.nonzero((tokens != NO_TOKEN) & (tokens < scores.shape[1]))
    ids = tokens[rows, columns]
    values = scores[rows, ids]
    scores[rows, ids] = np.where(values < 0, values * penalty, values / penalty)


def no_repeat_ngram(scores: Floats, history: History, *, size: int) -> None:
    """Forbid the tokens that would complete a sequence of ``size`` tokens which the row already has."""
    tokens = history.tokens
    count = tokens.shape[1] - size + 1  # of complete sequences of that size
    if count <= 0:
        return
    last = tokens[:, size - 1 :]
    matches = (last != NO_TOKEN) & (last < scores.shape[1])
    for place in range(size - 1):
        matches &= tokens[:, place : place + count] == tokens[:, count + place, None]
    rows, columns = np.nonzero(matches)
    scores[rows, last[rows, columns]] = -np.inf


class Words(NamedTuple):
    """Sequences of one length: all tokens but the last (n, length - 1), and the last (n,)."""

    beginnings: Ids
    lasts: Ids


def group_words(sequences: Sequence[Sequence[int]]) -> tuple[Words, ...]:
    """Sort sequences of two and more tokens by their lengths."""
    arrays = (np.array([s for s in sequences if len(s) == n], dtype=np.int64) for n in sorted(set(map(len, sequences))))
    return tuple(Words(array[:, :-1], array[:, -1]) for array in arrays)


def bad_words(scores: Floats, history: History, *, words: tuple[Words, ...]) -> None:
    """Forbid the last token of each sequence where the history ends with all that come before it."""
    for beginnings, lasts in words:
        length = beginnings.shape[1]
        if length <= history.tokens.shape[1]:
            matches = (history.tokens[:, None, -length:] == beginnings).all(axis=2)  # (rows, n)
            rows, which = np.nonzero(matches)
            scores[rows, lasts[which]] = -np.inf


def allowed_tokens(scores: Floats, history: History, *, function: AllowedTokens) -> None:
    """Forbid what ``function`` does not return for the prompt and the tokens so far.

    Where other rules leave nothing of it in any row of a prompt, that which it returns has a score of 0.

    Raises:
        InputError: if it returns nothing, or no token ids.
    """
    masks = np.full_like(scores, -np.inf)
    for row, mask in enumerate(masks):
        prompt = int(history.prompts[row])
        mask[check_allowed(list(function(prompt, history.row(row))), prompt, scores.shape[1])] = 0
    scores += masks
    possible = np.zeros(int(history.prompts.max()) + 1, dtype=bool)
    np.logical_or.at(possible, history.prompts, scores.max(axis=1) > -np.inf)
    stuck = ~possible[history.prompts]
    scores[stuck] = masks[stuck]


def check_allowed(ids: list[int], prompt: int, vocab_size: int) -> Ids:
    """Make sure that a function returned tokens that there are."""
    array = np.asarray(ids)
    if not ids or array.ndim != 1 or array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= vocab_size:
        raise InputError(
            f"prefix_allowed_tokens_fn returned {ids!r:.60} for prompt {prompt}; it must name at least one token, by "
            f"ids from 0 to {vocab_size - 1}"
        )
    return array.astype(np.int64)
