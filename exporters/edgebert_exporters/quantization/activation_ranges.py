"""Calibration methods: the range of an activation in 8 bits.

==============  ==============================================================================================
method          range
==============  ==============================================================================================
``min-max``     from the least number to the largest
``percentile``  without the outermost of ten thousand numbers, half of them at each end
``entropy``     the clipping with the least Kullback-Leibler divergence of the magnitudes, in 128 levels, as in
                NVIDIA's TensorRT (Migacz, 2017, "8-bit inference with TensorRT")
``mse``         the candidate with the least squared error of the rounded numbers
==============  ==============================================================================================

Numbers are counted in bins whose width is a power of two, and doubles when a number is too large for them. So memory
is the same for any number of texts. Counts depend neither on the order of numbers nor on their batches: two bins become
one of twice the width exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from edgebert_exporters.quantization.weight_discovery import Floats
from edgebert_runtime.errors import QuantizationError

Range = tuple[float, float]
Integers = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

# Bins for the magnitudes of negative numbers, and for those of the others; a power of two.
BINS = 8192
# log2 of the smallest width of a bin; smaller numbers are as good as zero.
MIN_EXPONENT = -120
# The share of numbers in the range of ``percentile``, in percent.
PERCENT = 99.99
# The bins and levels of ``entropy``, and the least share of magnitudes in its range: where nearly all are clipped, they
# are all alike, and rounding changes nothing.
ENTROPY_BINS, ENTROPY_LEVELS, ENTROPY_SHARE = 2048, 128, 0.9
# The bins of ``mse`` at each side, and its candidates: shares of both ends of the whole range.
MSE_BINS = 1024
SHARES = tuple((2.0 ** (-np.arange(48) / 16)).tolist())
# Steps between the ends of a range in 8 bits.
STEPS = 255


@dataclass
class Histogram:
    """An observer that counts the numbers of an activation by size.

    ``counts`` (2, :data:`BINS`) are those of the magnitudes of negative numbers, and of the others, in bins of width
    2 ** ``exponent``; ``zeros`` of the others are 0. Numbers are divided by ``divisor`` (dim,) first, if given.
    """

    divisor: Floats | None = None
    exponent: int = MIN_EXPONENT
    low: float = np.inf
    high: float = -np.inf
    zeros: int = 0
    counts: Integers = field(default_factory=lambda: np.zeros((2, BINS), np.int64))

    def observe(self, rows: Floats) -> None:
        """Count the finite numbers of rows (n, dim)."""
        numbers = rows if self.divisor is None else rows / self.divisor
        numbers = numbers[np.isfinite(numbers)]
        if not numbers.size:
            return
        self.low, self.high = min(self.low, float(numbers.min())), max(self.high, float(numbers.max()))
        self.widen(fitting_exponent(max(-self.low, self.high)))
        bins = np.ldexp(np.abs(numbers), -self.exponent).astype(np.int64)
        bins[numbers >= 0] += BINS
        self.counts += np.bincount(bins, minlength=2 * BINS).reshape(2, BINS)
        self.zeros += int(np.count_nonzero(numbers == 0))

    def widen(self, exponent: int) -> None:
        """Widen the bins to 2 ** ``exponent``, if they are narrower."""
        if exponent > self.exponent:
            shift = min(exponent - self.exponent, BINS.bit_length() - 1)  # by so much all come into the first bin
            wider = np.zeros_like(self.counts)
            wider[:, : BINS >> shift] = self.counts.reshape(2, -1, 1 << shift).sum(2)
            self.counts, self.exponent = wider, exponent

    def merge(self, histogram: Histogram) -> None:
        """Add the counts of another histogram, which stays as it is."""
        widened = Histogram(exponent=histogram.exponent, counts=histogram.counts)
        widened.widen(self.exponent)
        self.widen(widened.exponent)
        self.low, self.high = min(self.low, histogram.low), max(self.high, histogram.high)
        self.counts, self.zeros = self.counts + widened.counts, self.zeros + histogram.zeros

    def grouped(self, bins: int) -> tuple[Integers, float]:
        """Return the counts (2, ``bins``) in fewer bins, and their width."""
        counts: Integers = self.counts.reshape(2, bins, -1).sum(2)
        return counts, float(np.ldexp(BINS / bins, self.exponent))

    def range_by(self, method: str) -> Range:
        """Return the range by a method of this module.

        Raises:
            QuantizationError: if there is no such method, or nothing was counted.
        """
        if method not in METHODS:
            raise QuantizationError(f"is not one of {', '.join(METHODS)}", option="calibration_method", value=method)
        if not self.counts.any():
            raise QuantizationError(
                "no sample text reaches a layer to quantize",
                hint="give other {calibration} texts",
                options={"calibration": ...},
            )
        return METHODS[method](self)


def fitting_exponent(largest: float) -> int:
    """Return log2 of the width of the narrowest bins that reach a magnitude."""
    if largest == 0:  # its exponent says nothing
        return MIN_EXPONENT
    return max(int(np.frexp(largest)[1]) - BINS.bit_length() + 1, MIN_EXPONENT)


def uint8_params(low: float, high: float) -> tuple[float, int]:
    """Return the scale and the zero point of a range in uint8.

    The range is widened to contain 0, so that 0 is exact.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    step = (high - low) / STEPS
    if step < np.finfo(np.float32).tiny:  # a scale of few bits: all numbers are zero
        return 1.0, 0
    return step, round(-low / step)


def min_max(histogram: Histogram) -> Range:
    """Return the range of all numbers."""
    return histogram.low, histogram.high


def percentile(histogram: Histogram) -> Range:
    """Return the range without the outermost numbers, to a bin."""
    counts = np.concatenate([histogram.counts[0, ::-1], histogram.counts[1]])
    edges = np.ldexp(np.arange(-BINS, BINS + 1, dtype=np.float64), histogram.exponent)
    cut = counts.sum() * (100 - PERCENT) / 200
    first = int(np.argmax(np.cumsum(counts) > cut))
    last = len(counts) - 1 - int(np.argmax(np.cumsum(counts[::-1]) > cut))
    return max(histogram.low, float(edges[first])), min(histogram.high, float(edges[last + 1]))


def entropy(histogram: Histogram) -> Range:
    """Return the range with the least divergence of the rounded magnitudes."""
    sides, width = histogram.grouped(ENTROPY_BINS)
    counts: Integers = sides.sum(0)
    counts[0] -= histogram.zeros  # which are rounded to themselves, and often half of all
    counts = np.trim_zeros(counts, "b")
    least = int(np.searchsorted(np.cumsum(counts), ENTROPY_SHARE * counts.sum())) + 1
    candidates = range(len(counts), max(least, ENTROPY_LEVELS) - 1, -1)  # of equally good ones the widest
    best = min(candidates, key=lambda bins: divergence(counts, bins), default=len(counts))
    return max(histogram.low, -best * width), min(histogram.high, best * width)


def divergence(counts: Integers, bins: int) -> float:
    """Return the Kullback-Leibler divergence of magnitudes that are clipped behind some ``bins`` and rounded.

    Larger ones count as the last bin. Rounded ones are spread evenly over the bins of a level that have any.
    """
    clipped = counts[:bins].astype(np.float64)
    clipped[-1] += counts[bins:].sum()
    level, used = np.arange(bins) * ENTROPY_LEVELS // bins, clipped > 0
    sums = np.bincount(level, counts[:bins], ENTROPY_LEVELS)
    spread = (sums / np.maximum(np.bincount(level, used, ENTROPY_LEVELS), 1))[level][used]
    if not spread.all():
        return np.inf
    before, after = clipped[used] / clipped.sum(), spread / spread.sum()
    return float((before * np.log(before / after)).sum())


def mse(histogram: Histogram) -> Range:
    """Return the candidate with the least squared error."""
    counts, width = histogram.grouped(MSE_BINS)
    counts[1, 0] -= histogram.zeros  # which are rounded to themselves
    signed = np.concatenate([counts[0, ::-1], counts[1]])
    edges: Doubles = np.arange(-MSE_BINS, MSE_BINS + 1, dtype=np.float64) * width
    used = slice(int(np.argmax(signed > 0)), len(signed) - int(np.argmax(signed[::-1] > 0)))
    signed, edges = signed[used], edges[used.start : used.stop + 1]
    lows, highs = (
        [end * share for share in SHARES] if end else [0.0]
        for end in (min(histogram.low, 0.0), max(histogram.high, 0.0))
    )
    return min(
        ((low, high) for low in lows for high in highs), key=lambda limits: squared_error(signed, edges, *limits)
    )


def squared_error(counts: Integers, edges: Doubles, low: float, high: float) -> float:
    """Return the squared error of numbers in a range of uint8.

    ``counts`` (n,) are spread evenly between ``edges``. The error between two edges is an integral: of a squared
    sawtooth in the range, of a parabola outside.
    """
    step, zero = uint8_params(low, high)
    units = edges / step
    inside = np.clip(units, -zero, STEPS - zero)
    whole = np.rint(inside)
    within, beyond = inside - whole, units - inside
    integral = whole / 12 + (within * within * within + beyond * beyond * beyond) / 3  # a power is ten times slower
    return float((counts * np.diff(integral)).sum() / np.diff(units[:2])[0] * step**2)


METHODS: dict[str, Callable[[Histogram], Range]] = {
    "min-max": min_max,
    "percentile": percentile,
    "entropy": entropy,
    "mse": mse,
}
