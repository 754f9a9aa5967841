"""Find the best of many scores, and their log-probabilities. Pure functions.

A row is worked on as a whole before the next, so that its vocabulary stays in the processor's cache. Of equal scores
the one with the lowest id is better. A score of -inf, or one that is no number, is never among the best.
"""

from __future__ import annotations

import math

import numpy as np

from edgebert_runtime.errors import EdgebertError
from edgebert_runtime.generation.step_model import Doubles, Floats, Ids, TopK

STRIPES = 64


def not_finite() -> EdgebertError:
    """Return the error for logits that are infinite or not numbers."""
    return EdgebertError("the model gave logits that are not finite numbers; verify the bundle, or export it in fp32")


def best_places(row: Floats, count: int) -> Ids:
    """Return the places of the ``count`` largest numbers of ``row`` (n,), largest first, or of as many as there are."""
    if count == 1:
        place = int(row.argmax())
        return np.array([place] if row[place] > -np.inf else [], dtype=np.int64)
    least = lower_bound(row, count)
    found = np.flatnonzero(row >= least) if least > -np.inf else np.flatnonzero(row > -np.inf)
    return found[np.argsort(-row[found], kind="stable")[:count]]


def lower_bound(row: Floats, count: int) -> float:
    """Return a number which at least ``count`` of ``row`` reach, and not many more.

    The largest of each of many stripes is at hand after one quick pass, and at least ``count`` numbers reach the one
    that comes at place ``count`` among those. What is left to sort is then a few numbers, not a vocabulary.
    """
    width = row.size // STRIPES
    maxima = row[: width * STRIPES].reshape(STRIPES, width).max(axis=0)
    return float(np.partition(maxima, -count)[-count]) if count <= width else -math.inf


def log_sum_exp(row: Floats, largest: np.float32, scratch: Floats) -> float:
    """Return log(sum(exp(row - largest))) of a ``row`` (n,) whose largest number is known.

    ``scratch`` (n,) is overwritten.

    Raises:
        EdgebertError: if the row holds infinity, or what is not a number.
    """
    if abs(largest) < np.inf:
        np.subtract(row, largest, out=scratch)
        np.exp(scratch, out=scratch)
        total = scratch.sum()
        if total < np.inf:
            return math.log(total)
    raise not_finite()


def top_of_logits(logits: Floats, count: int) -> TopK:
    """Return the ``count`` best tokens of each row of ``logits`` (rows, vocab) with their log-probabilities."""
    top = empty_top(len(logits), min(count, logits.shape[1]))
    scratch = np.empty(logits.shape[1], dtype=np.float32)
    for row, ids, logprobs in zip(logits, *top, strict=True):
        places = best_places(row, ids.size)
        largest = row[places[0]] if places.size else np.float32(np.nan)
        total = log_sum_exp(row, largest, scratch)
        ids[: places.size] = places
        logprobs[: places.size] = row[places] - largest - total
    return top


def top_of_scores(scores: Floats, count: int) -> TopK:
    """Return the ``count`` best tokens of each row of ``scores`` (rows, vocab), which are log-probabilities already."""
    top = empty_top(len(scores), min(count, scores.shape[1]))
    for row, ids, logprobs in zip(scores, *top, strict=True):
        places = best_places(row, ids.size)
        ids[: places.size] = places
        logprobs[: places.size] = row[places]
    return top


def empty_top(rows: int, count: int) -> TopK:
    """Return a TopK without any token in it."""
    return TopK(np.zeros((rows, count), dtype=np.int64), np.full((rows, count), -np.inf, dtype=np.float32))


def log_softmax(logits: Floats) -> Floats:
    """Return the log-probabilities (rows, vocab) of all tokens, as an array of their own."""
    result = np.empty(logits.shape, dtype=np.float32)
    scratch = np.empty(logits.shape[1], dtype=np.float32)
    for row, out in zip(logits, result, strict=True):
        largest = row.max()
        total = log_sum_exp(row, largest, scratch)
        np.subtract(row, largest, out=out)
        out -= total
    return result


def log_norms(logits: Floats) -> Doubles:
    """Return log(sum(exp(row))) (rows,) of ``logits`` (rows, vocab): what makes log-probabilities of them."""
    scratch = np.empty(logits.shape[1], dtype=np.float32)
    norms = [float(largest := row.max()) + log_sum_exp(row, largest, scratch) for row in logits]
    return np.array(norms, dtype=np.float64)
