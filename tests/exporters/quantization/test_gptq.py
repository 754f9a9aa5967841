"""Rounding by what a product makes of it, against the plain algorithm with an inverse for each column."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgebert_exporters.quantization.blockwise import Blocks, dequantize, fit_params, in_blocks, quantize_blocks
from edgebert_exporters.quantization.gptq import DAMPING, DAMPING_BY_ROWS, HessianAccumulator, gptq_blocks
from edgebert_runtime.errors import QuantizationError

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


def seen(rows: Floats, step: int = 100) -> HessianAccumulator:
    """Return the moments of rows (n, dim), shown a few at a time."""
    moments = HessianAccumulator(rows.shape[1])
    for start in range(0, len(rows), step):
        moments.observe(rows[start : start + step])
    return moments


def inputs_that_go_together(rng: np.random.Generator, rows: int, dim: int) -> Floats:
    """Return rows (rows, dim) most of whose variance is in a few directions, and some channels of which are large."""
    few = rng.standard_normal((rows, dim // 4)) @ rng.standard_normal((dim // 4, dim))
    sizes = np.exp(rng.standard_normal(dim))
    return ((few + rng.standard_normal((rows, dim))) * sizes).astype(np.float32)


def loss(rows: Floats, weight: Floats, blocks: Blocks, bits: int) -> float:
    """Return the sum of squares by which the product with a weight (out, in) changes."""
    off = weight.astype(np.float64) - dequantize(blocks, bits, weight.shape[1])
    return float(((rows.astype(np.float64) @ off.T) ** 2).sum())


def plain(rows: Floats, weight: Floats, bits: int, block: int, asymmetric: bool) -> Doubles:
    """Round column after column; after each, move those left by the inverse of the moments of those left."""
    square = rows.astype(np.float64).T @ rows / len(rows)
    mean = np.trace(square) / len(square)
    square += (DAMPING + DAMPING_BY_ROWS * len(square) / len(rows)) * mean * np.eye(len(square))
    importance = in_blocks((np.diagonal(square) / mean).astype(np.float32)[None], block)[0]
    levels = fit_params(in_blocks(weight, block), bits, asymmetric, importance)
    left, result = weight.astype(np.float64), np.zeros(weight.shape)
    columns = sorted(range(weight.shape[1]), key=lambda i: -square[i, i])
    while columns:
        first = columns[0]
        scale, zero = (array[:, first // block].astype(np.float64) for array in levels)
        result[:, first] = (np.clip(np.rint(left[:, first] / scale) + zero, 0, 2**bits - 1) - zero) * scale
        inverse = np.linalg.inv(square[np.ix_(columns, columns)])
        left[:, columns] -= np.outer((left[:, first] - result[:, first]) / inverse[0, 0], inverse[0])
        columns = columns[1:]
    return result


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize(("dim", "block"), [(48, 16), (100, 32), (20, 64)])
def test_it_is_the_plain_algorithm(bits: int, asymmetric: bool, dim: int, block: int) -> None:
    rng = np.random.default_rng(dim + bits)
    rows = inputs_that_go_together(rng, 300, dim)
    weight = rng.standard_normal((9, dim)).astype(np.float32)
    rounded = dequantize(gptq_blocks(weight, seen(rows), bits, block, asymmetric), bits, dim)
    np.testing.assert_allclose(rounded, plain(rows, weight, bits, block, asymmetric), atol=1e-5)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([4, 8]), st.sampled_from([16, 32, 64]), st.booleans())
def test_products_are_closer_than_with_the_nearest_levels(seed: int, bits: int, block: int, asymmetric: bool) -> None:
    rng = np.random.default_rng(seed)
    rows, unseen = np.split(inputs_that_go_together(rng, 2000, 64), 2)
    weight = rng.standard_normal((40, 64)).astype(np.float32)
    blocks = gptq_blocks(weight, seen(rows), bits, block, asymmetric)
    closest = quantize_blocks(weight, bits, block, asymmetric)
    for some in (rows, unseen):
        assert loss(some, weight, blocks, bits) < 0.4 * loss(some, weight, closest, bits)


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_inputs_that_do_not_go_together_make_it_no_worse(bits: int, asymmetric: bool) -> None:
    rng = np.random.default_rng(bits)
    rows, unseen = np.split(rng.standard_normal((20000, 64)).astype(np.float32), 2)
    weight = rng.standard_normal((40, 64)).astype(np.float32)
    blocks = gptq_blocks(weight, seen(rows), bits, 32, asymmetric)
    closest = quantize_blocks(weight, bits, 32, asymmetric)
    assert loss(rows, weight, blocks, bits) < loss(rows, weight, closest, bits)
    assert loss(unseen, weight, blocks, bits) < 1.02 * loss(unseen, weight, closest, bits)


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_without_rows_it_gives_the_nearest_levels(bits: int, asymmetric: bool) -> None:
    weight = np.random.default_rng(0).standard_normal((20, 100)).astype(np.float32)
    blocks = gptq_blocks(weight, HessianAccumulator(100), bits, 32, asymmetric)
    for ours, closest in zip(blocks, quantize_blocks(weight, bits, 32, asymmetric), strict=True):
        np.testing.assert_array_equal(ours, closest)


def test_channels_that_are_always_zero_are_rounded_by_themselves() -> None:
    rng = np.random.default_rng(0)
    rows = inputs_that_go_together(rng, 500, 64)
    silent = rng.permutation(64)[:20]
    rows[:, silent] = 0
    weight = rng.standard_normal((30, 64)).astype(np.float32)
    blocks = gptq_blocks(weight, seen(rows), 8, 32)
    steps = np.abs(np.repeat(blocks.scale, 32, axis=1))
    assert (np.abs(dequantize(blocks, 8, 64) - weight)[:, silent] <= 0.5001 * steps[:, silent]).all()
    assert loss(rows, weight, blocks, 8) < 0.8 * loss(rows, weight, quantize_blocks(weight, 8, 32), 8)


def test_few_rows_do_no_harm() -> None:
    """The moments of less rows than channels have no inverse, and say nothing of most directions."""
    rng = np.random.default_rng(0)
    everything = inputs_that_go_together(rng, 2000, 96)
    weight = rng.standard_normal((30, 96)).astype(np.float32)
    closest = loss(everything, weight, quantize_blocks(weight, 4, 32), 4)
    for count in (1, 5, 50):
        blocks = gptq_blocks(weight, seen(everything[:count]), 4, 32)
        assert np.isfinite(blocks.scale).all()
        assert loss(everything, weight, blocks, 4) < 1.1 * closest


def test_moments_that_are_no_squares_are_damped_until_they_are() -> None:
    """Sums in float32 may be off so far that no rows could have such moments."""
    rng = np.random.default_rng(0)
    moments = seen(inputs_that_go_together(rng, 300, 48))
    least = np.linalg.eigvalsh(moments.total)[0]
    moments.total -= (least + 0.2 * np.trace(moments.total) / 48) * np.eye(48, dtype=np.float32)
    weight = rng.standard_normal((9, 48)).astype(np.float32)
    rounded = dequantize(gptq_blocks(weight, moments, 8, 16), 8, 48)
    assert np.abs(rounded - weight).max() < 0.1


def test_it_is_the_same_every_time_whatever_rows_come_together() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(-8, 8, (400, 64)).astype(np.float32)  # whole numbers add up exactly
    weight = rng.standard_normal((30, 64)).astype(np.float32)
    large_steps, small_steps = (gptq_blocks(weight, seen(rows, step), 4, 32) for step in (400, 7))
    np.testing.assert_array_equal(large_steps.integers, small_steps.integers)
    np.testing.assert_array_equal(large_steps.scale, small_steps.scale)


def test_moments_are_those_of_all_rows() -> None:
    rows = np.random.default_rng(0).standard_normal((250, 8)).astype(np.float32)
    moments = seen(rows)
    assert moments.count == 250
    np.testing.assert_allclose(moments.total, rows.T.astype(np.float64) @ rows, rtol=1e-4, atol=1e-3)


def test_inputs_that_are_not_finite_are_refused() -> None:
    moments = HessianAccumulator(16)
    moments.observe(np.full((3, 16), np.nan, np.float32))
    with pytest.raises(QuantizationError, match="^gptq: the inputs of a layer .* are not finite"):
        gptq_blocks(np.ones((2, 16), np.float32), moments, 4, 16)
