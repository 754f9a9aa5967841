"""Vectors: equal to the reference, whatever the batch; and every input that must be refused."""

from __future__ import annotations

import copy
import json
import logging
import os
import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import edgebert_runtime
from edgebert_runtime import Bundle, Embedder
from edgebert_runtime.embedder import WINDOW
from edgebert_runtime.errors import BundleError, EdgebertError, ForkError, InputError, LimitError

TEXTS = ["the cat sat on a mat.", "", "the dog ran", "cats running in rain and rain and rain", "日本 é", "xyz qqq"]
WORD = st.sampled_from("the cat sat on a mat dog rain [SEP] é 日 zzz . ,".split())
TEXT = st.lists(WORD, max_size=14).map(" ".join)
PROPERTY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Recorder:
    """A session that gives each row the sum of its ids, and notes what it was asked."""

    def __init__(self, dim: int, fill: float = 0.0) -> None:
        self.dim, self.fill = dim, fill
        self.feeds: list[Any] = []
        self.output: Any = None

    def run(self, output_names: Any, feeds: Any) -> Any:
        assert output_names == ["sentence_embedding"]
        self.feeds.append(feeds)
        sums = (feeds["input_ids"] * feeds["attention_mask"]).sum(1, keepdims=True)
        self.output = np.repeat(sums, self.dim, 1).astype(np.float32) + np.float32(self.fill)
        return [self.output]


@pytest.fixture
def recorder(engine: Embedder) -> Recorder:
    return Recorder(engine.dim)


@pytest.fixture
def fake(engine: Embedder, recorder: Recorder) -> Embedder:
    return Embedder(engine.bundle, session=recorder)


def test_equals_the_reference(engine: Embedder, encode: Callable[[list[int]], Any]) -> None:
    vectors = engine.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), engine.dim)
    assert vectors.dtype == np.float32
    for text, vector in zip(TEXTS, vectors, strict=True):
        ids = engine._tokenizer.encode([text], 40)[0].ids
        np.testing.assert_allclose(vector, encode(ids), atol=1e-5)


@PROPERTY
@given(texts=st.lists(TEXT, min_size=1, max_size=12), seed=st.integers(0, 99), budget=st.integers(1, 60))
def test_batch_equals_single_equals_shuffled(engine: Embedder, texts: list[str], seed: int, budget: int) -> None:
    together = engine.embed_detailed(texts).vectors
    alone = np.concatenate([engine.embed_detailed([text]).vectors for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    order = np.random.default_rng(seed).permutation(len(texts))
    shuffled = engine.embed_detailed([texts[i] for i in order], max_batch_tokens=budget).vectors
    np.testing.assert_allclose(shuffled, together[order], atol=1e-5)


def test_token_ids_stand_for_a_text(engine: Embedder) -> None:
    ids = engine._tokenizer.encode(["the cat sat"], 40)[0].ids
    kinds: list[Any] = [ids, tuple(ids), np.array(ids, np.int32), np.array(ids, np.uint8), np.array(ids, np.uint64)]
    vectors = engine.embed(["the cat sat", *kinds])
    np.testing.assert_allclose(vectors[1:], np.repeat(vectors[:1], len(kinds), 0), atol=1e-6)
    np.testing.assert_allclose(engine.embed(np.array([ids, ids])), vectors[:2], atol=1e-6)


def test_feeds_exactly_what_the_graph_declares(fake: Embedder, recorder: Recorder) -> None:
    fake.embed(["the cat", "a dog ran in rain"])
    (feeds,) = recorder.feeds
    assert list(feeds) == ["input_ids", "attention_mask", "token_type_ids"]
    assert {array.dtype.name for array in feeds.values()} == {"int64"}
    assert feeds["input_ids"].shape == feeds["attention_mask"].shape == (2, 7)
    assert feeds["attention_mask"].sum(1).tolist() == [7, 4]
    assert not feeds["token_type_ids"].any()


def test_a_graph_without_segments_gets_none(engine: Embedder, recorder: Recorder) -> None:
    bundle = engine.bundle
    data = json.loads(bundle.manifest.to_json())
    data["graphs"]["model"]["inputs"].pop()
    manifest = type(bundle.manifest).from_json(json.dumps(data))
    Embedder(Bundle(bundle.path, manifest), session=recorder).embed(["the cat"])
    assert sorted(recorder.feeds[0]) == ["attention_mask", "input_ids"]


def test_nothing_in_nothing_out(fake: Embedder, recorder: Recorder) -> None:
    nothing: list[Iterable[str]] = [[], (), iter(())]
    for empty in nothing:
        result = fake.embed_detailed(empty)
        assert result.vectors.shape == (0, fake.dim)
        assert result.vectors.dtype == np.float32
        assert result.token_counts.shape == result.truncated.shape == (0,)
    assert list(fake.stream([])) == []
    assert not recorder.feeds


def test_order_survives_many_windows(fake: Embedder) -> None:
    rows = [[5 + i % 70] * (1 + i % 9) for i in range(2 * WINDOW + 17)]
    expected = [sum(row) for row in rows]
    assert fake.embed(rows)[:, 0].tolist() == expected
    assert [vector[0] for vector in fake.stream(iter(rows))] == expected


def test_stream_reads_a_bounded_window_ahead(fake: Embedder) -> None:
    read = 0

    def source() -> Iterator[list[int]]:
        nonlocal read
        while True:
            read += 1
            yield [5 + read % 70]

    stream = fake.stream(source())
    for position in range(3 * WINDOW):
        assert next(stream).shape == (fake.dim,)
        assert read - position <= 2 * WINDOW


def test_truncation_is_counted_and_said_once(engine: Embedder, caplog: pytest.LogCaptureFixture) -> None:
    texts = ["the cat", "the " * 14, "the " * 15, "the " * 30]
    result = engine.embed_detailed(texts)
    assert result.token_counts.tolist() == [4, 16, 16, 16]
    assert result.truncated.tolist() == [False, False, True, True]
    with caplog.at_level(logging.WARNING, logger="edgebert"):
        engine.embed(texts)
    assert [record.getMessage() for record in caplog.records] == ["2 of 4 texts were cut to 16 tokens"]
    caplog.clear()
    engine.embed(texts, max_tokens=32)
    assert not caplog.records


def test_difference_beyond_the_default_shows_with_a_larger_limit(engine: Embedder) -> None:
    texts = ["the " * 20 + "cat", "the " * 20 + "dog"]
    cut, whole = engine.embed(texts), engine.embed(texts, max_tokens=40)
    assert np.array_equal(cut[0], cut[1])
    assert not np.allclose(whole[0], whole[1])


def test_refuses_to_cut_if_told_so(engine: Embedder) -> None:
    with pytest.raises(LimitError, match=r"text 1 has 17 tokens, the limit is 16"):
        engine.embed(["the", "the " * 15], truncate=False)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("the cat", r"one str was given.*embed\(\[text\]\)"),
        (b"the cat", "one bytes was given"),
        (None, "NoneType was given"),
        (7, "int was given"),
        ({"a": 1}, "dict was given"),
        ({"a"}, "set was given"),
        (["a", b"b"], "text 1 is bytes"),
        (["a", None], "text 1 is NoneType"),
        ([1, 2, 3], "text 0 is int.*list of their own"),
        ([float("nan")], "text 0 is float"),
        ([["a"]], r"text 0 holds 'a' \(str\) at position 0"),
        ([[[5, 6]]], r"text 0 holds \[5, 6\] \(list\)"),
        ([[5, True]], "text 0 holds True"),
        ([[5, 1.0]], "text 0 holds 1.0"),
        ([np.array([1.0, 2.0])], "array of float64"),
        ([np.array([True])], "array of bool"),
        ([np.array([[5]])], r"shape \(1, 1\)"),
        ([np.array("a")], "array of <U1"),
        ([["the", []]], "text 0 holds 'the'"),
        (["a", []], "text 1 is an empty list"),
        ([[5, -1]], "token id -1 at position 1"),
        ([[5, 1000]], "token id 1000 at position 1"),
        ([[1 << 70]], "more than 63 bits"),
        ([np.array([2**63 + 1], np.uint64)], "token id 9223372036854775809"),
        ([[5] * 41], "41 token ids, the limit is 40"),
        (["ok", "bad\ud800"], r"text 1 has the lone surrogate U\+D800 at character 3"),
        (["a" * 1_000_001], "1000001 characters, the limit is 1000000"),
    ],
)
def test_bad_texts_are_named(engine: Embedder, texts: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        engine.embed(texts)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=message.replace("embed", "stream")):
        list(engine.stream(texts))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, "max_tokens=0 is not between 1 and 40"),
        ({"max_tokens": -1}, "max_tokens=-1"),
        ({"max_tokens": 41}, "max_tokens=41"),
        ({"max_tokens": 2}, "leaves no room beside 2 special tokens"),
        ({"max_tokens": True}, "max_tokens=True is not a whole number"),
        ({"max_tokens": 8.0}, "max_tokens=8.0 is not a whole number"),
        ({"max_tokens": "8"}, "max_tokens='8' is not a whole number"),
        ({"max_batch_tokens": 0}, "max_batch_tokens=0"),
        ({"max_batch_tokens": 1.5}, "max_batch_tokens=1.5"),
        ({"errors": "ignore"}, "errors='ignore' is not one of strict, replace"),
        ({"truncate": "no"}, "truncate='no' is not True or False"),
    ],
)
def test_bad_options_are_named(engine: Embedder, options: dict[str, Any], message: str) -> None:
    for call in (engine.embed, engine.embed_detailed, engine.stream):
        with pytest.raises(InputError, match=message):
            call(["the"], **options)


def test_unknown_options_are_refused(engine: Embedder) -> None:
    with pytest.raises(TypeError, match="batch_size"):
        engine.embed(["the"], batch_size=0)  # type: ignore[call-arg]


def test_lone_surrogates_can_be_replaced(engine: Embedder) -> None:
    replaced = engine.embed(["bad\ud800", "\udc00 x", "ok \U0001f600"], errors="replace")
    np.testing.assert_array_equal(replaced[:2], engine.embed(["bad\ufffd", "\ufffd x"]))


def test_strange_texts_have_finite_vectors(engine: Embedder) -> None:
    texts = [
        "",
        " ",
        "\n",
        "\0",
        "a\0b",
        "\u0301" * 50,
        "\u202e\u200d\ufeff",
        "👩‍👩‍👧",
        "שלום",
        "x" * 100_000,
        "[SEP] [CLS]",
    ]
    vectors = engine.embed(texts)
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_special_tokens_in_a_text_are_text(engine: Embedder) -> None:
    ids = engine._tokenizer.encode(["[SEP]"], 40)[0].ids
    assert ids.count(3) == 1
    assert len(ids) > 3


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_errors(engine: Embedder, bad: float) -> None:
    broken = Embedder(engine.bundle, session=Recorder(engine.dim, bad))
    with pytest.raises(EdgebertError, match="NaN or infinity for text 0") as caught:
        broken.embed(["the"])
    assert not isinstance(caught.value, InputError)


def test_progress_counts_up(fake: Embedder) -> None:
    seen: list[tuple[int, int | None]] = []
    rows = [[5]] * (WINDOW + 3)
    fake.embed(rows, progress=lambda done, total: seen.append((done, total)))
    fake.embed(iter(rows), progress=lambda done, total: seen.append((done, total)))
    count = len(rows)
    assert seen == [(WINDOW, count), (count, count), (WINDOW, None), (count, None)]


def test_results_are_the_callers_own(fake: Embedder, recorder: Recorder) -> None:
    vectors = fake.embed(["the"])
    assert vectors.flags.writeable
    assert not np.shares_memory(vectors, recorder.output)
    first, second = fake.stream(["the", "cat"])
    first[:] = 0
    assert second.any()
    assert not np.shares_memory(first, second)


def test_pickles_and_copies_by_reloading(engine: Embedder) -> None:
    expected = engine.embed(TEXTS)
    for other in (pickle.loads(pickle.dumps(engine)), copy.deepcopy(engine), copy.copy(engine)):
        assert other is not engine
        assert other.threads == engine.threads
        np.testing.assert_array_equal(other.embed(TEXTS), expected)
    kept = pickle.loads(pickle.dumps(Embedder(engine.bundle, threads=1)))
    assert kept.threads == 1


def test_an_engine_over_a_foreign_session_does_not_pickle(fake: Embedder) -> None:
    with pytest.raises(EdgebertError, match="cannot be copied or pickled"):
        pickle.dumps(fake)


def test_a_fork_is_refused_with_advice(engine: Embedder) -> None:
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # since Python 3.12: that fork and threads do not mix
        child = os.fork()
    if child == 0:
        try:
            engine.embed(["the"])
            message = "no error"
        except ForkError as error:
            message = str(error)
        os.write(writer, message.encode())
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as pipe:
        message = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert "after the fork" in message
    assert "spawn" in message


def test_says_what_it_is(engine: Embedder) -> None:
    assert repr(engine) == f"Embedder({str(engine.bundle.path)!r}, device='cpu', dim=32)"
    assert (engine.dim, engine.max_tokens, engine.default_tokens, engine.device) == (32, 40, 16, "cpu")
    assert engine.fallback is None


def test_load_returns_the_engine_of_the_task(engine: Embedder, rewrite: Callable[..., Any]) -> None:
    assert isinstance(edgebert_runtime.load(engine.bundle.path, verify="size"), Embedder)
    with pytest.raises(BundleError, match="task 'tag'; this edgebert runs embed"):
        edgebert_runtime.load(rewrite(change=lambda data: data.update(task="tag")))
    with pytest.raises(BundleError, match="'tag', not one that makes vectors"):
        Embedder(Bundle.open(rewrite(change=lambda data: data.update(task="tag"))))
