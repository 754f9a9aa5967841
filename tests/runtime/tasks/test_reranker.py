"""Scores of pairs: equal to the reference, sorted, and every input that must be refused."""

from __future__ import annotations

import itertools
import logging
import math
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

import edgebert_runtime
from edgebert_runtime import Bundle, Reranker
from edgebert_runtime.errors import BundleError, InputError, LimitError
from edgebert_runtime.tasks.base.batch_pipeline import WINDOW
from tests.runtime.conftest import Scripted, Tiny, changed

QUERY = "the cat sat on a mat"
PASSAGES = ["rain and moon", "", "[SEP] the cat", "dog " * 60, "é 日 zzz", " ", "a" * 500]
TEXT = st.lists(st.sampled_from("the cat sat on a mat dog rain [SEP] é 日 zzz .".split()), max_size=30).map(" ".join)


TASK = "rerank"  # of the fixture case


@pytest.fixture(scope="module")
def engine(case: Tiny) -> Reranker:
    return Reranker(Bundle.open(case.bundle))


def with_activation(engine: Reranker, folder: Path, activation: Any, outputs: int = 1) -> Bundle:
    def change(data: dict[str, Any]) -> None:
        data["settings"]["activation"] = activation
        data["graphs"]["model"]["outputs"][0]["shape"][-1] = outputs

    path = changed(engine.bundle.path, folder / "bundle", change=change)
    return Bundle(path, type(engine.bundle.manifest).from_json((path / "edgebert.json").read_text()))


def last_id(engine: Reranker) -> Reranker:
    """Return an engine whose logit is the last id before the last special token, minus 20."""
    session = Scripted(lambda ids, mask, types: ids[range(len(ids)), mask.sum(1) - 2][:, None] - 20.0)
    return Reranker(engine.bundle, session=session)


def expected(case: Tiny, first: str, second: str, limit: int = 40) -> float:
    """Compute a score with the reference, on what tokenizers makes of the pair."""
    plain = tokenizers.Tokenizer.from_file(str(case.bundle / "tokenizer.json"))
    plain.encode_special_tokens = True
    plain.enable_truncation(limit, strategy="longest_first")
    row = plain.encode(first, second)
    return 1 / (1 + math.exp(-case.logits(row.ids, row.type_ids)[0]))


@pytest.mark.parametrize("model_type", ["bert", "roberta"])
def test_equals_the_reference(tiny: Callable[..., Tiny], model_type: str) -> None:
    case = tiny("rerank", model_type)
    engine = edgebert_runtime.load(case.bundle)
    assert isinstance(engine, Reranker)
    assert engine.activation == "sigmoid"
    reference = [expected(case, QUERY, passage) for passage in PASSAGES]
    ranked = engine.rerank(QUERY, PASSAGES)
    assert [item.index for item in ranked] == sorted(range(len(PASSAGES)), key=lambda i: -reference[i])
    np.testing.assert_allclose([item.score for item in ranked], sorted(reference, reverse=True), atol=1e-5)
    assert [item.text for item in ranked] == [PASSAGES[item.index] for item in ranked]
    scores = engine.score([(QUERY, passage) for passage in PASSAGES])
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, reference, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(TEXT, st.lists(TEXT, min_size=1, max_size=9), st.integers(1, 90), st.integers(4, 40))
def test_batch_equals_single(engine: Reranker, query: str, passages: list[str], budget: int, limit: int) -> None:
    alone = [engine.rerank(query, [passage], max_tokens=limit)[0].score for passage in passages]
    ranked = engine.rerank(query, passages, max_tokens=limit, max_batch_tokens=budget)
    np.testing.assert_allclose([item.score for item in ranked], [alone[item.index] for item in ranked], atol=1e-5)
    assert sorted(item.index for item in ranked) == list(range(len(passages)))
    assert [item.score for item in ranked] == sorted((item.score for item in ranked), reverse=True)


def test_best_first_and_ties_in_order(engine: Reranker) -> None:
    fake = last_id(engine)
    passages = ["the", "dog", "cat", "dog", "the", "mat"]
    order = [item.index for item in fake.rerank(QUERY, iter(passages))]
    assert order == [1, 3, 5, 2, 0, 4]
    for top_k in range(1, 9):
        assert [item.index for item in fake.rerank(QUERY, passages, top_k=top_k)] == order[:top_k]


def test_each_activation(engine: Reranker, tmp_path: Path) -> None:
    cases: list[tuple[str, list[float], float]] = [
        ("sigmoid", [2.0], 0.8807970779778823),
        ("sigmoid", [-3e38], 0.0),
        ("identity", [-7.25], -7.25),
        ("softmax", [1.0, 3.0], 0.8807970779778823),
        ("softmax", [3e38, -3e38], 0.0),
    ]
    for activation, logits, score in cases:
        bundle = with_activation(engine, tmp_path, activation, len(logits))
        session = Scripted(lambda ids, mask, types, logits=logits: [logits] * len(ids))  # type: ignore[misc]
        (results,) = Reranker(bundle, session=session).rerank("a", ["b"])
        assert results.score == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize(
    ("activation", "outputs", "message"),
    [
        ("cube", 1, "setting activation='cube', not identity, sigmoid, softmax"),
        (None, 1, "setting activation=None"),
        ("sigmoid", 2, "2 outputs, sigmoid takes 1"),
        ("softmax", 3, "3 outputs, softmax takes 2"),
    ],
)
def test_settings_that_do_not_fit(
    engine: Reranker, tmp_path: Path, activation: Any, outputs: int, message: str
) -> None:
    bundle = with_activation(engine, tmp_path, activation, outputs)
    with pytest.raises(BundleError, match=message):
        Reranker(bundle, session=Scripted(lambda ids, mask, types: ids))


def test_long_queries_and_passages_are_cut_longest_first(
    case: Tiny, engine: Reranker, caplog: pytest.LogCaptureFixture
) -> None:
    passages = ["the " * 60, "cat", "dog " * 30]
    for query in ("mat " * 50, "mat"):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="edgebert"):
            ranked = engine.rerank(query, passages)
        cut = sum(item.truncated for item in ranked)
        assert cut == (3 if len(query) > 5 else 1)
        assert [record.getMessage() for record in caplog.records] == [f"{cut} of 3 texts were cut to 40 tokens"]
        for item in ranked:
            assert item.score == pytest.approx(expected(case, query, passages[item.index]), abs=1e-5)
            assert item.text == passages[item.index]
    with pytest.raises(LimitError, match="text 0 has 64 tokens, the limit is 40"):
        engine.rerank("mat", passages, truncate=False)


def test_order_survives_many_windows(engine: Reranker) -> None:
    fake = last_id(engine)
    words = ["the", "cat", "sat", "on"]
    pairs = [("the " * (i % 7), words[i % 4]) for i in range(2 * WINDOW + 9)]
    scores = fake.score(iter(pairs))
    np.testing.assert_allclose(scores, [1 / (1 + math.exp(20 - 5 - i % 4)) for i in range(len(pairs))], rtol=1e-5)


def test_scoring_reads_a_bounded_window_ahead(engine: Reranker) -> None:
    read, session = 0, Scripted(lambda ids, mask, types: np.zeros((len(ids), 1)))
    ahead: list[int] = []

    def source() -> Iterator[tuple[str, str]]:
        nonlocal read
        for _ in range(4 * WINDOW):
            read += 1
            ahead.append(read - sum(len(feeds["input_ids"]) for feeds in session.feeds))
            yield "the", "cat"

    assert len(Reranker(engine.bundle, session=session).score(source())) == 4 * WINDOW
    assert max(ahead) <= 2 * WINDOW


def test_nothing_in_nothing_out(engine: Reranker) -> None:
    assert engine.rerank("the", []) == engine.rerank("the", iter(()), top_k=3) == []
    assert engine.score([]).shape == (0,)
    assert engine.score([]).dtype == np.float32


@pytest.mark.parametrize(
    ("query", "passages", "message"),
    [
        ("a", "b", r"one str was given.*rerank\(query, \[passage\]\)"),
        ("a", None, "NoneType was given"),
        ("a", {"b": 1}, "dict was given"),
        ("a", ["b", 7], "passage 1 is int, not str"),
        ("a", [[5, 6]], "passage 0 is list, not str"),
        (None, ["b"], "the query is NoneType, not str"),
        ("\ud800", ["b"], r"the query has the lone surrogate U\+D800"),
        ("a", ["b", "\ud800"], r"text 1 has the lone surrogate U\+D800"),
        ("a" * 1_000_001, [], "the query has 1000001 characters"),
    ],
)
def test_bad_texts_are_named(engine: Reranker, query: Any, passages: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        engine.rerank(query, passages)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ("ab", r"one str was given.*score\(\[\(query, passage\)\]\)"),
        (["ab"], "text 0 is str, not a pair"),
        ([("a", "b"), ("a",)], "text 1 is tuple, not a pair"),
        ([("a", "b", "c")], "text 0 is tuple, not a pair"),
        ([("a", None)], "text 0 is a pair with NoneType in it"),
    ],
)
def test_bad_pairs_are_named(engine: Reranker, pairs: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        engine.score(pairs)


@pytest.mark.parametrize("value", [0, -1, 1.5, "8", True])
@pytest.mark.parametrize("name", ["top_k", "max_tokens", "max_batch_tokens"])
def test_bad_options_are_named(engine: Reranker, name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{name}={value!r}"):
        engine.rerank("a", ["b"], **{name: value})
    if name != "top_k":
        with pytest.raises(InputError, match=f"{name}={value!r}"):
            engine.score([("a", "b")], **{name: value})


def test_strange_texts(engine: Reranker) -> None:
    strange = ["", " ", "\n", "\0", "\u0301" * 50, "\u202e\u200d\ufeff", "👩‍👩‍👧", "שלום", "x" * 100_000]
    for query in strange:
        assert all(0 < item.score < 1 for item in engine.rerank(query, strange))
    damaged, repaired = engine.score([("a\ud800", "\udc00"), ("a\ufffd", "\ufffd")], encoding_errors="replace")
    assert damaged == repaired


def test_progress_and_pickles(engine: Reranker) -> None:
    calls: list[tuple[int, int | None]] = []
    last_id(engine).rerank("a", ["b"] * 600, progress=lambda done, total: calls.append((done, total)))
    last_id(engine).score(itertools.repeat(("a", "b"), 600), progress=lambda done, total: calls.append((done, total)))
    assert calls == [(WINDOW, 600), (600, 600), (WINDOW, None), (600, None)]
    again = pickle.loads(pickle.dumps(Reranker(engine.bundle, threads=1)))
    assert (type(again), again.activation, again.threads) == (Reranker, "sigmoid", 1)
