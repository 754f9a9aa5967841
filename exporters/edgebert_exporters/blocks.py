"""Weights in blocks: the ``int8`` and ``int4`` schemes of decoders, for the kernel MatMulNBits.

A token at a time, a decoder reads every weight for one product, so their bytes decide its speed. Weights are integers
with a scale for each block of a row; activations are rounded to 8 bits in the same blocks while running, each row by
itself, so that the other rows of a batch do not matter: not at all with blocks of 32, and only to the order in which
float32 sums are added with blocks of 128.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgebert_exporters.linears import Floats

# The sizes of a block that the kernel takes, and what is taken unless asked for.
BLOCK_SIZES = (16, 32, 64, 128, 256)
DEFAULT_BLOCK = {8: 128, 4: 32}
# Of a block of 4-bit weights, the largest may be cut off a little: the others then have finer steps. What a scale
# may be of the one that just reaches the largest weight:
TRIED_SCALES = tuple(np.linspace(0.76, 1.06, 11).tolist())
# Smaller numbers have too few bits left to be a scale; such weights are as good as zero.
LEAST_SCALE = np.finfo(np.float32).tiny
# Rows of a weight that are in work at once; their copies are what quantizing needs of memory.
ROWS_AT_ONCE = 512


def fitting_block(wanted: int, inputs: int) -> int:
    """Return the size of the blocks for rows of ``inputs`` weights: the one wanted, or the least that takes a row."""
    return next((size for size in BLOCK_SIZES if size >= inputs and size < wanted), wanted)


def quantize_blocks(weight: Floats, bits: int, block: int) -> tuple[npt.NDArray[np.uint8], Floats]:
    """Round a weight (out, in) to ``bits`` bits: integers (out, blocks, bytes) and scales (out, blocks).

    weight = (integers - 2 ** (bits - 1)) * scale. Of 4 bits, the first of two integers is in the lower half of its
    byte. A last block that is not full has zeros behind.
    """
    parts = [quantize_rows(weight[i : i + ROWS_AT_ONCE], bits, block) for i in range(0, len(weight), ROWS_AT_ONCE)]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def quantize_rows(weight: Floats, bits: int, block: int) -> tuple[npt.NDArray[np.uint8], Floats]:
    """Do what :func:`quantize_blocks` does for a few rows."""
    rows, inputs = weight.shape
    blocks = -(-inputs // block)
    padded = np.zeros((rows, blocks * block), np.float32)
    padded[:, :inputs] = weight
    values, half = padded.reshape(rows, blocks, block), 1 << (bits - 1)
    scale: Floats = best_scales(values, half) if bits == 4 else np.abs(values).max(2) / np.float32(half - 1)
    scale[np.abs(scale) < LEAST_SCALE] = 1
    scaled: Floats = np.divide(values, scale[..., None])
    integers = (rounded(scaled, half) + half).astype(np.uint8)
    if bits == 4:
        integers = integers[..., ::2] | np.left_shift(integers[..., 1::2], 4, dtype=np.uint8)
    return integers, scale


def rounded(values: Floats, half: int) -> Floats:
    """Return the nearest whole numbers from -half to half - 1."""
    result: Floats = np.clip(np.rint(values), -half, half - 1)
    return result


def best_scales(values: Floats, half: int) -> Floats:
    """Return, for blocks (rows, blocks, block), the scales (rows, blocks) with the least squared error of those tried.

    The integers reach from -half to half - 1, so that a scale may be negative: the largest weight gets the longer side.
    """
    at = np.abs(values).argmax(2)[..., None]
    reaching: Floats = np.take_along_axis(values, at, 2)[..., 0] / np.float32(-half)
    reaching[np.abs(reaching) < LEAST_SCALE] = 1
    units = values / reaching[..., None]  # so that squares neither overflow nor vanish
    best, least = np.ones_like(reaching), np.full_like(reaching, np.inf)
    for tried in TRIED_SCALES:
        error = ((rounded(units / tried, half) * tried - units) ** 2).sum(2)
        better = error < least
        best[better], least[better] = tried, error[better]
    return reaching * best
