"""Batches hold every row once and stay within their budget."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgebert_runtime.inputs.batching import pad, plan_batches


@given(st.lists(st.integers(0, 600), max_size=80), st.integers(1, 700))
def test_every_row_once_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = plan_batches(lengths, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        rows = [lengths[index] for index in batch]
        assert rows == sorted(rows, reverse=True)
        if len(rows) > 1:
            assert len(rows) * max(rows) <= budget
    longest = [lengths[batch[0]] for batch in batches]
    assert longest == sorted(longest, reverse=True)


@given(st.lists(st.integers(1, 600), min_size=1, max_size=80), st.integers(1, 700))
def test_no_batch_could_take_the_next_row(lengths: list[int], budget: int) -> None:
    batches = plan_batches(lengths, budget)
    for batch, following in zip(batches, batches[1:], strict=False):
        rows = [lengths[index] for index in [*batch, following[0]]]
        assert len(rows) * max(rows) > budget


def test_one_long_text_among_many_short_ones() -> None:
    lengths = [512] + [3] * 1000
    area = max(len(batch) * max(lengths[index] for index in batch) for batch in plan_batches(lengths, 1024))
    assert area <= 1024
    assert plan_batches([], 10) == []


@pytest.mark.parametrize("rows", [[[5, 6, 7], [8]], [[5]], [[], [5]], [[]]])
def test_padding(rows: list[list[int]]) -> None:
    ids, mask = pad(rows)
    assert ids.shape == mask.shape == (len(rows), max(1, *map(len, rows)))
    assert ids.dtype == mask.dtype == np.int64
    assert [row[: len(row_mask.nonzero()[0])].tolist() for row, row_mask in zip(ids, mask, strict=True)] == rows
    assert not ids[mask == 0].any()
