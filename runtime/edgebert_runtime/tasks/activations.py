"""Turn logits into probabilities, and choose the best of them. Pure functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


def softmax(logits: NDArray[np.floating[Any]]) -> Doubles:
    """Return probabilities that sum to 1 over the last axis, whatever the size of the ``logits``."""
    doubles = logits.astype(np.float64)
    exponentials = np.exp(doubles - doubles.max(-1, keepdims=True))
    result: Doubles = exponentials / exponentials.sum(-1, keepdims=True)
    return result


def sigmoid(logits: NDArray[np.floating[Any]]) -> Doubles:
    """Return the probability of each of the ``logits`` alone, whatever its size."""
    result: Doubles = np.exp(-np.logaddexp(0, -logits.astype(np.float64)))
    return result


def best(numbers: NDArray[np.floating[Any]], count: int) -> NDArray[np.intp]:
    """Return the places of the ``count`` largest ``numbers`` (n,), largest first, of equal ones the first."""
    if count < len(numbers):
        least = np.partition(numbers, -count)[-count]
        places = np.flatnonzero(numbers >= least)
    else:
        places = np.arange(len(numbers))
    return places[np.argsort(-numbers[places], kind="stable")[:count]]
