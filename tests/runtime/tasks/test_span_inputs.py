"""Texts, pairs and options that entities and answers cannot be found with are refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgebert_runtime import Answerer, Tagger
from edgebert_runtime.errors import InputError
from tests.runtime.fakes import RowSession, both, fake_bundle, make_answerer, random_logits


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Tagger:
    session = RowSession(lambda ids: [random_logits(ids, 2)])
    folder = tmp_path_factory.mktemp("tagger")
    bundle = fake_bundle(folder, "tag", {"logits": ("batch", "sequence", 2)}, {"labels": ["O", "X"]})
    return Tagger(bundle, session=session)


@pytest.fixture(scope="module")
def answerer(tmp_path_factory: pytest.TempPathFactory) -> Answerer:
    return make_answerer(tmp_path_factory.mktemp("answerer"), RowSession(both))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("the cat", r"one str was given.*tag\(\[text\]\)"),
        ({"a": 1}, "dict was given"),
        (None, "NoneType was given"),
        ([b"a"], "text 0 is bytes"),
        (["a", [5, 6]], "text 1 is list; entities are places in a text"),
        ([np.array([5])], "text 0 is ndarray"),
        ([5], "text 0 is int"),
        (["ok", "bad\ud800"], r"text 1 has the lone surrogate U\+D800 at character 3"),
        (["a" * 1_000_001], "1000001 characters, the limit is 1000000"),
    ],
)
def test_bad_texts_are_named(tagger: Tagger, texts: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tagger.tag(texts)
    with pytest.raises(InputError, match=message.replace("tag", "stream")):
        list(tagger.stream(texts))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggregation": "mean"}, "aggregation='mean' is not one of simple, none, first, max, average"),
        ({"aggregation": None}, "aggregation=None"),
        ({"stride": -1}, "stride=-1 is not between 0 and 29"),
        ({"stride": 30}, "stride=30 is not between 0 and 29"),
        ({"stride": 8, "max_tokens": 10}, "stride=8 is not between 0 and 7"),
        ({"stride": 1.5}, "stride=1.5 is not a whole number"),
        ({"stride": "8"}, "stride='8'"),
        ({"stride": True}, "stride=True"),
        ({"max_tokens": 2}, "leaves no room beside 2 special tokens"),
        ({"max_tokens": 65}, "max_tokens=65 is not between 1 and 64"),
        ({"max_batch_tokens": 0}, "max_batch_tokens=0"),
        ({"encoding_errors": "ignore"}, "encoding_errors='ignore'"),
        ({"truncate": 1}, "truncate=1"),
    ],
)
def test_bad_options_of_tags_are_named(tagger: Tagger, options: dict[str, Any], message: str) -> None:
    for texts in ([], ["the"]):
        for call in (tagger.tag, tagger.stream):
            with pytest.raises(InputError, match=message):
                call(texts, **options)


def test_unknown_options_are_refused(tagger: Tagger, answerer: Answerer) -> None:
    with pytest.raises(InputError, match="option 'aggregation_strategy' is not known"):
        tagger.tag(["the"], aggregation_strategy="simple")  # type: ignore[call-arg]
    with pytest.raises(InputError, match="option 'doc_stride' is not known"):
        answerer.answer("the", "cat", doc_stride=8)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 0}, "top_k=0 is less than 1"),
        ({"top_k": -1}, "top_k=-1"),
        ({"top_k": 1.5}, "top_k=1.5 is not a whole number"),
        ({"top_k": "8"}, "top_k='8'"),
        ({"top_k": True}, "top_k=True"),
        ({"max_answer_tokens": 0}, "max_answer_tokens=0 is not between 1 and 64"),
        ({"max_answer_tokens": 65}, "max_answer_tokens=65"),
        ({"max_answer_tokens": 1.5}, "max_answer_tokens=1.5"),
        ({"max_answer_tokens": "8"}, "max_answer_tokens='8'"),
        ({"handle_impossible_answer": 1}, "handle_impossible_answer=1 is not True or False"),
        ({"handle_impossible_answer": "yes"}, "handle_impossible_answer='yes'"),
        ({"stride": -1}, "stride=-1 is not between 0 and 28"),
        ({"stride": 29}, "stride=29 is not between 0 and 28"),
        ({"stride": "8"}, "stride='8'"),
        ({"max_tokens": 3}, "leaves no room beside 3 special tokens"),
        ({"max_tokens": 65}, "max_tokens=65"),
        ({"max_batch_tokens": 0}, "max_batch_tokens=0"),
        ({"encoding_errors": "ignore"}, "encoding_errors='ignore'"),
    ],
)
def test_bad_options_of_answers_are_named(answerer: Answerer, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        answerer.answer("a", "the cat", **options)
    for pairs in ([], [("a", "the cat")]):
        with pytest.raises(InputError, match=message):
            answerer.answer_many(pairs, **options)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ("ab", r"one str was given.*answer_many\(\[\(question, context\)\]\)"),
        ({"a": "b"}, "dict was given"),
        (None, "NoneType was given"),
        (["ab"], "text 0 is 'ab', not a pair"),
        ([("a", "b"), ("a",)], r"text 1 is \('a',\), not a pair \(question, context\) of str"),
        ([("a", None)], "not a pair"),
        ([("a", [5, 6])], "not a pair"),
        ([b"ab"], "not a pair"),
    ],
)
def test_bad_pairs_are_named(answerer: Answerer, pairs: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        answerer.answer_many(pairs)
