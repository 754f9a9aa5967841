"""Metrics of labelled examples: functions of arrays with a row for each example.

Intervals have a confidence of 95 %. That of a share is Wilson's (1927), which stays within 0 and 1; others are
bootstrapped (Efron, 1979).
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

RESAMPLES = 1000
PERCENTILES = (2.5, 97.5)
Z = 1.959963984540054  # standard deviations around the mean that hold 95 % of a normal distribution
PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def mean(rows: Doubles) -> float:
    """Return the mean of numbers (n, 1)."""
    return float(rows.mean())


def ratio(rows: Doubles) -> float:
    """Return the sum of the first numbers of rows (n, 2) by that of the second."""
    return float(rows[:, 0].sum() / max(rows[:, 1].sum(), 1e-12))


def perplexity(rows: Doubles) -> float:
    """Return the perplexity of texts; rows (n, 2) are their -log p and number of tokens."""
    return math.exp(min(ratio(rows), 700))


def macro_f1(rows: Doubles) -> float:
    """Return the mean F1 of the labels that occur; rows (n, 2) are the right and the predicted label."""
    right, chosen = rows.astype(np.int64).T
    size = int(rows.max()) + 1
    hits = np.bincount(right[right == chosen], minlength=size)
    used = np.bincount(right, minlength=size) + np.bincount(chosen, minlength=size)
    return float((2 * hits[used > 0] / used[used > 0]).mean())


def span_f1(rows: Doubles) -> float:
    """Return F1 of spans; rows (n, 3) are the numbers of correct, predicted and expected ones.

    Without any spans it is 1.
    """
    hits, predicted, expected = rows.sum(0)
    return float(2 * hits / (predicted + expected)) if predicted + expected else 1.0


def spearman(rows: Doubles) -> float:
    """Return the rank correlation of two numbers (n, 2); 0 where either is constant."""
    first, second = ranks(rows[:, 0]), ranks(rows[:, 1])
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


def ranks(numbers: Doubles) -> Doubles:
    """Return the rank of each number (n,); equal numbers share their mean rank."""
    _, place, count = np.unique(numbers, return_inverse=True, return_counts=True)
    middle: Doubles = count.cumsum() - (count - 1) / 2
    return middle[place.reshape(-1)]


def wilson(rows: Doubles) -> Interval:
    """Return Wilson's interval of the share of ones among zeros and ones (n, 1)."""
    count, share = len(rows), float(rows.mean())
    middle = (share + Z**2 / (2 * count)) / (1 + Z**2 / count)
    width = Z * math.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2)) / (1 + Z**2 / count)
    return max(0.0, min(share, middle - width)), min(1.0, max(share, middle + width))  # but for rounding


def bootstrap(figure: Figure, *sides: Doubles, seed: int = 0) -> Interval:
    """Return the bootstrap interval of a figure of rows (n, k).

    Of two sides, it is that of their difference.
    """
    rng, count, resampled = np.random.default_rng(seed), len(sides[0]), []
    for _ in range(RESAMPLES):
        drawn = rng.integers(0, count, count)
        figures = [figure(rows[drawn]) for rows in sides]
        resampled.append(figures[-1] - (figures[0] if len(figures) > 1 else 0))
    low, high = np.percentile(resampled, PERCENTILES)
    return float(low), float(high)


def edits(said: Sequence[str], right: Sequence[str]) -> int:
    """Return the edit distance of two sequences of words (Levenshtein, 1966)."""
    row = np.arange(len(right) + 1)
    places = np.arange(len(right) + 1)
    for count, word in enumerate(said, start=1):
        differs = np.array([word != expected for expected in right], np.int64)
        best = np.concatenate([[count], np.minimum(row[1:] + 1, row[:-1] + differs)])
        row = np.minimum.accumulate(best - places) + places  # insertions from the left
    return int(row[-1])


def plain(answer: str) -> list[str]:
    """Return the words of an answer without case, punctuation and articles (Rajpurkar et al., 2016)."""
    return ARTICLES.sub(" ", answer.lower().translate(PUNCTUATION)).split()


def answer_f1(said: str, right: str) -> float:
    """Return F1 of the words of an answer.

    It is 1 if both are empty, and 0 if only one is.
    """
    words, expected = plain(said), plain(right)
    if not words or not expected:
        return float(words == expected)
    return 2 * sum((Counter(words) & Counter(expected)).values()) / (len(words) + len(expected))
