"""Weights in blocks: integers with a scale, and perhaps a zero point, for each block of a row; for MatMulNBits.

A token at a time, a decoder reads every weight for one product, so their bytes decide its speed. Weights are integers
with a scale for each block of a row; activations are rounded to 8 bits in the same blocks while running, each row by
itself, so that the other rows of a batch do not matter: not at all with blocks of 32, and only to the order in which
float32 sums are added with blocks of 128.

The integers of a block stand for numbers around zero, or, with zero points, from its least to its largest. Here each
weight becomes the nearest of these numbers; :mod:`edgebert_exporters.quantization.gptq` chooses them by what the
product makes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edgebert_exporters.quantization.weight_discovery import Floats

Integers = npt.NDArray[np.uint8]

# The sizes of a block that the kernel takes, and what is taken unless asked for.
BLOCK_SIZES = (16, 32, 64, 128, 256)
DEFAULT_BLOCK = {8: 128, 4: 64}
# Of a block of 4-bit weights, the largest may be cut off a little: the others then have finer steps. What a scale
# may be of the one that just reaches the largest weight:
TRIED_SCALES = tuple(np.linspace(0.76, 1.06, 11).tolist())
# Smaller numbers have too few bits left to be a scale; such weights are as good as zero.
LEAST_SCALE = np.finfo(np.float32).tiny
# Rows of a weight that are in work at once; their copies are what quantizing needs of memory.
ROWS_AT_ONCE = 512


class Blocks(NamedTuple):
    """A weight (out, in) in the layout of the kernel: weight = (integer - zero) * scale.

    ``integers`` are (out, blocks, bytes), with zero behind a last block that is not full; ``scale`` is (out, blocks).
    ``zeros`` (out, bytes) holds an integer for each block, and is None where all are 2 ** (bits - 1). Of 4 bits, the
    first of two integers is in the lower half of its byte.
    """

    integers: Integers
    scale: Floats
    zeros: Integers | None


class Levels(NamedTuple):
    """The numbers that a block can hold: (integer - ``zero``) * ``scale``, both (rows, blocks), zeros being whole."""

    scale: Floats
    zero: Floats


def fitting_block(wanted: int, inputs: int) -> int:
    """Return the size of the blocks for rows of ``inputs`` weights: the one wanted, or the least that takes a row."""
    return next((size for size in BLOCK_SIZES if size >= inputs and size < wanted), wanted)


def quantize_blocks(weight: Floats, bits: int, block: int, asymmetric: bool = False) -> Blocks:
    """Round a weight (out, in) to the nearest of what ``bits`` bits hold in each block, with zero points if wanted."""

    def quantize(rows: Floats) -> Blocks:
        values = in_blocks(rows, block)
        levels = fit(values, bits, asymmetric)
        return pack(nearest(values, levels, bits), levels, bits, asymmetric)

    return in_parts(weight, quantize)


def in_parts(weight: Floats, quantize: Callable[[Floats], Blocks]) -> Blocks:
    """Quantize a weight (out, in) a few rows at a time."""
    parts = [quantize(weight[start : start + ROWS_AT_ONCE]) for start in range(0, len(weight), ROWS_AT_ONCE)]
    zeros = [part.zeros for part in parts if part.zeros is not None]
    integers, scale = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    return Blocks(integers, scale, np.concatenate(zeros) if zeros else None)


def in_blocks(weight: Floats, block: int) -> Floats:
    """Return a weight (out, in) as (out, blocks, block), with zeros behind."""
    rows, inputs = weight.shape
    blocks = -(-inputs // block)
    padded = np.zeros((rows, blocks * block), np.float32)
    padded[:, :inputs] = weight
    return padded.reshape(rows, blocks, block)


def fit(values: Floats, bits: int, asymmetric: bool, importance: Floats | None = None) -> Levels:
    """Return the levels for blocks (rows, blocks, block) that have the least squared error of those tried.

    ``importance`` (blocks, block) says how much the error of each number counts; all count the same without it.
    """
    top = np.abs(values).max(2)
    if bits == 8 and not asymmetric:
        return Levels(usable(top / np.float32(127)), np.full_like(top, 128))
    top = usable(top)
    units = values / top[..., None]  # so that squares neither overflow nor vanish
    best = Levels(np.ones_like(top), np.zeros_like(top))
    least = np.full_like(top, np.inf)
    for tried in lopsided(units, bits) if asymmetric else even(units):
        error = (off(units, tried, bits) ** 2 * (1 if importance is None else importance)).sum(2)
        better = error < least
        least[better] = error[better]
        for held, new in zip(best, tried, strict=True):
            held[better] = new[better]
    return Levels(usable(best.scale * top), best.zero)


def usable(scale: Floats) -> Floats:
    """Return scales with 1 in the place of those that are too small to be one."""
    return np.where(np.abs(scale) < LEAST_SCALE, np.float32(1), scale)


def even(units: Floats) -> Iterator[Levels]:
    """Yield symmetric levels of 4 bits, around zero, for blocks (rows, blocks, block) whose largest magnitude is 1.

    The integers reach from -8 to 7, so that a scale may be negative: the largest weight gets the longer side.
    """
    at = np.abs(units).argmax(2)[..., None]
    reaching = usable(np.take_along_axis(units, at, 2)[..., 0] / np.float32(-8))
    for tried in TRIED_SCALES:
        yield Levels(reaching * np.float32(tried), np.full_like(reaching, 8))


def lopsided(units: Floats, bits: int) -> Iterator[Levels]:
    """Yield asymmetric levels, from the least to the largest of blocks (rows, blocks, block); zero is one of them."""
    most = np.float32((1 << bits) - 1)
    low, high = np.maximum(-units.min(2), 0), np.maximum(units.max(2), 0)
    middle = low / np.maximum(low + high, LEAST_SCALE) * most
    for zero in (np.floor(middle), np.ceil(middle)):
        below, above = low / np.maximum(zero, 1), high / np.maximum(most - zero, 1)
        reaching = usable(np.maximum(np.where(zero > 0, below, 0), np.where(zero < most, above, 0)))
        for tried in TRIED_SCALES if bits == 4 else (1.0,):
            yield Levels(reaching * np.float32(tried), zero)


def nearest(values: Floats, levels: Levels, bits: int) -> Floats:
    """Return the integers, 0 to 2 ** bits - 1, whose levels are the nearest to (rows, blocks, block) numbers."""
    scaled = np.rint(values / levels.scale[..., None]) + levels.zero[..., None]
    result: Floats = np.clip(scaled, 0, (1 << bits) - 1)
    return result


def off(values: Floats, levels: Levels, bits: int) -> Floats:
    """Return by how much numbers (rows, blocks, block) change when they are rounded."""
    result: Floats = (nearest(values, levels, bits) - levels.zero[..., None]) * levels.scale[..., None] - values
    return result


def pack(integers: Floats, levels: Levels, bits: int, asymmetric: bool) -> Blocks:
    """Put whole numbers (rows, blocks, block) and their levels into the layout of the kernel."""
    return Blocks(packed(integers, bits), levels.scale, packed(levels.zero, bits) if asymmetric else None)


def packed(integers: Floats, bits: int) -> Integers:
    """Return whole numbers (..., n) as bytes: one in each, or of 4 bits two, with a zero behind if n is odd."""
    held = integers.astype(np.uint8)
    if bits == 8:
        return held
    held = np.pad(held, [(0, 0)] * (held.ndim - 1) + [(0, held.shape[-1] % 2)])
    return held[..., ::2] | np.left_shift(held[..., 1::2], 4, dtype=np.uint8)


def unpacked(held: Integers, bits: int) -> Integers:
    """Return the integers (..., n) that bytes hold."""
    return held if bits == 8 else np.stack([held & 15, held >> 4], -1).reshape(*held.shape[:-1], -1)


def to_floats(blocks: Blocks, bits: int, inputs: int) -> Floats:
    """Return the weight (out, ``inputs``) that blocks of ``bits`` bits stand for."""
    integers, count = unpacked(blocks.integers, bits).astype(np.float32), blocks.scale.shape[1]
    half = np.full(blocks.scale.shape, 1 << (bits - 1), np.float32)
    zeros = half if blocks.zeros is None else unpacked(blocks.zeros, bits)[:, :count].astype(np.float32)
    values: Floats = (integers - zeros[..., None]) * blocks.scale[..., None]
    return values.reshape(len(values), -1)[:, :inputs]
