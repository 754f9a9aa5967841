"""Find the range of an activation that 8 bits are spread over, from its numbers on sample texts.

==============  ==============================================================================================
method          range
==============  ==============================================================================================
``min-max``     from the least number to the largest
``percentile``  what is left when one of ten thousand numbers is cut off, half of them at each end
``entropy``     cut off where rounding leaves most of what the magnitudes tell: least Kullback-Leibler divergence of
                128 steps, as in NVIDIA's TensorRT (Migacz, 2017, "8-bit inference with TensorRT")
``mse``         of many ranges the one with the least squared error of the rounded numbers
==============  ==============================================================================================

Numbers are counted while they come, in bins whose width is a power of two and grows when a number is too large for
them. So memory is the same for any number of texts, and what is found depends neither on the order of the numbers nor
on how they come in batches: two bins become one of twice the width exactly.
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

# Bins for the magnitudes of negative numbers, and as many for the others; a power of two.
BINS = 8192
# log2 of the width of a bin, at least: smaller numbers are as good as zero.
LEAST_EXPONENT = -120
# Of a hundred numbers, how many are in the range of ``percentile``.
PERCENT = 99.99
# Bins that ``entropy`` looks at, the steps that magnitudes are rounded to, and the share of them that it may not cut
# off: where nearly all are larger than the range, they are alike once cut off, and rounding changes nothing.
ENTROPY_BINS, ENTROPY_STEPS, ENTROPY_SHARE = 2048, 128, 0.9
# Bins at each side that ``mse`` looks at, and what it tries: these shares of both ends of the whole range.
MSE_BINS = 1024
SHARES = tuple((2.0 ** (-np.arange(48) / 16)).tolist())
# Steps between the ends of a range in 8 bits.
STEPS = 255


@dataclass
class Histogram:
    """An observer that counts how often an activation had numbers of which size.

    ``counts`` (2, :data:`BINS`) are those of the magnitudes of negative numbers, and of the others, in bins as wide as
    2 to the power of ``exponent``; ``zeros`` of the others are 0. All is divided by ``divisor`` (dim,) first, if given.
    """

    divisor: Floats | None = None
    exponent: int = LEAST_EXPONENT
    low: float = np.inf
    high: float = -np.inf
    zeros: int = 0
    counts: Integers = field(default_factory=lambda: np.zeros((2, BINS), np.int64))

    def look(self, rows: Floats) -> None:
        """Count the numbers of rows (n, dim), but for those that are not finite."""
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
        """Make the bins as wide as 2 to the power of ``exponent``, if they are narrower."""
        if exponent > self.exponent:
            shift = min(exponent - self.exponent, BINS.bit_length() - 1)  # by so much all come into the first bin
            wider = np.zeros_like(self.counts)
            wider[:, : BINS >> shift] = self.counts.reshape(2, -1, 1 << shift).sum(2)
            self.counts, self.exponent = wider, exponent

    def merge(self, other: Histogram) -> None:
        """Count as well what another one has counted, which is left as it is."""
        theirs = Histogram(exponent=other.exponent, counts=other.counts)
        theirs.widen(self.exponent)
        self.widen(theirs.exponent)
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.counts, self.zeros = self.counts + theirs.counts, self.zeros + other.zeros

    def grouped(self, bins: int) -> tuple[Integers, float]:
        """Return the counts (2, ``bins``) in fewer bins, and how wide these are."""
        counts: Integers = self.counts.reshape(2, bins, -1).sum(2)
        return counts, float(np.ldexp(BINS / bins, self.exponent))

    def range_by(self, method: str) -> Range:
        """Return the range that a method of this module finds, by its name.

        Raises:
            QuantizationError: if there is no such method, or nothing was counted.
        """
        if method not in METHODS:
            raise QuantizationError(f"calibration_method {method!r} is not one of {', '.join(METHODS)}")
        if not self.counts.any():
            raise QuantizationError("no sample text reaches a layer that was to be quantized; give other --calibration")
        return METHODS[method](self)


def fitting_exponent(largest: float) -> int:
    """Return log2 of the width of the narrowest bins that take a magnitude."""
    return max(int(np.frexp(largest)[1]) - BINS.bit_length() + 1, LEAST_EXPONENT)


def uint8_steps(low: float, high: float) -> tuple[float, int]:
    """Return the step by which a range is rounded to whole numbers from 0 to 255, and which of them stands for 0.

    The range is widened to hold 0, which is a number like the others only then.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    step = (high - low) / STEPS
    if step < np.finfo(np.float32).tiny:  # a step of few bits; there is nothing but zeros
        return 1.0, 0
    return step, round(-low / step)


def min_max(seen: Histogram) -> Range:
    """Return the range of all numbers."""
    return seen.low, seen.high


def percentile(seen: Histogram) -> Range:
    """Return the range without the outermost numbers, up to a bin too wide at each end."""
    counts = np.concatenate([seen.counts[0, ::-1], seen.counts[1]])
    edges = np.ldexp(np.arange(-BINS, BINS + 1, dtype=np.float64), seen.exponent)
    cut = counts.sum() * (100 - PERCENT) / 200
    first = int(np.argmax(np.cumsum(counts) > cut))
    last = len(counts) - 1 - int(np.argmax(np.cumsum(counts[::-1]) > cut))
    return max(seen.low, float(edges[first])), min(seen.high, float(edges[last + 1]))


def entropy(seen: Histogram) -> Range:
    """Return the range within the magnitude whose steps tell most."""
    sides, width = seen.grouped(ENTROPY_BINS)
    counts: Integers = sides.sum(0)
    counts[0] -= seen.zeros  # which are rounded to themselves, and often half of all
    counts = np.trim_zeros(counts, "b")
    least = int(np.searchsorted(np.cumsum(counts), ENTROPY_SHARE * counts.sum())) + 1
    tried = range(len(counts), max(least, ENTROPY_STEPS) - 1, -1)  # of equally good ones the widest
    kept = min(tried, key=lambda bins: divergence(counts, bins), default=len(counts))
    return max(seen.low, -kept * width), min(seen.high, kept * width)


def divergence(counts: Integers, kept: int) -> float:
    """Return the Kullback-Leibler divergence of magnitudes that are cut off behind ``kept`` bins and rounded.

    The larger ones all count as the last bin. Rounded ones are spread evenly over the bins of a step that have any.
    """
    clipped = counts[:kept].astype(np.float64)
    clipped[-1] += counts[kept:].sum()
    step, used = np.arange(kept) * ENTROPY_STEPS // kept, clipped > 0
    sums = np.bincount(step, counts[:kept], ENTROPY_STEPS)
    spread = (sums / np.maximum(np.bincount(step, used, ENTROPY_STEPS), 1))[step][used]
    if not spread.all():
        return np.inf
    before, after = clipped[used] / clipped.sum(), spread / spread.sum()
    return float((before * np.log(before / after)).sum())


def mse(seen: Histogram) -> Range:
    """Return the range with the least squared error of those tried."""
    counts, width = seen.grouped(MSE_BINS)
    counts[1, 0] -= seen.zeros  # which are rounded to themselves
    both = np.concatenate([counts[0, ::-1], counts[1]])
    edges: Doubles = np.arange(-MSE_BINS, MSE_BINS + 1, dtype=np.float64) * width
    used = slice(int(np.argmax(both > 0)), len(both) - int(np.argmax(both[::-1] > 0)))
    both, edges = both[used], edges[used.start : used.stop + 1]
    ends = [[end * share for share in SHARES] if end else [0.0] for end in (min(seen.low, 0.0), max(seen.high, 0.0))]
    return min(((low, high) for low in ends[0] for high in ends[1]), key=lambda r: squared_error(both, edges, *r))


def squared_error(counts: Integers, edges: Doubles, low: float, high: float) -> float:
    """Return the squared error of numbers rounded to a range; ``counts`` (n,) are spread evenly between ``edges``.

    The error between two edges is an integral: of the square of a sawtooth in the range, of a parabola outside.
    """
    step, zero = uint8_steps(low, high)
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
