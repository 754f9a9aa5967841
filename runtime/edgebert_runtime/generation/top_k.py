"""Top-k tokens and log-softmax, in pure functions.

Each row is finished before the next, so that it stays in the CPU's cache. Of equal scores the lowest id comes first.
A score of -inf or NaN is never among the best.
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


def top_indices(row: Floats, k: int) -> Ids:
    """Return the indices of the ``k`` largest numbers of ``row`` (n,), largest first."""
    if k == 1:
        index = int(row.argmax())
        return np.array([index] if row[index] > -np.inf else [], dtype=np.int64)
    least = lower_bound(row, k)
    candidates = np.flatnonzero(row >= least) if least > -np.inf else np.flatnonzero(row > -np.inf)
    return candidates[np.argsort(-row[candidates], kind="stable")[:k]]


def lower_bound(row: Floats, k: int) -> float:
    """Return a number that at least ``k`` numbers of ``row`` reach, and few more.

    One quick pass gives the maximum of each of many stripes. At least ``k`` numbers reach the k-th largest of these
    maxima, so that a few numbers are left to sort, not a vocabulary.
    """
    width = row.size // STRIPES
    maxima = row[: width * STRIPES].reshape(STRIPES, width).max(axis=0)
    return float(np.partition(maxima, -k)[-k]) if k <= width else -math.inf


def log_sum_exp(row: Floats, largest: np.float32, scratch: Floats) -> float:
    """Return log(sum(exp(row - largest))) of a ``row`` (n,); ``scratch`` (n,) is overwritten.

    Raises:
        EdgebertError: if the row holds infinity or NaN.
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
        indices = top_indices(row, ids.size)
        largest = row[indices[0]] if indices.size else np.float32(np.nan)
        total = log_sum_exp(row, largest, scratch)
        ids[: indices.size] = indices
        logprobs[: indices.size] = row[indices] - largest - total
    return top


def top_of_scores(scores: Floats, count: int) -> TopK:
    """Return the ``count`` best tokens of each row of log-probabilities ``scores`` (rows, vocab)."""
    top = empty_top(len(scores), min(count, scores.shape[1]))
    for row, ids, logprobs in zip(scores, *top, strict=True):
        indices = top_indices(row, ids.size)
        ids[: indices.size] = indices
        logprobs[: indices.size] = row[indices]
    return top


def empty_top(rows: int, count: int) -> TopK:
    """Return a :class:`TopK` without any token."""
    return TopK(np.zeros((rows, count), dtype=np.int64), np.full((rows, count), -np.inf, dtype=np.float32))


def log_softmax(logits: Floats) -> Floats:
    """Return the log-probabilities (rows, vocab) of all tokens, in a new array."""
    result = np.empty(logits.shape, dtype=np.float32)
    scratch = np.empty(logits.shape[1], dtype=np.float32)
    for row, out in zip(logits, result, strict=True):
        largest = row.max()
        total = log_sum_exp(row, largest, scratch)
        np.subtract(row, largest, out=out)
        out -= total
    return result


def log_norms(logits: Floats) -> Doubles:
    """Return log(sum(exp(row))) (rows,) of ``logits`` (rows, vocab)."""
    scratch = np.empty(logits.shape[1], dtype=np.float32)
    norms = [float(largest := row.max()) + log_sum_exp(row, largest, scratch) for row in logits]
    return np.array(norms, dtype=np.float64)
