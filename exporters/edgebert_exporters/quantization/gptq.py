"""GPTQ (Frantar et al., 2023): rounding for the least error of the product.

Round to nearest is best for each weight alone, but a product adds them up. GPTQ rounds the columns of a weight one
after another and lets later columns compensate the errors of earlier ones, as inputs correlate on sample texts.

Columns of large inputs come first, when most others are left to compensate. Scales and zero points are those of the
weight before compensation, since blocks are of adjacent columns. Rounding in the order of the columns, with new
parameters for each block at its turn, leaves up to a tenth more error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edgebert_exporters.quantization.blockwise import Blocks, fit_params, in_blocks, in_parts, pack
from edgebert_exporters.quantization.weight_discovery import Floats
from edgebert_runtime.errors import QuantizationError

Doubles = npt.NDArray[np.float64]

# Damping of the diagonal, in shares of its mean: always, and more with fewer rows per input. It keeps chance
# correlations out; with less, unseen texts are worse off.
DAMPING, DAMPING_BY_ROWS = 0.01, 0.3
# Columns between which errors are passed on one at a time; to later ones they go in one product.
COLUMNS_AT_ONCE = 64


class HessianAccumulator:
    """The sum ``total`` (dim, dim) of inputs.T @ inputs of a layer.

    ``count`` is the number of rows.
    """

    def __init__(self, dim: int) -> None:
        self.total = np.zeros((dim, dim), np.float32)
        self.count = 0

    def observe(self, rows: Floats) -> None:
        """Add rows (n, dim)."""
        self.total += rows.T @ rows
        self.count += len(rows)


class GptqFactors(NamedTuple):
    """The ``order`` (in,) of columns, and ``factors`` (in, in) in that order.

    The factors pass errors on: column ``j`` gets ``error[:j] @ factors[:j, j]``. ``importance`` (in,) weighs the error
    of each column, in the order of the weight.
    """

    order: npt.NDArray[np.intp]
    factors: Doubles
    importance: Floats


def gptq_blocks(weight: Floats, hessian: HessianAccumulator, bits: int, block: int, asymmetric: bool = False) -> Blocks:
    """Round a weight (out, in) for the least error of its products.

    The layout is that of :func:`quantize_blocks`. The error is the sum of squares of ``inputs @ (weight - rounded).T``.
    With a ``hessian`` of no rows every weight is rounded to nearest.

    Raises:
        QuantizationError: if the hessian is not finite.
    """
    factors = factorize(hessian)
    return in_parts(weight, lambda rows: gptq_rows(rows, factors, bits, block, asymmetric))


def gptq_rows(weight: Floats, factorization: GptqFactors, bits: int, block: int, asymmetric: bool) -> Blocks:
    """Round some rows of a weight as :func:`gptq_blocks` does."""
    order, factors, importance = factorization
    values = in_blocks(weight, block)
    params = fit_params(values, bits, asymmetric, in_blocks(importance[None], block)[0])
    scale, zero = (np.repeat(array, block, axis=1).T[order].astype(np.float64) for array in params)  # (in, out)
    columns = weight.T[order].astype(np.float64)
    integers, error = np.zeros_like(columns), np.zeros_like(columns)
    for start in range(0, len(columns), COLUMNS_AT_ONCE):
        own = slice(start, start + COLUMNS_AT_ONCE)
        compensated = columns[own] + factors[:start, own].T @ error[:start]
        for at, column in enumerate(compensated, start):
            column += factors[start:at, at] @ error[start:at]
            integers[at] = np.clip(np.rint(column / scale[at]) + zero[at], 0, (1 << bits) - 1)
            error[at] = columns[at] - (integers[at] - zero[at]) * scale[at]
    padded = np.repeat(params.zero, block, axis=1)  # behind the last column as well
    padded[:, order] = integers.T
    return pack(padded.reshape(values.shape), params, bits, asymmetric)


def factorize(hessian: HessianAccumulator) -> GptqFactors:
    """Return the factors by which errors are passed on.

    With hessian = M @ M.T, M being upper triangular, the error of the product is the length of ``error @ M``, so that
    column ``j`` is best off by ``-error[:j] @ M[:j, j] / M[j, j]``. This equals going forward with the inverse of the
    hessian, without the inverse.
    """
    square = hessian.total.astype(np.float64) / max(hessian.count, 1)
    if not np.isfinite(square).all():
        raise QuantizationError(
            "gptq: the inputs of a layer on the sample texts are not finite", hint="check the checkpoint"
        )
    mean = float(np.trace(square)) / len(square) or 1.0
    damping = DAMPING + DAMPING_BY_ROWS * len(square) / max(hessian.count, 1)
    order = np.argsort(-np.diagonal(square), kind="stable")
    while True:
        damped = square + damping * mean * np.eye(len(square))
        try:
            upper = np.linalg.cholesky(damped[np.ix_(order[::-1], order[::-1])])[::-1, ::-1]
        except np.linalg.LinAlgError:
            damping *= 10  # more and more like rounding each column by itself
        else:
            return GptqFactors(order, upper / np.diagonal(upper), (np.diagonal(damped) / mean).astype(np.float32))
