"""Labels: equal to the reference, whatever the batch; and every input that must be refused."""

from __future__ import annotations

import functools
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
from edgebert.checkpoints import open_checkpoint
from edgebert_runtime import Bundle, Classifier
from edgebert_runtime.errors import BundleError, InputError, LimitError
from edgebert_runtime.tasks.base.batch_pipeline import WINDOW
from tests.runtime.conftest import Scripted, Tiny, changed

TEXTS = ["the cat sat on a mat.", "", " ", "the dog ran", "cat and dog in rain and rain", "[SEP] é 日 zzz", "a" * 500]
TEXT = st.lists(st.sampled_from("the cat sat on a mat dog rain [SEP] é 日 zzz .".split()), max_size=24).map(" ".join)
ENCODERS = ("bert", "roberta", "distilbert")


TASK = "classify"  # of the fixture case


@pytest.fixture(scope="module")
def engine(case: Tiny) -> Classifier:
    return Classifier(Bundle.open(case.bundle))


@pytest.fixture(scope="module")
def next_sentence(tiny: Callable[..., Tiny]) -> Classifier:
    return Classifier(Bundle.open(tiny("next-sentence").bundle))


def scripted(engine: Classifier, *logits: float) -> Classifier:
    return Classifier(engine.bundle, session=Scripted(lambda ids, mask, types: [logits] * len(ids)))


def encoded(case: Tiny, first: str, second: str | None = None) -> Any:
    """Tokenize by tokenizers itself, with its own truncation and special tokens."""
    plain = tokenizers.Tokenizer.from_file(str(case.bundle / "tokenizer.json"))
    plain.encode_special_tokens = True
    plain.enable_truncation(40, strategy="longest_first")
    return plain.encode(first, second)


def softmax(logits: Any) -> list[float]:
    powers = [math.exp(x - max(logits)) for x in logits.tolist()]
    return [power / sum(powers) for power in powers]


@pytest.mark.parametrize("model_type", ENCODERS)
def test_equals_the_reference(tiny: Callable[..., Tiny], model_type: str) -> None:
    case = tiny("classify", model_type)
    engine = edgebert_runtime.load(case.bundle)
    assert isinstance(engine, Classifier)
    assert engine.labels == open_checkpoint(case.checkpoint).labels
    assert (len(engine.labels), engine.problem_type) == (3, "single_label")
    for text, results in zip(TEXTS, engine.classify(TEXTS), strict=True):
        expected = softmax(case.logits(encoded(case, text).ids))
        np.testing.assert_allclose(results.scores, expected, atol=1e-5)
        assert results.label == engine.labels[results.scores.argmax()]
        assert results.score == pytest.approx(max(expected), abs=1e-5)
        assert results.scores.dtype == np.float32


@pytest.mark.parametrize("model_type", ENCODERS)
def test_pairs_equal_the_reference(tiny: Callable[..., Tiny], model_type: str) -> None:
    case = tiny("classify", model_type)
    others = ["on a mat", "the cat " * 30, "", "rain", "dog", "moon " * 25, "[CLS]"]
    for text, second, results in zip(
        TEXTS, others, edgebert_runtime.Classifier.load(case.bundle).classify(TEXTS, others), strict=True
    ):
        row = encoded(case, text, second)
        np.testing.assert_allclose(results.scores, softmax(case.logits(row.ids, row.type_ids)), atol=1e-5)
        assert results.truncated == bool(row.overflowing)


def test_next_sentence(tiny: Callable[..., Tiny], next_sentence: Classifier) -> None:
    assert next_sentence.labels == ("is_next", "not_next")
    case = tiny("next-sentence")
    row = encoded(case, "the cat sat", "on a mat")
    (results,) = next_sentence.classify(["the cat sat"], ["on a mat"])
    np.testing.assert_allclose(results.scores, softmax(case.logits(row.ids, row.type_ids)), atol=1e-5)
    assert 1 in row.type_ids
    for call in (next_sentence.classify, next_sentence.stream):
        with pytest.raises(InputError, match="next-sentence needs pairs"):
            call(["the cat sat"])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=9), st.booleans(), st.integers(1, 90), st.integers(0, 99))
def test_batch_equals_single_equals_shuffled(
    engine: Classifier, items: list[tuple[str, str]], paired: bool, budget: int, seed: int
) -> None:
    def scores(chosen: list[tuple[str, str]], **options: Any) -> Any:
        pairs = [pair for _, pair in chosen] if paired else None
        return np.array([entry.scores for entry in engine.classify([text for text, _ in chosen], pairs, **options)])

    together = scores(items)
    np.testing.assert_allclose(together, np.concatenate([scores([item]) for item in items]), atol=1e-5)
    order = np.random.default_rng(seed).permutation(len(items))
    shuffled = scores([items[i] for i in order], max_batch_tokens=budget)
    np.testing.assert_allclose(shuffled, together[order], atol=1e-5)


def with_problem(engine: Classifier, folder: Path, problem_type: str) -> Classifier:
    settings = {"labels": list(engine.labels), "problem_type": problem_type}  # as before bundles had an activation
    change = functools.partial(dict.update, settings=settings)
    path = changed(engine.bundle.path, folder / problem_type, change=change)
    return Classifier(Bundle.open(path))


def test_batches_of_one_are_equal_bit_for_bit(engine: Classifier) -> None:
    together = engine.classify(TEXTS, max_batch_tokens=1)
    for text, results in zip(TEXTS, together, strict=True):
        np.testing.assert_array_equal(results.scores, engine.classify([text])[0].scores)


def test_scores_of_each_problem(engine: Classifier, tmp_path: Path) -> None:
    (results,) = scripted(engine, 1.0, 3.0, 2.0).classify(["the"])
    np.testing.assert_allclose(results.scores, [0.09003057, 0.66524096, 0.24472847], atol=1e-7)
    assert results.label == "neutral"
    assert results.score == pytest.approx(0.66524096, abs=1e-7)
    many = with_problem(engine, tmp_path, "multi_label")
    assert many.problem_type == "multi_label"
    (results,) = scripted(many, -1.0, 0.0, 2.0).classify(["the"])
    np.testing.assert_allclose(results.scores, [0.26894142, 0.5, 0.88079708], atol=1e-7)
    assert results.label == "positive"
    (results,) = scripted(with_problem(engine, tmp_path, "regression"), -7.5, 12.0, 2.0).classify(["the"])
    assert (results.label, results.score, results.scores.tolist()) == ("negative", -7.5, [-7.5, 12.0, 2.0])


@pytest.mark.parametrize("problem_type", ["single_label", "multi_label"])
def test_large_logits_do_not_overflow(engine: Classifier, tmp_path: Path, problem_type: str) -> None:
    (results,) = scripted(with_problem(engine, tmp_path, problem_type), -3e38, 3e38, -1e4).classify(["the"])
    assert results.scores.tolist() == [0, 1, 0]


def test_token_ids_stand_for_a_text(case: Tiny, engine: Classifier) -> None:
    ids = encoded(case, "the cat").ids
    text, listed, array = engine.classify(["the cat", ids, np.array(ids, np.int32)])
    np.testing.assert_allclose([listed.scores, array.scores], [text.scores] * 2, atol=1e-6)
    with pytest.raises(InputError, match="text 0 is a pair with list in it"):
        engine.classify([ids], ["the"])


def test_what_is_cut_is_flagged_and_said_once(engine: Classifier, caplog: pytest.LogCaptureFixture) -> None:
    texts = ["the " * 38, "the " * 39, "the"]
    with caplog.at_level(logging.WARNING, logger="edgebert"):
        results = engine.classify(texts)
    assert [item.truncated for item in results] == [False, True, False]
    assert [record.getMessage() for record in caplog.records] == ["1 of 3 texts were cut to 40 tokens"]
    with pytest.raises(LimitError, match="text 1 has 41 tokens, the limit is 40"):
        engine.classify(texts, truncate=False)
    with pytest.raises(LimitError, match="text 0 has 42 tokens, the limit is 40"):
        engine.classify(texts, ["a", "a", "a"], truncate=False)
    with pytest.raises(LimitError, match="41 token ids"):
        engine.classify([[5] * 41])


def test_the_limit_is_that_of_the_model_and_not_less(engine: Classifier) -> None:
    texts = ["the " * 30 + "cat", "the " * 30 + "dog"]
    whole, cut = engine.classify(texts), engine.classify(texts, max_tokens=20)
    assert not np.allclose(whole[0].scores, whole[1].scores)
    assert np.array_equal(cut[0].scores, cut[1].scores)
    assert cut[0].truncated
    assert not whole[0].truncated


def test_segments_reach_the_graph_by_name(engine: Classifier) -> None:
    session = Scripted(lambda ids, mask, types: np.stack([types.sum(1), mask.sum(1), ids.sum(1) * 0], 1))
    fake = Classifier(engine.bundle, session=session)
    fake.classify(["the cat", "the"], ["a", "on a mat"])
    (feeds,) = session.feeds
    assert feeds["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 0]]
    assert feeds["attention_mask"].tolist() == [[1] * 7, [1] * 6 + [0]]
    fake.classify(["the cat"])
    assert not session.feeds[1]["token_type_ids"].any()


def test_order_survives_many_windows(engine: Classifier) -> None:
    number = Scripted(lambda ids, mask, types: np.stack([ids.sum(1), mask.sum(1), mask.sum(1) * 0], 1) / 50)
    fake = Classifier(engine.bundle, session=number)
    rows = [[5 + i % 70] * (1 + i % 9) for i in range(2 * WINDOW + 17)]
    expected = [softmax(np.array([sum(row), len(row), 0]) / 50) for row in rows]
    np.testing.assert_allclose([item.scores for item in fake.classify(iter(rows))], expected, atol=1e-6)
    np.testing.assert_allclose([item.scores for item in fake.stream(rows)], expected, atol=1e-6)


@pytest.mark.parametrize("paired", [False, True])
def test_stream_reads_a_bounded_window_ahead(engine: Classifier, paired: bool) -> None:
    read = 0

    def source() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield "the cat"

    stream = scripted(engine, 1, 2, 3).stream(source(), itertools.repeat("a") if paired else None)
    for position in range(2 * WINDOW + 5):
        assert next(stream).label == "positive"
        assert read - position <= 2 * WINDOW


def test_nothing_in_nothing_out(engine: Classifier) -> None:
    assert engine.classify([]) == engine.classify(iter(()), []) == list(engine.stream([])) == []


def test_as_many_pairs_as_texts(engine: Classifier) -> None:
    with pytest.raises(InputError, match="3 texts were given with 2 pairs"):
        engine.classify(["a"] * 3, ["b"] * 2)
    with pytest.raises(InputError, match="texts ended after 3, pairs did not"):
        engine.classify(["a"] * 3, itertools.repeat("b"))
    with pytest.raises(InputError, match="pairs ended after 2, texts did not"):
        engine.classify(itertools.repeat("a"), (text for text in "bc"))


@pytest.mark.parametrize(
    ("texts", "pairs", "message"),
    [
        ("the cat", None, r"one str was given.*classify\(\[text\]\)"),
        (None, None, "NoneType was given"),
        (["a"], "b", r"one str was given.*classify\(\[text\], \[text\]\)"),
        (["a"], 7, "int was given"),
        (["a", None], None, "text 1 is NoneType"),
        (["a", "b"], ["a", None], "text 1 is a pair with NoneType in it"),
        (["ok", "bad\ud800"], None, r"text 1 has the lone surrogate U\+D800 at character 3"),
        (["ok"], ["\udc00"], r"text 0 has the lone surrogate U\+DC00"),
        (["a" * 1_000_001], None, "1000001 characters"),
    ],
)
def test_bad_texts_are_named(engine: Classifier, texts: Any, pairs: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        engine.classify(texts, pairs)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [0, -1, 1.5, "8", True, 41])
def test_bad_options_are_named(engine: Classifier, value: Any) -> None:
    names = ["max_tokens"] if value == 41 else ["max_tokens", "max_batch_tokens"]
    for name in names:
        with pytest.raises(InputError, match=f"{name}={value!r}"):
            engine.classify(["the"], **{name: value})
        with pytest.raises(InputError, match=f"{name}={value!r}"):
            engine.stream(["the"], **{name: value})
    with pytest.raises(InputError, match="max_tokens=3 leaves no room beside 3 special tokens"):
        engine.classify(["the"], ["a"], max_tokens=3)
    with pytest.raises(InputError, match="option 'batch_size' is not known"):
        engine.classify(["the"], batch_size=8)  # type: ignore[call-arg]


def test_strange_texts(engine: Classifier) -> None:
    strange = ["", " ", "\n", "\0", "\u0301" * 50, "\u202e\u200d\ufeff", "👩‍👩‍👧", "שלום", "x" * 100_000]
    for pairs in (None, strange[::-1]):
        results = engine.classify(strange, pairs)
        np.testing.assert_allclose([item.scores.sum() for item in results], 1, atol=1e-6)


def test_lone_surrogates_can_be_replaced(engine: Classifier) -> None:
    results, expected = engine.classify(["bad\ud800", "bad\ufffd"], ["\udc00", "\ufffd"], encoding_errors="replace")
    np.testing.assert_array_equal(results.scores, expected.scores)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("labels", ["one", "two"], "2 labels for 3 outputs"),
        ("labels", ["a", "b", 3], "3 labels for 3 outputs"),
        ("labels", None, "setting labels=None"),
        ("problem_type", "guessing", "setting problem_type='guessing', not single_label, multi_label, regression"),
        ("problem_type", 7, "setting problem_type=7"),
    ],
)
def test_settings_that_do_not_fit(case: Tiny, tmp_path: Path, key: str, value: Any, message: str) -> None:
    folder = changed(case.bundle, tmp_path / "bundle", change=lambda data: data["settings"].update({key: value}))
    with pytest.raises(BundleError, match=message):
        edgebert_runtime.load(folder)


def test_pickles_by_reloading(engine: Classifier) -> None:
    again = pickle.loads(pickle.dumps(Classifier(engine.bundle, threads=1)))
    assert (type(again), again.labels, again.threads) == (Classifier, engine.labels, 1)
    np.testing.assert_allclose(again.classify(["the"])[0].scores, engine.classify(["the"])[0].scores, atol=1e-6)


def test_progress_counts_up(engine: Classifier) -> None:
    calls: list[tuple[int, int | None]] = []
    scripted(engine, 1, 2, 3).classify([[5]] * 600, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(WINDOW, 600), (600, 600)]
