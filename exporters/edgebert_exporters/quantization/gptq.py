"""Round weights in blocks by what the product makes of them: GPTQ (Frantar et al., 2023).

The nearest levels are best for each weight, but a product adds them up. Where inputs go together, what one weight was
rounded up by can be taken from the next: the columns of a weight are rounded one after another, each after what is
best added to it, given the errors of those before. What goes together is seen on sample texts.

Columns of large inputs come first, when there are most others left to make up for them. So the levels of the blocks,
which are of columns beside each other, are those of the weight as it was. In the order of the columns, with levels for
what is left of each block when its turn comes, up to a tenth more error remains.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edgebert_exporters.quantization.blockwise import Blocks, fit, in_blocks, in_parts, pack
from edgebert_exporters.quantization.weight_discovery import Floats
from edgebert_runtime.errors import QuantizationError

Doubles = npt.NDArray[np.float64]

# Of the mean square of the inputs, what is added to the square of each, so that what goes together by chance is not
# trusted too much: always, and for as many rows as there are inputs. With less, unseen texts are worse off.
DAMPING, DAMPING_BY_ROWS = 0.01, 0.3
# Columns between which errors are passed on one at a time; to the next ones they go in one product.
COLUMNS_AT_ONCE = 64


class Moments:
    """The sums (dim, dim) of the products of every two inputs of a layer, over ``count`` rows."""

    def __init__(self, dim: int) -> None:
        self.total = np.zeros((dim, dim), np.float32)
        self.count = 0

    def look(self, rows: Floats) -> None:
        """Take in rows (n, dim)."""
        self.total += rows.T @ rows
        self.count += len(rows)


class Feedback(NamedTuple):
    """The ``order`` (in,) of columns; what each gets of the errors before it; how much an error in each counts.

    A column gets ``error[:at] @ passed[:at, at]``, where ``passed`` (in, in) is in that order. ``importance`` (in,) is
    in the order of the weight.
    """

    order: npt.NDArray[np.intp]
    passed: Doubles
    importance: Floats


def gptq_blocks(weight: Floats, moments: Moments, bits: int, block: int, asymmetric: bool = False) -> Blocks:
    """Round a weight (out, in) in the layout of :func:`quantize_blocks`, for the least error of its products.

    What is made small is the sum of squares of ``inputs @ (weight - rounded).T``. With ``moments`` of no rows every
    weight gets the nearest level.

    Raises:
        QuantizationError: if the moments are not finite.
    """
    feedback = feedback_of(moments)
    return in_parts(weight, lambda rows: round_rows(rows, feedback, bits, block, asymmetric))


def round_rows(weight: Floats, feedback: Feedback, bits: int, block: int, asymmetric: bool) -> Blocks:
    """Do what :func:`gptq_blocks` does for a few rows."""
    order, passed, importance = feedback
    values = in_blocks(weight, block)
    levels = fit(values, bits, asymmetric, in_blocks(importance[None], block)[0])
    scale, zero = (np.repeat(held, block, axis=1).T[order].astype(np.float64) for held in levels)  # (in, out)
    columns = weight.T[order].astype(np.float64)
    integers, error = np.zeros_like(columns), np.zeros_like(columns)
    for start in range(0, len(columns), COLUMNS_AT_ONCE):
        own = slice(start, start + COLUMNS_AT_ONCE)
        wanted = columns[own] + passed[:start, own].T @ error[:start]
        for at, column in enumerate(wanted, start):
            column += passed[start:at, at] @ error[start:at]
            integers[at] = np.clip(np.rint(column / scale[at]) + zero[at], 0, (1 << bits) - 1)
            error[at] = columns[at] - (integers[at] - zero[at]) * scale[at]
    result = np.repeat(levels.zero, block, axis=1)  # behind the last column as well
    result[:, order] = integers.T
    return pack(result.reshape(values.shape), levels, bits, asymmetric)


def feedback_of(moments: Moments) -> Feedback:
    """Return how errors are passed on.

    With the moments = M @ M.T, M being upper triangular, the error of the product is the length of ``error @ M``, so
    that a column at ``j`` is best off by ``-error[:j] @ M[:j, j] / M[j, j]``. This is the same as going forward with
    the inverse of the moments, without the inverse.
    """
    square = moments.total.astype(np.float64) / max(moments.count, 1)
    if not np.isfinite(square).all():
        raise QuantizationError("gptq: the inputs of a layer on the sample texts are not finite; check the checkpoint")
    mean = float(np.trace(square)) / len(square) or 1.0
    damping = DAMPING + DAMPING_BY_ROWS * len(square) / max(moments.count, 1)
    order = np.argsort(-np.diagonal(square), kind="stable")
    while True:
        damped = square + damping * mean * np.eye(len(square))
        try:
            upper = np.linalg.cholesky(damped[np.ix_(order[::-1], order[::-1])])[::-1, ::-1]
        except np.linalg.LinAlgError:
            damping *= 10  # more and more like rounding each column by itself
        else:
            return Feedback(order, upper / np.diagonal(upper), (np.diagonal(damped) / mean).astype(np.float32))
