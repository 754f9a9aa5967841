"""The best of many scores against sorting all of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgebert_runtime.errors import EdgebertError
from edgebert_runtime.generation.top_k import log_norms, log_softmax, top_indices, top_of_logits, top_of_scores


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 700), st.integers(1, 40), st.sampled_from([1, 5, 1000]), st.floats(0, 1))
def test_the_top_indices_are_those_of_a_stable_sort(seed: int, size: int, count: int, levels: int, gone: float) -> None:
    rng = np.random.default_rng(seed)
    row = rng.integers(-levels, levels + 1, size).astype(np.float32)
    row[rng.random(size) < gone] = -np.inf
    order = np.argsort(-row, kind="stable")
    expected = [place for place in order[:count] if row[place] > -np.inf]
    assert top_indices(row, count).tolist() == expected


@pytest.mark.parametrize("shape", [(1, 50257), (3, 1000), (2, 5)])
@pytest.mark.parametrize("shift", [0, 1000, -1000])
def test_log_probabilities_equal_those_of_torch(shape: tuple[int, int], shift: float) -> None:
    logits = np.random.default_rng(3).normal(shift, 5, shape).astype(np.float32)
    logits[:, 3] = -np.inf
    expected = torch.from_numpy(logits).double().log_softmax(-1).numpy()
    np.testing.assert_allclose(log_softmax(logits), expected, atol=1e-5, rtol=2e-6)
    top = top_of_logits(logits, 4)
    np.testing.assert_array_equal(top.ids, np.argsort(-logits, axis=1, kind="stable")[:, :4])
    np.testing.assert_allclose(top.logprobs, np.take_along_axis(expected, top.ids, axis=1), atol=1e-5, rtol=2e-6)
    same = top_of_scores(log_softmax(logits), 4)
    np.testing.assert_allclose(same.logprobs, top.logprobs, atol=1e-5, rtol=2e-6)
    second = np.take_along_axis(logits, top.ids[:, 1:2], axis=1)[:, 0] - log_norms(logits)
    np.testing.assert_allclose(second, top.logprobs[:, 1], atol=1e-5, rtol=2e-6)


def test_places_that_do_not_exist_have_no_probability() -> None:
    top = top_of_logits(np.array([[-np.inf, 2, -np.inf], [1, 1, 1]], dtype=np.float32), 9)
    assert top.logprobs[0].tolist() == [0, -np.inf, -np.inf]
    assert top.ids[1].tolist() == [0, 1, 2]


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("count", [1, 3])
def test_what_is_no_number_is_an_error(value: float, count: int) -> None:
    logits = np.zeros((2, 200), dtype=np.float32)
    logits[1, 70] = value
    with pytest.raises(EdgebertError, match="not finite"):
        top_of_logits(logits, count)
    with pytest.raises(EdgebertError, match="not finite"):
        log_softmax(logits)
    with pytest.raises(EdgebertError, match="not finite"):
        log_softmax(np.full((1, 4), -np.inf, dtype=np.float32))
