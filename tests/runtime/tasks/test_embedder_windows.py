"""Texts longer than the model: the mean of their windows, equal to what is worked out by hand."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgebert_runtime import Bundle, Embedder
from edgebert_runtime.errors import InputError
from tests.runtime.conftest import changed

TEXT = st.lists(st.sampled_from("the cat sat on a mat dog rain é 日 zzz .".split()), max_size=70).map(" ".join)


def by_hand(
    engine: Embedder, encode: Callable[[list[int]], Any], text: str, size: int, stride: int, normalize: bool = True
) -> Any:
    """Average the reference's vectors of windows of ``size`` tokens, special tokens apart."""
    ids = engine._tokenizer.content(text).ids
    parts, start = [], 0
    while True:
        parts.append(ids[start : start + size])
        if start + size >= len(ids):
            break
        start += size - stride
    total = sum(len(part) * encode([2, *part, 3]).astype(np.float64) for part in parts) / max(1, sum(map(len, parts)))
    if not ids:
        return encode([2, 3])
    return total / np.linalg.norm(total) if normalize else total


@settings(max_examples=25, deadline=None)
@given(TEXT, st.integers(3, 40), st.data())
def test_equals_the_mean_by_hand(engine: Embedder, reference: Any, text: str, limit: int, data: st.DataObject) -> None:
    import torch

    def encode(ids: list[int]) -> Any:
        row = torch.tensor([ids])
        with torch.no_grad():
            return reference(row, torch.ones_like(row), torch.zeros_like(row))[0].numpy()

    stride = data.draw(st.integers(0, limit - 3))
    result = engine.embed_detailed([text, "the cat"], long_texts="mean", stride=stride, max_tokens=limit)
    expected = by_hand(engine, encode, text, limit - 2, stride)
    np.testing.assert_allclose(result.vectors[0], expected, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(result.vectors[0]), 1, atol=1e-5)
    assert result.token_counts.tolist() == [len(engine._tokenizer.content(text).ids) + 2, 4]
    assert not result.truncated.any()


def test_short_texts_are_as_without_windows(engine: Embedder) -> None:
    texts = ["the cat", "", "the " * 14]
    np.testing.assert_allclose(engine.embed(texts, long_texts="mean"), engine.embed(texts), atol=1e-6)


def test_nothing_is_cut_and_nobody_warned(engine: Embedder, caplog: pytest.LogCaptureFixture) -> None:
    texts = ["the " * 100 + word for word in ("cat", "dog")]
    with caplog.at_level(logging.WARNING, logger="edgebert"):
        first, second = engine.embed(texts, long_texts="mean")
    assert not caplog.records
    assert not np.allclose(first, second)
    engine.embed(texts, long_texts="mean", truncate=False)
    streamed = list(engine.stream(iter(texts), long_texts="mean", stride=4))
    np.testing.assert_allclose(streamed, engine.embed(texts, long_texts="mean", stride=4), atol=1e-6)


def test_a_bundle_that_does_not_normalize_gives_the_mean_itself(engine: Embedder, tmp_path: Any) -> None:
    path = changed(
        engine.bundle.path, tmp_path / "bundle", change=lambda data: data["settings"].update(normalize=False)
    )

    class Lengths:
        def run(self, output_names: Any, feeds: Any) -> Any:
            return [np.repeat(feeds["attention_mask"].sum(1, keepdims=True), engine.dim, 1).astype(np.float32)]

    fake = Embedder(Bundle.open(path), session=Lengths())
    # windows of 14, 14 and 2 tokens, with two special ones each
    (vector,) = fake.embed(["the " * 30], long_texts="mean")
    np.testing.assert_allclose(vector, np.full(engine.dim, (14 * 16 + 14 * 16 + 2 * 4) / 30), rtol=1e-6)


def test_token_ids_are_taken_as_they_are(engine: Embedder) -> None:
    ids = [2, *[5, 6, 7] * 8, 3]
    np.testing.assert_allclose(engine.embed([ids], long_texts="mean"), engine.embed([ids]), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"long_texts": "max"}, "long_texts='max' is not one of truncate, mean"),
        ({"long_texts": True}, "long_texts=True"),
        ({"long_texts": "mean", "stride": 14}, "stride=14 is not between 0 and 13"),
        ({"long_texts": "mean", "stride": -1}, "stride=-1"),
        ({"long_texts": "mean", "stride": 1.5}, "stride=1.5 is not a whole number"),
        ({"long_texts": "mean", "stride": True}, "stride=True is not a whole number"),
        ({"long_texts": "mean", "stride": "8"}, "stride='8' is not a whole number"),
        ({"stride": 3}, "stride=3 has an effect with long_texts='mean' only"),
    ],
)
def test_bad_options_are_named(engine: Embedder, options: dict[str, Any], message: str) -> None:
    for call in (engine.embed, engine.embed_detailed, engine.stream):
        with pytest.raises(InputError, match=message):
            call(["the"], **options)
