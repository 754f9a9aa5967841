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
from edgebert_runtime.errors import BundleError, EdgebertError, ForkError, InputError, LimitError
from edgebert_runtime.tasks.base.batch_pipeline import WINDOW

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


def test_padding_may_stand_anywhere(engine: Embedder) -> None:
    ids = [2, 5, 6, 7, 3]
    (expected,) = engine.embed([ids])
    session = engine._session
    for places in ([0, 1, 2, 3, 4], [3, 4, 5, 6, 7], [0, 2, 3, 6, 7]):
        row, mask = np.full((2, 8), 9), np.zeros((2, 8), np.int64)
        row[0, places], mask[0, places] = ids, 1
        feeds = {"input_ids": row, "attention_mask": mask, "token_type_ids": np.zeros_like(row)}
        results, nothing = session.run(["sentence_embedding"], feeds)[0]
        np.testing.assert_allclose(results, expected, atol=1e-5)
        assert not nothing.any()  # a row of nothing but padding


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


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_errors(engine: Embedder, bad: float) -> None:
    broken = Embedder(engine.bundle, session=Recorder(engine.dim, bad))
    with pytest.raises(EdgebertError, match="NaN or infinity for text 0") as caught:
        broken.embed(["the"])
    assert not isinstance(caught.value, InputError)


def test_progress_counts_up(fake: Embedder) -> None:
    calls: list[tuple[int, int | None]] = []
    rows = [[5]] * (WINDOW + 3)
    fake.embed(rows, progress=lambda done, total: calls.append((done, total)))
    fake.embed(iter(rows), progress=lambda done, total: calls.append((done, total)))
    count = len(rows)
    assert calls == [(WINDOW, count), (count, count), (WINDOW, None), (count, None)]


def test_results_are_the_callers_own(fake: Embedder, recorder: Recorder) -> None:
    vectors = fake.embed(["the"])
    assert vectors.flags.writeable
    assert not np.shares_memory(vectors, recorder.output)
    first, second = fake.stream(["the", "cat"])
    first[:] = 0
    assert second.any()
    assert first.base is second.base is None  # one that is kept does not keep its whole window


def test_pickles_and_copies_by_reloading(engine: Embedder) -> None:
    expected = engine.embed(TEXTS)
    for second in (pickle.loads(pickle.dumps(engine)), copy.deepcopy(engine), copy.copy(engine)):
        assert second is not engine
        assert second.threads == engine.threads
        np.testing.assert_array_equal(second.embed(TEXTS), expected)
    remaining = pickle.loads(pickle.dumps(Embedder(engine.bundle, threads=1)))
    assert remaining.threads == 1


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
    assert repr(engine) == f"Embedder({str(engine.bundle.path)!r}, device='cpu')"
    assert (engine.dim, engine.max_tokens, engine.default_tokens, engine.device) == (32, 40, 16, "cpu")
    assert engine.fallback is None


@pytest.mark.parametrize("tokens", [0, -1, 41])
def test_impossible_limits_are_refused(rewrite: Callable[..., Any], tokens: int) -> None:
    folder = rewrite(change=lambda data: data["limits"].update(default_tokens=tokens))
    with pytest.raises(BundleError, match=f"cuts texts at {tokens} tokens, the model takes 1 to 40"):
        edgebert_runtime.load(folder)


def test_load_returns_the_engine_of_the_task(engine: Embedder, rewrite: Callable[..., Any]) -> None:
    assert isinstance(edgebert_runtime.load(engine.bundle.path, verify="size"), Embedder)
    with pytest.raises(BundleError, match="task 'sing'; this edgebert runs embed, classify, next-sentence"):
        edgebert_runtime.load(rewrite(change=lambda data: data.update(task="sing")))
    with pytest.raises(BundleError, match="has the graphs model, the task is run by encoder, decoder; export again"):
        edgebert_runtime.load(rewrite(change=lambda data: data.update(task="translate")))
    with pytest.raises(BundleError, match="is a bundle of task 'tag', not of embed"):
        Embedder(Bundle.open(rewrite(change=lambda data: data.update(task="tag"))))
    with pytest.raises(BundleError, match="has no output logits; export again"):
        edgebert_runtime.load(rewrite(change=lambda data: data.update(task="tag")))


TASKS = {
    "embed": Embedder,
    "classify": edgebert_runtime.Classifier,
    "next-sentence": edgebert_runtime.Classifier,
    "rerank": edgebert_runtime.Reranker,
    "multiple-choice": edgebert_runtime.MultipleChoice,
    "tag": edgebert_runtime.Tagger,
    "answer": edgebert_runtime.Answerer,
    "fill-mask": edgebert_runtime.MaskFiller,
    "generate": edgebert_runtime.Generator,
    "translate": edgebert_runtime.Translator,
}


def test_every_task_has_its_engine() -> None:
    assert TASKS == edgebert_runtime.ENGINES
