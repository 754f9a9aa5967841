"""Draw tokens, so that what a row gets does not depend on the other rows of its batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgebert_runtime.generation import logits_warpers as warpers
from edgebert_runtime.generation.options import Options
from edgebert_runtime.generation.step_model import Doubles, Floats, Ids
from edgebert_runtime.generation.top_k import best_places

BLOCK = 256


class Sampler:
    """Draws one token for each of the rows named; each row has random numbers of its own.

    With a seed they follow from it, the row's key, and its number among the rows of the same prompt. Equal keys in
    one batch so get equal numbers, as each gets what it would get alone; ``num_return_sequences`` is for different
    draws of one prompt.
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
        shares = warpers.chances(scores)
        points = [self.generators[row].random() for row in rows]
        places = np.array([place_of(*pair) for pair in zip(shares, points, strict=True)], dtype=np.int64)
        return places if ids is None else ids[np.arange(len(places)), places]


def place_of(shares: Floats, point: float) -> int:
    """Return the place which ``point``, from 0 to below 1, falls on where places have ``shares`` (n,) of that.

    Sums over blocks say in which block it is, as adding up one by one takes longest.
    """
    sums = np.add.reduceat(shares, np.arange(0, shares.size, BLOCK))
    running = np.cumsum(sums, dtype=np.float64)
    point *= float(running[-1])
    block = place_in(running, point)
    inside = np.cumsum(shares[block * BLOCK : (block + 1) * BLOCK], dtype=np.float64)
    return block * BLOCK + place_in(inside, point - float(running[block - 1] if block else 0))


def place_in(running: Doubles, point: float) -> int:
    """Return the first place whose running sum exceeds ``point``, or where rounding leaves none the last that adds."""
    place = int(np.searchsorted(running, point, side="right"))
    return place if place < running.size else int(np.searchsorted(running, running[-1]))


def warp(scores: Floats, options: Options) -> tuple[Ids | None, Floats]:
    """Shape the distribution as the options say; return the ids (rows, n) of the scores left, None for all."""
    ids = None
    if options.top_k is not None and options.top_k < scores.shape[1]:
        ids, scores = shortlist(scores, options.top_k)
    if options.temperature not in (None, 1.0):
        warpers.temperature(scores, options.temperature)
    if options.top_p not in (None, 1.0):
        warpers.top_p(scores, options.top_p)
    if options.min_p is not None:
        warpers.min_p(scores, options.min_p)
    if options.typical_p not in (None, 1.0):
        warpers.typical_p(scores, options.typical_p)
    return ids, scores


def shortlist(scores: Floats, count: int) -> tuple[Ids, Floats]:
    """Return the ``count`` best tokens of each row, and those that are as good as the last of them.

    They are ids and scores (rows, n) in the order of ids; rows with fewer tokens than others are filled with -inf.
    """
    found = [places_of_best(row, count) for row in scores]
    width = max(map(len, found))
    ids = np.zeros((len(scores), width), dtype=np.int64)
    kept = np.full((len(scores), width), -np.inf, dtype=np.float32)
    for row, places in enumerate(found):
        ids[row, : len(places)] = places
        kept[row, : len(places)] = scores[row, places]
    return ids, kept


def places_of_best(row: Floats, count: int) -> Ids:
    """Return the places in ``row`` (n,) of its ``count`` largest numbers and all that equal the last, in order."""
    return np.flatnonzero(row >= row[best_places(row, count)[-1]])
