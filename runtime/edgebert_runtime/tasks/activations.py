"""Turn logits into probabilities, and choose the best of them. Pure functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Activation = Callable[[NDArray[np.floating[Any]]], Doubles]


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


def log_sigmoid(logits: NDArray[np.floating[Any]]) -> Doubles:
    """Return the logarithm of :func:`sigmoid`."""
    result: Doubles = -np.logaddexp(0, -logits.astype(np.float64))
    return result


# The activations of a manifest, in the names of torch.nn in small letters, with the defaults of their classes.
ACTIVATIONS: dict[str, Activation] = {
    "identity": lambda x: x.astype(np.float64),
    "sigmoid": sigmoid,
    "softmax": softmax,
    "tanh": lambda x: np.tanh(x.astype(np.float64)),
    "relu": lambda x: np.maximum(x.astype(np.float64), 0),
    "softplus": lambda x: np.logaddexp(0, x.astype(np.float64)),
    "softsign": lambda x: x / (1 + np.abs(x.astype(np.float64))),
    "logsigmoid": log_sigmoid,
    "logsoftmax": lambda x: np.log(softmax(x)),
    "hardsigmoid": lambda x: np.clip(x.astype(np.float64) / 6 + 0.5, 0, 1),
    "hardtanh": lambda x: np.clip(x.astype(np.float64), -1, 1),
}


def best(numbers: NDArray[np.floating[Any]], count: int) -> NDArray[np.intp]:
    """Return the places of the ``count`` largest ``numbers`` (n,), largest first, of equal ones the first."""
    if count < len(numbers):
        least = np.partition(numbers, -count)[-count]
        places = np.flatnonzero(numbers >= least)
    else:
        places = np.arange(len(numbers))
    return places[np.argsort(-numbers[places], kind="stable")[:count]]
