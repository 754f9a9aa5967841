"""How good answers are, as numbers: each a function of arrays with a row for each example.

An interval is where a figure lies with 95 % of the sets of as many examples: for a share, that of Wilson (1927), which
knows that a share ends at 0 and 1; for others, what sets that are drawn from the examples give (Efron, 1979).
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Figure = Callable[[Doubles], float]
Interval = tuple[float, float]

DRAWN = 1000  # sets of examples
PERCENTILES = (2.5, 97.5)
Z = 1.959963984540054  # within so many standard deviations lie 95 % of a normal distribution
PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def mean(rows: Doubles) -> float:
    """Return the mean of numbers (n, 1)."""
    return float(rows.mean())


def ratio(rows: Doubles) -> float:
    """Return the sum of the first numbers of rows (n, 2) by that of the second."""
    return float(rows[:, 0].sum() / max(rows[:, 1].sum(), 1e-12))


def perplexity(rows: Doubles) -> float:
    """Return the perplexity of texts, of -log p and the number of tokens of each (n, 2)."""
    return math.exp(min(ratio(rows), 700))


def macro_f1(rows: Doubles) -> float:
    """Return the mean of the F1 of each label that occurs, of the right and the chosen label of each text (n, 2)."""
    right, chosen = rows.astype(np.int64).T
    size = int(rows.max()) + 1
    hits = np.bincount(right[right == chosen], minlength=size)
    used = np.bincount(right, minlength=size) + np.bincount(chosen, minlength=size)
    return float((2 * hits[used > 0] / used[used > 0]).mean())


def span_f1(rows: Doubles) -> float:
    """Return F1, of the spans of each text (n, 3) that are right, that were found, and that should have been.

    Where there are none to be found and none were, it is 1.
    """
    hits, found, wanted = rows.sum(0)
    return float(2 * hits / (found + wanted)) if found + wanted else 1.0


def spearman(rows: Doubles) -> float:
    """Return the correlation of the ranks of two numbers (n, 2); 0 where one is always the same."""
    first, second = ranks(rows[:, 0]), ranks(rows[:, 1])
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


def ranks(numbers: Doubles) -> Doubles:
    """Return the rank of each number (n,), equal ones sharing the mean of theirs."""
    _, place, count = np.unique(numbers, return_inverse=True, return_counts=True)
    middle: Doubles = count.cumsum() - (count - 1) / 2
    return middle[place.reshape(-1)]


def wilson(rows: Doubles) -> Interval:
    """Return the interval of the share of ones among zeros and ones (n, 1)."""
    count, share = len(rows), float(rows.mean())
    middle = (share + Z**2 / (2 * count)) / (1 + Z**2 / count)
    width = Z * math.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2)) / (1 + Z**2 / count)
    return max(0.0, min(share, middle - width)), min(1.0, max(share, middle + width))  # but for rounding


def bootstrap(figure: Figure, *sides: Doubles, seed: int = 0) -> Interval:
    """Return the interval of a figure of rows (n, k); of two arrays of rows, that of the second minus the first."""
    rng, count, found = np.random.default_rng(seed), len(sides[0]), []
    for _ in range(DRAWN):
        drawn = rng.integers(0, count, count)
        figures = [figure(rows[drawn]) for rows in sides]
        found.append(figures[-1] - (figures[0] if len(figures) > 1 else 0))
    low, high = np.percentile(found, PERCENTILES)
    return float(low), float(high)


def edits(said: Sequence[str], right: Sequence[str]) -> int:
    """Return how many words have to be changed, put in or taken out to make one sequence the other."""
    row = np.arange(len(right) + 1)
    places = np.arange(len(right) + 1)
    for count, word in enumerate(said, start=1):
        other = np.array([word != one for one in right], np.int64)
        best = np.concatenate([[count], np.minimum(row[1:] + 1, row[:-1] + other)])
        row = np.minimum.accumulate(best - places) + places  # put in from the left
    return int(row[-1])


def plain(answer: str) -> list[str]:
    """Return the words of an answer without case, punctuation and articles (Rajpurkar et al., 2016)."""
    return ARTICLES.sub(" ", answer.lower().translate(PUNCTUATION)).split()


def answer_f1(said: str, right: str) -> float:
    """Return F1 of the words of an answer; of an empty one, whether the other is empty as well."""
    one, other = plain(said), plain(right)
    if not one or not other:
        return float(one == other)
    return 2 * sum((Counter(one) & Counter(other)).values()) / (len(one) + len(other))
