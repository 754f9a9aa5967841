"""Figures of quality, against numbers worked out by hand and by brute force."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgebert_exporters.reports.metrics import (
    answer_f1,
    bootstrap,
    edits,
    macro_f1,
    mean,
    perplexity,
    plain,
    ranks,
    ratio,
    span_f1,
    spearman,
    wilson,
)

WORDS = st.lists(st.sampled_from("abc"), max_size=7)


@settings(max_examples=200, deadline=None)
@given(WORDS, WORDS)
def test_edits_are_those_of_the_definition(said: list[str], right: list[str]) -> None:
    @cache
    def distance(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        changed = distance(i - 1, j - 1) + (said[i - 1] != right[j - 1])
        return min(changed, distance(i - 1, j) + 1, distance(i, j - 1) + 1)

    assert edits(said, right) == distance(len(said), len(right))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12))
def test_ranks_are_those_of_the_definition(numbers: list[int]) -> None:
    expected = [sum(b < a for b in numbers) + (sum(b == a for b in numbers) + 1) / 2 for a in numbers]
    assert ranks(np.array(numbers, np.float64)).tolist() == expected


def test_spearman_by_hand() -> None:
    first, second = [86, 97, 99, 100, 101], [0, 20, 28, 27, 50]
    squares = sum((a - b) ** 2 for a, b in zip([1, 2, 3, 4, 5], [1, 2, 4, 3, 5], strict=True))
    assert spearman(np.array([first, second], np.float64).T) == pytest.approx(1 - 6 * squares / (5 * 24))
    assert spearman(np.array([[1, 2], [2, 1], [3, 0]], np.float64)) == pytest.approx(-1)
    assert spearman(np.array([[1, 2], [1, 3]], np.float64)) == 0, "all the same say nothing about order"


def test_macro_f1_by_hand() -> None:
    # Label 0: 2 hits of 3 wanted and 2 found; label 1: 1 of 1 wanted and 2 found; label 3 is chosen and never right.
    rows = np.array([[0, 0], [0, 0], [0, 1], [1, 1], [4, 3]], np.float64)
    assert macro_f1(rows) == pytest.approx((4 / 5 + 2 / 3 + 0 + 0) / 4)
    assert macro_f1(np.array([[2, 2]], np.float64)) == 1


def test_sums_by_hand() -> None:
    assert span_f1(np.array([[1, 2, 1], [0, 0, 1]], np.float64)) == pytest.approx(2 * 1 / (2 + 2))
    assert span_f1(np.zeros((3, 3))) == 1
    assert ratio(np.array([[1, 4], [2, 2]], np.float64)) == 0.5
    assert mean(np.array([[1], [0], [0.5]])) == 0.5
    assert perplexity(np.array([[math.log(16), 1], [0, 1]])) == pytest.approx(4)
    assert math.isfinite(perplexity(np.array([[1e9, 1]])))


@pytest.mark.parametrize(
    ("said", "right", "words", "f1"),
    [
        ("The  Cat, sat!", "cat sat", ["cat", "sat"], 1),
        ("a cat sat there", "the cat ran", ["cat", "sat", "there"], 2 / 5),
        ("cat cat", "cat", ["cat", "cat"], 2 / 3),
        ("the", "", [], 1),
        ("", "cat", [], 0),
        ("dog", "cat", ["dog"], 0),
    ],
)
def test_answers_by_hand(said: str, right: str, words: list[str], f1: float) -> None:
    assert plain(said) == words
    assert answer_f1(said, right) == pytest.approx(f1)


@pytest.mark.parametrize(("hits", "count"), [(0, 1), (0, 10), (3, 10), (10, 10), (50, 1000)])
def test_wilson_solves_its_equation(hits: int, count: int) -> None:
    """Its ends are the shares from which what was seen is 1.96 standard deviations away."""
    low, high = wilson(np.array([[1.0]] * hits + [[0.0]] * (count - hits)))
    share = hits / count
    assert 0 <= low <= share <= high <= 1
    for end in {low, high} - {0.0, 1.0, share}:
        assert abs(share - end) / math.sqrt(end * (1 - end) / count) == pytest.approx(1.96, abs=1e-3)


def test_the_bootstrap_is_near_the_exact_one() -> None:
    rows = np.array([[0.0], [1.0], [5.0], [7.0]])
    means = [float(np.mean(drawn)) for drawn in itertools.product(rows[:, 0], repeat=4)]
    low, high = np.percentile(means, (2.5, 97.5))
    assert bootstrap(mean, rows) == pytest.approx((low, high), abs=0.3)
    assert bootstrap(mean, rows) == bootstrap(mean, rows)
    assert bootstrap(mean, rows, rows + 2) == pytest.approx((2, 2)), "both sides are drawn alike"
