"""Sampling: shape the distribution of each row, and draw from it.

``temperature``, ``top_p``, ``min_p`` and ``typical_p`` edit ``scores`` (rows, n) in place, as transformers' logits
warpers do. Scores are logits up to a constant. The best token of each row always stays, and so do all tokens that
equal the last one inside a limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgebert_runtime.generation.options import Options
from edgebert_runtime.generation.step_model import Doubles, Floats, Ids
from edgebert_runtime.generation.top_k import top_indices

BLOCK = 256
# The nucleus of top-p is looked for among so many tokens first.
NUCLEUS = 1024


class Sampler:
    """Draws one token for each row.

    Each row has random numbers of its own, so draws do not depend on the other rows. With a seed they follow from the
    seed, the key of the prompt, and the number of the row in the prompt. Equal keys get equal numbers, in a batch as
    alone. ``num_return_sequences`` gives different draws of one prompt.
    """

    def __init__(self, options: Options, keys: Sequence[Sequence[int]]) -> None:
        self.options = options
        self.generators = [
            np.random.default_rng(None if options.seed is None else [options.seed, number, *key])
            for key in keys
            for number in range(options.num_return_sequences)
        ]

    def draw(self, scores: Floats, rows: Ids) -> Ids:
        """Return a token (rows,) for each row of ``scores`` (rows, vocab), which are overwritten."""
        ids, scores = warp(scores, self.options)
        weights = unnormalized_probs(scores)
        points = [self.generators[row].random() for row in rows]
        indices = np.array([sample_index(*pair) for pair in zip(weights, points, strict=True)], dtype=np.int64)
        return indices if ids is None else ids[np.arange(len(indices)), indices]


def sample_index(weights: Floats, point: float) -> int:
    """Return the index of ``weights`` (n,) at ``point`` of their running sum.

    ``point`` is from 0 to below 1. Sums over blocks find the block first: a running sum over all is slow.
    """
    sums = np.add.reduceat(weights, np.arange(0, weights.size, BLOCK))
    running = np.cumsum(sums, dtype=np.float64)
    point *= float(running[-1])
    block = first_above(running, point)
    inside = np.cumsum(weights[block * BLOCK : (block + 1) * BLOCK], dtype=np.float64)
    return block * BLOCK + first_above(inside, point - float(running[block - 1] if block else 0))


def first_above(running: Doubles, point: float) -> int:
    """Return the first index whose running sum exceeds ``point``.

    If rounding leaves none, it is the last index with a weight.
    """
    index = int(np.searchsorted(running, point, side="right"))
    return index if index < running.size else int(np.searchsorted(running, running[-1]))


def warp(scores: Floats, options: Options) -> tuple[Ids | None, Floats]:
    """Shape the distribution by the options.

    The ids returned (rows, n) are those of the scores that are left. They are None for the whole vocabulary.
    """
    ids = None
    if options.top_k is not None and options.top_k < scores.shape[1]:
        ids, scores = top_k_filter(scores, options.top_k)
    if options.temperature not in (None, 1.0):
        temperature(scores, options.temperature)
    if options.top_p not in (None, 1.0):
        top_p(scores, options.top_p)
    if options.min_p is not None:
        min_p(scores, options.min_p)
    if options.typical_p not in (None, 1.0):
        typical_p(scores, options.typical_p)
    return ids, scores


def top_k_filter(scores: Floats, k: int) -> tuple[Ids, Floats]:
    """Return ids and scores (rows, n) of the ``k`` best tokens of each row.

    Tokens that equal the k-th best are among them. They are in the order of ids. Shorter rows are filled with -inf.
    """
    indices = [np.flatnonzero(row >= row[top_indices(row, k)[-1]]) for row in scores]
    width = max(map(len, indices))
    ids = np.zeros((len(scores), width), dtype=np.int64)
    filtered = np.full((len(scores), width), -np.inf, dtype=np.float32)
    for row, columns in enumerate(indices):
        ids[row, : len(columns)] = columns
        filtered[row, : len(columns)] = scores[row, columns]
    return ids, filtered


def temperature(scores: Floats, value: float) -> None:
    """Make the distribution flatter (above 1) or steeper (below)."""
    scores -= scores.max(axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        scores /= np.float32(value)


def top_p(scores: Floats, mass: float) -> None:
    """Keep the most likely tokens that together have the probability ``mass`` (Holtzman et al., 2020)."""
    falling = np.sort(scores, axis=1)[:, ::-1]
    weights = unnormalized_probs(falling)
    goal = mass * weights.sum(axis=1, keepdims=True, dtype=np.float64)
    for count in (NUCLEUS, scores.shape[1]):
        running = np.cumsum(weights[:, :count], axis=1, dtype=np.float64)
        if (running[:, -1:] >= goal).all():
            break
    last = np.minimum((running < goal).sum(axis=1, keepdims=True), running.shape[1] - 1)
    scores[scores < np.take_along_axis(falling, last, axis=1)] = -np.inf


def min_p(scores: Floats, share: float) -> None:
    """Keep the tokens with at least ``share`` of the best token's probability (Nguyen et al., 2024)."""
    scores[scores - scores.max(axis=1, keepdims=True) < math.log(share)] = -np.inf


def typical_p(scores: Floats, mass: float) -> None:
    """Keep the tokens whose surprisal is closest to the entropy (Meister et al., 2022).

    They are taken by the distance between the two, until they have the probability ``mass``.
    """
    weights = unnormalized_probs(scores)
    total = weights.sum(axis=1, keepdims=True)
    surprisal = scores.max(axis=1, keepdims=True) + np.log(total) - scores
    entropy = np.sum(weights * np.where(weights > 0, surprisal, 0), axis=1, keepdims=True) / total
    distance = np.abs(surprisal - entropy)
    order = np.argsort(distance, axis=1)
    running = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1, dtype=np.float64)
    last = np.minimum((running < mass * running[:, -1:]).sum(axis=1, keepdims=True), scores.shape[1] - 1)
    farthest = np.take_along_axis(distance, np.take_along_axis(order, last, axis=1), axis=1)
    scores[distance > farthest] = -np.inf


def unnormalized_probs(scores: Floats) -> Floats:
    """Return probabilities (rows, n) up to a factor. The best token of each row has 1."""
    result: Floats = np.exp(scores - scores.max(axis=1, keepdims=True))
    return result
