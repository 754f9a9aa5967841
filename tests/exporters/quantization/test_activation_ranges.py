"""The ranges of activations, against NumPy on all the numbers at once."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgebert_exporters.quantization import activation_ranges as ranges
from edgebert_exporters.quantization.activation_ranges import BINS, METHODS, Histogram, divergence, uint8_params
from edgebert_runtime.errors import QuantizationError

Floats = npt.NDArray[np.float32]


def gelu(x: Floats) -> Floats:
    result: Floats = (x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))).astype(np.float32)
    return result


def sample(kind: str, count: int = 40_000) -> Floats:
    rng = np.random.default_rng(len(kind))
    x = rng.standard_normal(count).astype(np.float32)
    match kind:
        case "normal":
            return 3 * x
        case "outliers":
            x[::4001] = 60
            x[7::9001] = -25
            return x
        case "relu":
            return np.maximum(x, 0)
        case "gelu":
            return gelu(2 * x)
        case "heavy":
            return rng.standard_t(3, count).astype(np.float32)
        case _:
            return np.exp(x) + 5  # none is near 0


KINDS = ("normal", "outliers", "relu", "gelu", "heavy", "far")


def seen(numbers: Floats, divisor: Floats | None = None) -> Histogram:
    histogram = Histogram(divisor)
    histogram.observe(numbers.reshape(-1, 1 if divisor is None else len(divisor)))
    return histogram


def width(histogram: Histogram) -> float:
    return math.ldexp(1, histogram.exponent)


@pytest.mark.parametrize("kind", KINDS)
def test_min_max_and_percentile_are_those_of_sorted_numbers(kind: str) -> None:
    numbers = sample(kind)
    histogram, ordered = seen(numbers), np.sort(numbers)
    assert histogram.range_by("min-max") == (ordered[0], ordered[-1])
    low, high = histogram.range_by("percentile")
    cut = len(ordered) // 20_000  # half of one in ten thousand
    assert low <= ordered[cut] <= low + width(histogram)
    assert high - width(histogram) <= ordered[-1 - cut] <= high
    assert width(histogram) * BINS <= 2 * np.abs(numbers).max() * (1 + 1e-6)


def test_percentile_of_few_numbers_cuts_off_none() -> None:
    assert seen(np.arange(-4, 8, dtype=np.float32)).range_by("percentile") == (-4, 7)


def rounding_error(numbers: Floats, low: float, high: float) -> float:
    """Round as QuantizeLinear and DequantizeLinear do, and return the mean squared error."""
    step, zero = uint8_params(low, high)
    whole = np.clip(np.rint(numbers / step) + zero, 0, 255)
    return float((((whole - zero) * step - numbers.astype(np.float64)) ** 2).mean())


@pytest.mark.parametrize("kind", KINDS)
def test_mse_is_the_best_of_all_ranges(kind: str) -> None:
    """No range between fractions of both ends, finer than those that are tried, is noticeably better."""
    numbers = sample(kind)
    error = rounding_error(numbers, *seen(numbers).range_by("mse"))
    ends = min(float(numbers.min()), 0), max(float(numbers.max()), 0)
    shares = np.linspace(0.02, 1, 50)
    best = min(rounding_error(numbers, ends[0] * a, ends[1] * b) for a, b in itertools.product(shares, shares))
    assert error <= 1.03 * best
    assert error <= 1.001 * rounding_error(numbers, *ends)


def divergence_by_hand(counts: list[int], cut_at: int, steps: int) -> float:
    """Follow the published description number by number."""
    reference = [float(count) for count in counts[:cut_at]]
    reference[-1] += sum(counts[cut_at:])
    rounded = [0.0] * cut_at
    for step in range(steps):
        bins = [i for i in range(cut_at) if i * steps // cut_at == step]
        filled = [i for i in bins if reference[i] > 0]
        for i in filled:
            rounded[i] = sum(counts[j] for j in bins) / len(filled)
    total, result = sum(rounded), 0.0
    for p, q in zip(reference, rounded, strict=True):
        if p > 0:
            if q == 0:
                return math.inf
            result += p / sum(reference) * math.log(p / sum(reference) * total / q)
    return result


@given(st.lists(st.integers(0, 50), min_size=128, max_size=200), st.integers(0, 72))
@settings(deadline=None, max_examples=30)
def test_divergence_is_that_of_the_description(counts: list[int], cut: int) -> None:
    counts[-1] += 1
    cut_at = max(128, len(counts) - cut)
    expected = divergence_by_hand(counts, cut_at, 128)
    assert divergence(np.array(counts), cut_at) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("kind", ["outliers", "gelu", "heavy"])
def test_entropy_is_the_best_cut_of_the_magnitudes(kind: str) -> None:
    numbers = sample(kind, 4000)
    histogram = seen(numbers)
    step = width(histogram) * BINS / 2048
    counts = np.bincount((np.abs(numbers) / np.float32(step)).astype(int)).tolist()
    tried = [*range(128, len(counts), 31), len(counts)]  # of all, which take plain Python seconds
    least = min(divergence_by_hand(counts, cut_at, 128) for cut_at in tried)
    low, high = histogram.range_by("entropy")
    cut_at = round(max(-low, high) / step)
    assert divergence_by_hand(counts, min(cut_at, len(counts)), 128) <= least * 1.001
    assert (low, high) == (max(float(numbers.min()), -cut_at * step), min(float(numbers.max()), high))


def test_what_is_cut_off() -> None:
    """One number in four thousand is an outlier: too many for a percentile, worth their error to ``mse``."""
    histogram = seen(sample("outliers"))
    assert histogram.range_by("percentile") == histogram.range_by("min-max") == (-25, 60)
    assert histogram.range_by("entropy")[1] < 5
    assert histogram.range_by("mse")[1] > 50
    rare = sample("normal", 400_000)
    rare[:7] = 1000
    assert seen(rare).range_by("percentile")[1] < 13
    assert seen(rare).range_by("min-max")[1] == 1000


def test_zeros_do_not_count_where_they_cost_nothing() -> None:
    """A Relu makes half of the numbers 0; the others have the range that they would have alone."""
    numbers = sample("relu")
    for method in ("entropy", "mse"):
        assert seen(numbers).range_by(method)[1] == seen(numbers[numbers > 0]).range_by(method)[1]


def test_what_is_left_is_never_a_small_part() -> None:
    numbers = sample("far")
    low, high = seen(numbers).range_by("entropy")
    assert ((numbers >= low) & (numbers <= high)).mean() >= 0.9


numbers_of_any_size = arrays(
    np.float32, st.integers(1, 60).map(lambda n: (n, 2)), elements=st.floats(width=32, allow_subnormal=True)
)


@given(numbers_of_any_size, st.lists(st.integers(0, 60), max_size=5), st.integers(0, 9))
@example(np.array([[0.25, 0], [0, 0]], np.float32), [1], 0)
@settings(deadline=None, max_examples=40)
def test_batches_and_their_order_do_not_matter(rows: Floats, cuts: list[int], seed: int) -> None:
    whole = Histogram()
    whole.observe(rows)
    parts = np.split(rows, sorted(min(cut, len(rows)) for cut in cuts))
    np.random.default_rng(seed).shuffle(parts)
    streamed, merged = Histogram(), Histogram()
    for part in parts:
        streamed.observe(part)
        alone = Histogram()
        alone.observe(part)
        merged.merge(alone)
    expected = whole.exponent, whole.low, whole.high, whole.zeros
    for histogram in (streamed, merged):
        assert (histogram.exponent, histogram.low, histogram.high, histogram.zeros) == expected
        np.testing.assert_array_equal(histogram.counts, whole.counts)
    assert whole.counts.sum() == np.isfinite(rows).sum()
    if whole.counts.any():
        for method in ("min-max", "percentile", "entropy"):
            low, high = whole.range_by(method)
            assert min(whole.low, 0) <= low <= high <= max(whole.high, 0)


def test_merging_leaves_the_other_as_it_is() -> None:
    small, large = seen(np.ones(8, np.float32)), seen(np.full(8, 1000, np.float32))
    before = small.counts.copy()
    large.merge(small)
    np.testing.assert_array_equal(small.counts, before)
    assert large.range_by("min-max") == (1, 1000)


def test_numbers_that_are_not_finite_do_not_count() -> None:
    numbers = np.array([[1, np.inf, -2, np.nan], [np.nan, -np.inf, 0, 3]], np.float32)
    histogram = Histogram()
    histogram.observe(numbers)
    assert histogram.range_by("min-max") == (-2, 3)
    assert (histogram.counts.sum(), histogram.zeros) == (4, 1)


def test_numbers_are_divided_channel_by_channel() -> None:
    rows = sample("normal").reshape(-1, 4) * np.array([1, 50, 0.1, 7], np.float32)
    divisor = np.array([2, 100, 0.2, 14], np.float32)
    np.testing.assert_array_equal(seen(rows, divisor).counts, seen((rows / divisor).astype(np.float32)).counts)


def test_memory_does_not_grow_with_the_number_of_rows() -> None:
    rng = np.random.default_rng(0)
    peaks = []
    histogram = Histogram()
    tracemalloc.start()
    for batches in (4, 100):
        tracemalloc.reset_peak()
        for _ in range(batches):
            histogram.observe(rng.standard_normal((64, 256), np.float32) * 10 ** rng.uniform(-3, 3))
        peaks.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]
    assert histogram.counts.nbytes == 2 * BINS * 8


@pytest.mark.parametrize(
    ("low", "high", "step", "zero"),
    [(-1, 1.55, 0.01, 100), (0, 255, 1, 0), (3, 51, 0.2, 0), (-51, -3, 0.2, 255), (0, 0, 1, 0), (-1e-40, 0, 1, 0)],
)
def test_steps_by_hand(low: float, high: float, step: float, zero: int) -> None:
    params = uint8_params(low, high)
    assert params[0] == pytest.approx(step)
    assert params[1] == zero


def test_constant_numbers_have_a_range() -> None:
    for value in (0.0, 2.5, -2.5):
        histogram = seen(np.full(8, value, np.float32))
        for method in METHODS:
            low, high = histogram.range_by(method)
            step, zero = uint8_params(low, high)
            rounded = (np.clip(round(value / step) + zero, 0, 255) - zero) * step
            assert rounded == pytest.approx(value, rel=0.005), method


def test_what_cannot_be_found_is_said() -> None:
    with pytest.raises(QuantizationError, match="'max' is not one of min-max, percentile, entropy, mse"):
        seen(np.ones(8, np.float32)).range_by("max")
    with pytest.raises(QuantizationError, match="no sample text reaches a layer"):
        Histogram().range_by("mse")
    assert list(ranges.METHODS) == ["min-max", "percentile", "entropy", "mse"]
