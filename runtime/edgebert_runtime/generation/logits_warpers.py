"""Shape the distribution that a token is drawn from. Each function edits ``scores`` (rows, n) in place.

Scores are logits up to a constant. Every row has at least one that is not -inf, and keeps its best. Where a limit
falls between equal scores, all of them stay.
"""

from __future__ import annotations

import math

import numpy as np

from edgebert_runtime.generation.step_model import Floats

MOST_OFTEN_ENOUGH = 1024


def temperature(scores: Floats, value: float) -> None:
    """Make the distribution flatter (more than 1) or steeper (less)."""
    scores -= scores.max(axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        scores /= np.float32(value)


def top_p(scores: Floats, mass: float) -> None:
    """Keep the most likely tokens which together have a probability of ``mass`` (Holtzman et al., 2020)."""
    falling = np.sort(scores, axis=1)[:, ::-1]
    shares = chances(falling)
    goal = mass * shares.sum(axis=1, keepdims=True, dtype=np.float64)
    for count in (MOST_OFTEN_ENOUGH, scores.shape[1]):
        running = np.cumsum(shares[:, :count], axis=1, dtype=np.float64)
        if (running[:, -1:] >= goal).all():
            break
    last = np.minimum((running < goal).sum(axis=1, keepdims=True), running.shape[1] - 1)
    scores[scores < np.take_along_axis(falling, last, axis=1)] = -np.inf


def min_p(scores: Floats, share: float) -> None:
    """Keep the tokens with at least ``share`` of the probability of the best (Nguyen et al., 2024)."""
    scores[scores - scores.max(axis=1, keepdims=True) < math.log(share)] = -np.inf


def typical_p(scores: Floats, mass: float) -> None:
    """Keep the tokens which are about as surprising as is to be expected (Meister et al., 2022).

    They are taken in the order of how far their surprise is from the entropy, until they have a probability of
    ``mass``.
    """
    shares = chances(scores)
    total = shares.sum(axis=1, keepdims=True)
    surprise = scores.max(axis=1, keepdims=True) + np.log(total) - scores
    entropy = np.sum(shares * np.where(shares > 0, surprise, 0), axis=1, keepdims=True) / total
    distance = np.abs(surprise - entropy)
    order = np.argsort(distance, axis=1)
    running = np.cumsum(np.take_along_axis(shares, order, axis=1), axis=1, dtype=np.float64)
    last = np.minimum((running < mass * running[:, -1:]).sum(axis=1, keepdims=True), scores.shape[1] - 1)
    farthest = np.take_along_axis(distance, np.take_along_axis(order, last, axis=1), axis=1)
    scores[distance > farthest] = -np.inf


def chances(scores: Floats) -> Floats:
    """Return probabilities (rows, n) up to a factor: that of the best of each row is 1."""
    result: Floats = np.exp(scores - scores.max(axis=1, keepdims=True))
    return result
