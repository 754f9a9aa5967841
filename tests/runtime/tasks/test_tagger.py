"""Entities: those of transformers' pipeline, in the characters of the text given, however long it is."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from transformers import BertConfig, BertForTokenClassification, PreTrainedTokenizerFast, pipeline

from edgebert_runtime import Entity, Tagger
from edgebert_runtime.errors import BundleError, EdgebertError, InputError
from edgebert_runtime.tasks.base.batch_pipeline import WINDOW
from edgebert_runtime.tasks.entity_aggregation import AGGREGATIONS
from edgebert_runtime.tasks.tagger import Aggregation
from tests.runtime.fakes import KINDS, RowSession, fake_bundle, random_logits, wordpiece

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
PROPERTY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WORD = st.sampled_from("the cat sat berlin catting parisxq é Ünder-cat's 日本 x ह zzz . , don't ".split(" "))
TEXT = st.lists(WORD, max_size=14).map(" ".join)
STRANGE = [
    "",
    " ",
    "\n",
    "\0",
    "a\0b",
    "\u0301" * 50,
    "\u202e\u200d\ufeff",
    "👩‍👩‍👧 👍🏽 b",
    "שָׁלוֹם hello",
    "cafe\u0301  İstanbul\t日本",
    "x" * 100_000,
    "[SEP] [CLS]",
]


def make(folder: Path, session: Any, labels: tuple[str, ...] = LABELS, tokenizer: Any = None, **options: Any) -> Tagger:
    outputs: dict[str, tuple[int | str, ...]] = {"logits": ("batch", "sequence", len(labels))}
    return Tagger(fake_bundle(folder, "tag", outputs, {"labels": list(labels)}, tokenizer, **options), session=session)


def by_id(labels: dict[int, int]) -> RowSession:
    """Make a session that is sure of the label of each token id, and of O for the others."""

    def compute(ids: list[int]) -> list[Any]:
        return [np.array([[9.0 * (labels.get(token, 0) == label) for label in range(5)] for token in ids])]

    return RowSession(compute)


def spans(entities: list[Entity]) -> list[tuple[str, str]]:
    return [(entity.label, entity.text) for entity in entities]


@pytest.fixture(scope="module")
def session() -> RowSession:
    return RowSession(lambda ids: [random_logits(ids, len(LABELS))])


@pytest.fixture(scope="module")
def tagger(session: RowSession, tmp_path_factory: pytest.TempPathFactory) -> Tagger:
    """Make a tagger with logits that depend on the whole row."""
    return make(tmp_path_factory.mktemp("tagger"), session)


@pytest.fixture(scope="module")
def theirs() -> Any:
    """Make the pipeline of transformers over a tiny model."""
    tokenizer = wordpiece()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]"
    )
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=64, initializer_range=0.8, id2label=dict(enumerate(LABELS)),
    )  # fmt: skip
    return pipeline("token-classification", model=BertForTokenClassification(config).eval(), tokenizer=fast)


@pytest.fixture(scope="module")
def ours(theirs: Any, tmp_path_factory: pytest.TempPathFactory) -> Tagger:
    """Make a tagger over the pipeline's model."""

    def compute(ids: list[int]) -> list[Any]:
        with torch.no_grad():
            return [theirs.model(torch.tensor([ids]), token_type_ids=torch.zeros(1, len(ids)).long()).logits[0].numpy()]

    return make(tmp_path_factory.mktemp("ours"), RowSession(compute), limits=(64, 64))


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@given(text=TEXT)
@example("the cat  sat ON catting parisxq. Ünder-cat's")
@settings(PROPERTY, max_examples=25)
def test_equals_the_pipeline_of_transformers(ours: Tagger, theirs: Any, aggregation: Aggregation, text: str) -> None:
    (results,) = ours.tag([text], aggregation=aggregation)
    expected = theirs(text, aggregation_strategy=aggregation) if text.strip() else []
    key = "entity" if aggregation == "none" else "entity_group"
    assert [(entity.label, entity.start, entity.end) for entity in results] == [
        (entity[key], entity["start"], entity["end"]) for entity in expected
    ]
    np.testing.assert_allclose([e.score for e in results], [e["score"] for e in expected], atol=1e-5)


def test_a_word_with_dropped_accents_is_a_word(tmp_path: Path, ours: Tagger, theirs: Any) -> None:
    """There the pipeline errs: it compares lengths of token and text, and joins the word to the one before."""
    words = {text: index for text, index in wordpiece().get_vocab().items() if text in ("berlin", "ete")}
    engine = make(tmp_path, by_id({words["berlin"]: 1, words["ete"]: 3}))
    text = "berlin e\u0301te\u0301"
    for aggregation in ("simple", "first", "max"):
        assert spans(engine.tag([text], aggregation=aggregation)[0]) == [("PER", "berlin"), ("LOC", "e\u0301te\u0301")]
    pieces = theirs.gather_pre_entities(
        text, [words["berlin"], words["ete"]], np.ones((2, 5)), [(0, 6), (7, 11)], [0, 0], "first"
    )
    assert [piece["is_subword"] for piece in pieces] == [False, True]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_strange_texts(tmp_path: Path, session: RowSession, kind: str, aggregation: Aggregation) -> None:
    engine = make(tmp_path, session, tokenizer=KINDS[kind](), limits=(512, 512))
    results = engine.tag(STRANGE, aggregation=aggregation)
    assert len(results) == len(STRANGE)
    assert results[:3] == [[], [], []]
    for text, entities in zip(STRANGE, results, strict=True):
        for entity in entities:
            assert 0 <= entity.start < entity.end <= len(text)
            assert entity.text == text[entity.start : entity.end] == entity.text.strip()
            assert 0 < entity.score <= 1
            assert entity.label in LABELS[1:] if aggregation == "none" else entity.label in ("PER", "LOC")
        assert [entity.start for entity in entities] == sorted(entity.start for entity in entities)


def test_spans_are_those_of_the_source(tmp_path: Path) -> None:
    vocab = wordpiece().get_vocab()
    engine = make(tmp_path, by_id({vocab["berlin"]: 1, vocab["cafe"]: 3, vocab["##te"]: 4, vocab["日"]: 1}))
    text = "👩‍👩‍👧  BERLİN,\tBerlin  Cafe\u0301te Café 日本"
    (results,) = engine.tag([text])
    assert spans(results) == [
        ("PER", "BERLİN"),
        ("PER", "Berlin"),
        ("LOC", "Cafe\u0301te"),
        ("LOC", "Café"),
        ("PER", "日"),
    ]
    assert all(entity.text == text[entity.start : entity.end] for entity in results)
    assert results[0] == Entity("PER", results[0].score, 7, 13, "BERLİN")


def test_replaced_surrogates_do_not_move_spans(tmp_path: Path) -> None:
    engine = make(tmp_path, by_id({wordpiece().get_vocab()["berlin"]: 1}))
    for text in ("\ud800 berlin", "\ud83d\ude00 berlin \udfff", "\ud83d\ude00\ud83d \ude00berlin"):
        (results,) = engine.tag([text], encoding_errors="replace")
        assert spans(results) == [("PER", "berlin")]
        assert text[results[0].start : results[0].end] == "berlin"
        with pytest.raises(InputError, match=r"text 1 has the lone surrogate U\+D8"):
            engine.tag(["ok", text])


def judged_alone(engine: Tagger, text: str, places: list[tuple[int, int]]) -> list[tuple[str, float]]:
    """Judge each token in the window in which it stands farthest from an edge, one loop inside another."""
    ids = engine._tokenizer.content(text).ids
    expected = []
    for place in range(len(ids)):
        best = -1
        for start, end in places:
            depth = min(place - start if start else 10**6, end - 1 - place if end < len(ids) else 10**6)
            if start <= place < end and depth > best:
                best = depth
                logits = random_logits([2, *ids[start:end], 3], len(LABELS)).astype(np.float64)[1 + place - start]
        probabilities = np.exp(logits) / np.exp(logits).sum()
        if label := int(probabilities.argmax()):
            expected.append((LABELS[label], float(probabilities[label])))
    return expected


@pytest.mark.parametrize(
    ("options", "size", "shared"),
    [({}, 30, 7), ({"stride": 0}, 30, 0), ({"stride": 29}, 30, 29), ({"max_tokens": 64, "stride": 40}, 62, 40)],
)
@pytest.mark.parametrize("length", [29, 30, 31, 53, 54, 200])
def test_long_texts_go_through_windows(
    tagger: Tagger, session: RowSession, options: dict[str, Any], size: int, shared: int, length: int
) -> None:
    rng = np.random.default_rng(length)
    text = " ".join(rng.choice(["the", "cat", "dog", "berlin", "paris", "."], length))
    places = [(0, min(size, length))]
    while places[-1][1] < length:
        places.append((places[-1][1] - shared, min(places[-1][1] - shared + size, length)))
    session.rows.clear()
    (results,) = tagger.tag([text], aggregation="none", **options)
    ids = tagger._tokenizer.content(text).ids
    assert sorted(session.rows) == sorted([2, *ids[start:end], 3] for start, end in places)
    expected = judged_alone(tagger, text, places)
    assert [entity.label for entity in results] == [label for label, _ in expected]
    np.testing.assert_allclose([entity.score for entity in results], [score for _, score in expected], atol=1e-6)


def test_nothing_is_cut_silently(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = make(tmp_path, by_id({wordpiece().get_vocab()["berlin"]: 1}))
    text = "the " * 500 + "berlin"
    with caplog.at_level(logging.WARNING, logger="edgebert"):
        for max_tokens in (None, 64, 3):
            assert spans(engine.tag([text], max_tokens=max_tokens, truncate=False)[0]) == [("PER", "berlin")]
    assert not caplog.records


def test_an_entity_may_cross_windows(tmp_path: Path) -> None:
    engine = make(tmp_path, by_id({wordpiece().get_vocab()["berlin"]: 2}))
    text = "the " * 20 + "berlin " * 50 + "the"
    (entity,) = engine.tag([text])[0]
    assert (entity.start, entity.end) == (80, 80 + 50 * 7 - 1)


@given(texts=st.lists(TEXT, min_size=1, max_size=8), seed=st.integers(0, 99), budget=st.integers(1, 90))
@PROPERTY
def test_batch_equals_single_equals_shuffled(tagger: Tagger, texts: list[str], seed: int, budget: int) -> None:
    together = tagger.tag(texts)
    assert together == [tagger.tag([text])[0] for text in texts]
    order = np.random.default_rng(seed).permutation(len(texts))
    assert tagger.tag([texts[i] for i in order], max_batch_tokens=budget) == [together[i] for i in order]
    assert list(tagger.stream(iter(texts))) == together


def test_nothing_in_nothing_out(tagger: Tagger, session: RowSession) -> None:
    session.rows.clear()
    assert tagger.tag([]) == tagger.tag(iter(())) == list(tagger.stream([])) == []
    assert tagger.tag(["", " \n"]) == [[], []]
    assert not session.rows
    (first, blank, last) = tagger.tag(["the cat", "", "the cat"])
    assert (first, blank) == (last, [])


@pytest.mark.parametrize("text", ["", "the cat"])
def test_stream_reads_a_bounded_window_ahead(tagger: Tagger, text: str) -> None:
    read = 0

    def source() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield text

    stream = tagger.stream(source())
    for position in range(2 * WINDOW + 5):
        next(stream)
        assert read - position <= 2 * WINDOW


def test_progress_counts_texts(tagger: Tagger) -> None:
    calls: list[tuple[int, int | None]] = []
    tagger.tag(["the " * 100] * 200, progress=lambda done, total: calls.append((done, total)))
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})
    assert calls[-1] == (200, 200)


def test_a_default_without_room_for_text_is_refused(tmp_path: Path) -> None:
    engine = make(tmp_path, by_id({}), limits=(64, 2))
    with pytest.raises(InputError, match="max_tokens=2 leaves no room beside 2 special tokens"):
        engine.tag(["the cat"])
    assert engine.tag(["the cat"], max_tokens=64) == [[]]


def test_electra_reports_replaced_tokens(tmp_path: Path) -> None:
    cat = wordpiece().get_vocab()["cat"]
    session = RowSession(lambda ids: [np.array([[0.0, 2.0 if token == cat else -2.0] for token in ids])])
    engine = make(tmp_path, session, ("original", "replaced"))
    assert engine.labels == ("original", "replaced")
    assert spans(engine.tag(["the cat sat"], aggregation="none")[0]) == [("replaced", "cat")]


def test_labels_must_be_those_of_the_graph(tmp_path: Path) -> None:
    outputs: dict[str, tuple[int | str, ...]] = {"logits": ("batch", "sequence", 5)}
    for labels in (["O"], [0, 1, 2, 3, 4], None):
        with pytest.raises(BundleError, match="labels"):
            Tagger(fake_bundle(tmp_path, "tag", outputs, {"labels": labels}), session=by_id({}))


def test_numbers_that_are_not_finite_are_errors(tmp_path: Path) -> None:
    broken = make(tmp_path, RowSession(lambda ids: [np.full((len(ids), 5), np.nan)]))
    with pytest.raises(EdgebertError, match="NaN or infinity for text 1"):
        broken.tag(["", "the cat"])
