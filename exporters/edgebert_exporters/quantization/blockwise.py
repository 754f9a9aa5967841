"""Blockwise weights for the operator MatMulNBits.

Each block of a row has a scale, and an asymmetric one a zero point.

A decoder reads every weight for each token, so their bytes decide its speed. The kernel rounds activations to 8 bits
in the same blocks while it runs, each row by itself. Other rows of a batch do not matter with blocks of 32; with blocks
of 128 they matter only to the order in which float32 sums are added.

Symmetric integers stand for numbers around zero. Asymmetric ones reach from the least to the largest number of their
block, with a zero point. This module rounds to nearest (rtn); :mod:`edgebert_exporters.quantization.gptq` minimizes
the error of the product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edgebert.models.kernel_limits import KERNELS
from edgebert_exporters.quantization.weight_discovery import Floats

Integers = npt.NDArray[np.uint8]

# The block sizes of the kernel, and the default for each number of bits.
BLOCK_SIZES = KERNELS["MatMulNBits"].choices["block_size"]
DEFAULT_BLOCK = {8: 128, 4: 64}
# Clipping the largest of 4-bit weights gives the others finer steps. Candidates, in shares of the scale that just
# reaches the largest weight:
SCALE_CANDIDATES = tuple(np.linspace(0.76, 1.06, 11).tolist())
# Smaller numbers have too few bits left to be a scale; such weights are as good as zero.
MIN_SCALE = np.finfo(np.float32).tiny
# Rows quantized at a time; it bounds the memory of their copies.
ROWS_AT_ONCE = 512


class Blocks(NamedTuple):
    """A weight (out, in) in the layout of the kernel.

    Its numbers are (integer - zero) * scale.

    ``integers`` are (out, blocks, bytes), with zero behind a last block that is not full; ``scale`` is (out, blocks).
    ``zeros`` (out, bytes) holds a zero point for each block; None stands for 2 ** (bits - 1) everywhere. Of 4 bits, the
    first of two integers is in the lower half of its byte.
    """

    integers: Integers
    scale: Floats
    zeros: Integers | None


class QuantParams(NamedTuple):
    """Scale and zero point of each block, both (rows, blocks).

    A number is (integer - ``zero``) * ``scale``.
    """

    scale: Floats
    zero: Floats


def fitting_block(block: int, inputs: int) -> int:
    """Return ``block``, or the least size that takes all ``inputs`` of a row."""
    return next((size for size in BLOCK_SIZES if size >= inputs and size < block), block)


def quantize_blocks(weight: Floats, bits: int, block: int, asymmetric: bool = False) -> Blocks:
    """Round a weight (out, in) to nearest in blocks of ``block``."""

    def quantize(rows: Floats) -> Blocks:
        values = in_blocks(rows, block)
        params = fit_params(values, bits, asymmetric)
        return pack(round_to_nearest(values, params, bits), params, bits, asymmetric)

    return in_parts(weight, quantize)


def in_parts(weight: Floats, quantize: Callable[[Floats], Blocks]) -> Blocks:
    """Quantize a weight (out, in) :data:`ROWS_AT_ONCE` rows at a time."""
    parts = [quantize(weight[start : start + ROWS_AT_ONCE]) for start in range(0, len(weight), ROWS_AT_ONCE)]
    zeros = [part.zeros for part in parts if part.zeros is not None]
    integers, scale = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    return Blocks(integers, scale, np.concatenate(zeros) if zeros else None)


def in_blocks(weight: Floats, block: int) -> Floats:
    """Return a weight (out, in) as (out, blocks, block), zero-padded at the end."""
    rows, inputs = weight.shape
    blocks = -(-inputs // block)
    padded = np.zeros((rows, blocks * block), np.float32)
    padded[:, :inputs] = weight
    return padded.reshape(rows, blocks, block)


def fit_params(values: Floats, bits: int, asymmetric: bool, importance: Floats | None = None) -> QuantParams:
    """Return the candidates with the least squared error for blocks (rows, blocks, block).

    ``importance`` (blocks, block) weighs the error of each number; None weighs all alike.
    """
    top = np.abs(values).max(2)
    if bits == 8 and not asymmetric:
        return QuantParams(clamped_scale(top / np.float32(127)), np.full_like(top, 128))
    top = clamped_scale(top)
    units = values / top[..., None]  # so that squares neither overflow nor vanish
    best = QuantParams(np.ones_like(top), np.zeros_like(top))
    least = np.full_like(top, np.inf)
    for params in asymmetric_candidates(units, bits) if asymmetric else symmetric_candidates(units):
        squares = quantization_error(units, params, bits) ** 2
        error = (squares * (1 if importance is None else importance)).sum(2)
        better = error < least
        least[better] = error[better]
        for array, candidate in zip(best, params, strict=True):
            array[better] = candidate[better]
    return QuantParams(clamped_scale(best.scale * top), best.zero)


def clamped_scale(scale: Floats) -> Floats:
    """Return scales, with 1 for those below :data:`MIN_SCALE`."""
    return np.where(np.abs(scale) < MIN_SCALE, np.float32(1), scale)


def symmetric_candidates(units: Floats) -> Iterator[QuantParams]:
    """Yield symmetric 4-bit parameters for blocks (rows, blocks, block).

    The largest magnitude of a block is 1. The integers reach from -8 to 7, so that a scale may be negative: the largest
    weight gets the longer side.
    """
    at = np.abs(units).argmax(2)[..., None]
    reaching = clamped_scale(np.take_along_axis(units, at, 2)[..., 0] / np.float32(-8))
    for share in SCALE_CANDIDATES:
        yield QuantParams(reaching * np.float32(share), np.full_like(reaching, 8))


def asymmetric_candidates(units: Floats, bits: int) -> Iterator[QuantParams]:
    """Yield asymmetric parameters for blocks (rows, blocks, block).

    They reach from the least to the largest number; zero is exact.
    """
    most = np.float32((1 << bits) - 1)
    low, high = np.maximum(-units.min(2), 0), np.maximum(units.max(2), 0)
    middle = low / np.maximum(low + high, MIN_SCALE) * most
    for zero in (np.floor(middle), np.ceil(middle)):
        below, above = low / np.maximum(zero, 1), high / np.maximum(most - zero, 1)
        reaching = clamped_scale(np.maximum(np.where(zero > 0, below, 0), np.where(zero < most, above, 0)))
        for share in SCALE_CANDIDATES if bits == 4 else (1.0,):
            yield QuantParams(reaching * np.float32(share), zero)


def round_to_nearest(values: Floats, params: QuantParams, bits: int) -> Floats:
    """Return the nearest integers of numbers (rows, blocks, block), from 0."""
    scaled = np.rint(values / params.scale[..., None]) + params.zero[..., None]
    integers: Floats = np.clip(scaled, 0, (1 << bits) - 1)
    return integers


def quantization_error(values: Floats, params: QuantParams, bits: int) -> Floats:
    """Return the change of numbers (rows, blocks, block) by rounding to nearest."""
    integers = round_to_nearest(values, params, bits)
    error: Floats = (integers - params.zero[..., None]) * params.scale[..., None] - values
    return error


def pack(integers: Floats, params: QuantParams, bits: int, asymmetric: bool) -> Blocks:
    """Return whole numbers (rows, blocks, block) in the layout of the kernel."""
    return Blocks(packed(integers, bits), params.scale, packed(params.zero, bits) if asymmetric else None)


def packed(integers: Floats, bits: int) -> Integers:
    """Return whole numbers (..., n) as bytes.

    A byte holds one of 8 bits, or two of 4. A zero follows an odd n.
    """
    array = integers.astype(np.uint8)
    if bits == 8:
        return array
    array = np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, array.shape[-1] % 2)])
    return array[..., ::2] | np.left_shift(array[..., 1::2], 4, dtype=np.uint8)


def unpacked(array: Integers, bits: int) -> Integers:
    """Return the integers (..., n) in packed bytes."""
    return array if bits == 8 else np.stack([array & 15, array >> 4], -1).reshape(*array.shape[:-1], -1)


def dequantize(blocks: Blocks, bits: int, inputs: int) -> Floats:
    """Return the weight (out, ``inputs``) that blocks of ``bits`` bits stand for."""
    integers, count = unpacked(blocks.integers, bits).astype(np.float32), blocks.scale.shape[1]
    half = np.full(blocks.scale.shape, 1 << (bits - 1), np.float32)
    zeros = half if blocks.zeros is None else unpacked(blocks.zeros, bits)[:, :count].astype(np.float32)
    values: Floats = (integers - zeros[..., None]) * blocks.scale[..., None]
    return values.reshape(len(values), -1)[:, :inputs]
