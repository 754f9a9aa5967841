"""Choices: equal to the reference, sorted, and every input that must be refused."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

import edgebert_runtime
from edgebert_runtime import Bundle, MultipleChoice
from edgebert_runtime.errors import BundleError, EdgebertError, InputError, LimitError
from tests.runtime.conftest import Scripted, Tiny, changed

TEXT = st.lists(st.sampled_from("the cat sat on a mat dog rain [SEP] é 日 zzz .".split()), max_size=30).map(" ".join)
QUESTIONS = [
    ("the cat sat", ["on a mat", "in rain", "dog"]),
    ("", ["", " "]),
    ("the dog " * 30, ["moon", "sun " * 50, "[SEP]", "a" * 500]),
]


TASK = "multiple-choice"  # of the fixture case


@pytest.fixture(scope="module")
def engine(case: Tiny) -> MultipleChoice:
    return MultipleChoice(Bundle.open(case.bundle))


def last_id(engine: MultipleChoice) -> MultipleChoice:
    """Return an engine whose logit is a tenth of the last id before the last special token."""
    session = Scripted(lambda ids, mask, types: ids[range(len(ids)), mask.sum(1) - 2][:, None] / 10)
    return MultipleChoice(engine.bundle, session=session)


def expected(case: Tiny, prompt: str, choices: list[str]) -> list[float]:
    """Compute the distribution with the reference, on what tokenizers makes of each pair."""
    plain = tokenizers.Tokenizer.from_file(str(case.bundle / "tokenizer.json"))
    plain.encode_special_tokens = True
    plain.enable_truncation(40, strategy="longest_first")
    rows = [plain.encode(prompt, choice) for choice in choices]
    powers = [math.exp(case.logits(row.ids, row.type_ids)[0]) for row in rows]
    return [power / sum(powers) for power in powers]


def test_equals_the_reference(case: Tiny) -> None:
    engine = edgebert_runtime.load(case.bundle)
    assert isinstance(engine, MultipleChoice)
    for (prompt, choices), results in zip(QUESTIONS, engine.choose_many(QUESTIONS), strict=True):
        reference = expected(case, prompt, choices)
        np.testing.assert_allclose([item.score for item in results], sorted(reference, reverse=True), atol=1e-5)
        for item in results:
            assert item.score == pytest.approx(reference[item.index], abs=1e-5)
            assert item.text == choices[item.index]
        assert sum(item.score for item in results) == pytest.approx(1)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(TEXT, st.lists(TEXT, min_size=2, max_size=4)), min_size=1, max_size=5), st.integers(1, 90))
def test_many_equal_one(engine: MultipleChoice, questions: list[tuple[str, list[str]]], budget: int) -> None:
    for (prompt, choices), results in zip(
        questions, engine.choose_many(iter(questions), max_batch_tokens=budget), strict=True
    ):
        alone = {item.index: item.score for item in engine.choose(prompt, choices)}
        np.testing.assert_allclose([item.score for item in results], [alone[item.index] for item in results], atol=1e-5)


def test_best_first_and_ties_in_order(engine: MultipleChoice) -> None:
    choices = ("the", "dog", "cat", "dog", "the")
    assert [item.index for item in last_id(engine).choose("a", choices)] == [1, 3, 2, 0, 4]
    many = last_id(engine).choose_many([("a", choices[i % 3 :]) for i in range(900)])
    assert [[item.text for item in results] for results in many[:3]] == [
        ["dog", "dog", "cat", "the", "the"],
        ["dog", "dog", "cat", "the"],
        ["dog", "cat", "the"],
    ]
    assert many == many[:3] * 300


def test_all_choices_are_batched_together(engine: MultipleChoice) -> None:
    session = Scripted(lambda ids, mask, types: ids[:, :1])
    fake = MultipleChoice(engine.bundle, session=session)
    fake.choose_many([("the", ["cat", "dog"])] * 20, max_batch_tokens=10_000)
    assert [len(feeds["input_ids"]) for feeds in session.feeds] == [40]


def test_numbers_that_are_not_finite_are_of_a_question(engine: MultipleChoice) -> None:
    session = Scripted(lambda ids, mask, types: np.where((ids == 12).any(1, keepdims=True), np.nan, 1.0))
    fake = MultipleChoice(engine.bundle, session=session)
    questions = [("the", ["cat", "sun", "moon"]), ("the", ["cat", "sun"]), ("the", ["cat", "dog"])]
    with pytest.raises(EdgebertError, match="NaN or infinity for text 2"):
        fake.choose_many(questions)
    assert len(fake.choose_many(questions[:2])) == 2


def test_what_is_cut_is_flagged(engine: MultipleChoice, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="edgebert"):
        results = engine.choose("the cat", ["on a mat", "moon " * 60])
    assert {item.index: item.truncated for item in results} == {0: False, 1: True}
    assert [record.getMessage() for record in caplog.records] == ["1 of 2 texts were cut to 40 tokens"]
    with pytest.raises(LimitError, match="text 0 has 65 tokens, the limit is 40"):
        engine.choose("the cat", ["on a mat", "moon " * 60], truncate=False)


def test_nothing_in_nothing_out(engine: MultipleChoice) -> None:
    assert engine.choose_many([]) == engine.choose_many(iter(())) == []


@pytest.mark.parametrize(
    ("prompt", "choices", "message"),
    [
        ("a", [], "question 0 has 0 choices; give two at least"),
        ("a", ["b"], "question 0 has 1 choices"),
        ("a", "bc", r"one str was given.*choose\(prompt, \[choice, choice\]\)"),
        ("a", None, "NoneType was given"),
        ("a", ["b", 7], "choice 1 of question 0 is int"),
        (5, ["b", "c"], "the prompt of question 0 is int"),
        ("\ud800", ["b", "c"], r"the prompt of question 0 has the lone surrogate U\+D800"),
        ("a", ["b", "\ud800"], r"choice 1 of question 0 has the lone surrogate"),
    ],
)
def test_bad_questions_are_named(engine: MultipleChoice, prompt: Any, choices: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        engine.choose(prompt, choices)


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ("ab", "one str was given"),
        ([("a", ["b", "c"]), "ab"], "question 1 is str, not a pair of prompt and choices"),
        ([("a", "b", "c")], "question 0 is tuple, not a pair"),
        (7, "int was given"),
    ],
)
def test_bad_lists_of_questions_are_named(engine: MultipleChoice, questions: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        engine.choose_many(questions)


@pytest.mark.parametrize("value", [0, -1, 1.5, "8", True])
@pytest.mark.parametrize("name", ["max_tokens", "max_batch_tokens"])
def test_bad_options_are_named(engine: MultipleChoice, name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{name}={value!r}"):
        engine.choose("a", ["b", "c"], **{name: value})


def test_strange_texts(engine: MultipleChoice) -> None:
    strange = ["", " ", "\n", "\0", "\u0301" * 50, "👩‍👩‍👧", "שלום", "x" * 100_000]
    results = engine.choose_many([(prompt, strange) for prompt in strange])
    assert [len(choices) for choices in results] == [len(strange)] * len(strange)
    damaged, repaired = engine.choose_many(
        [("\ud800", ["\udc00", "a"]), ("\ufffd", ["\ufffd", "a"])], encoding_errors="replace"
    )
    np.testing.assert_allclose([item.score for item in damaged], [item.score for item in repaired], atol=1e-6)
    assert {item.text for item in damaged} == {"\udc00", "a"}


def test_a_model_with_more_than_one_number_for_a_choice(case: Tiny, engine: MultipleChoice, tmp_path: Path) -> None:
    def change(data: dict[str, Any]) -> None:
        data["graphs"]["model"]["outputs"][0]["shape"][-1] = 2

    path = changed(case.bundle, tmp_path / "bundle", change=change)
    manifest = type(engine.bundle.manifest).from_json((path / "edgebert.json").read_text())
    with pytest.raises(BundleError, match="2 outputs, a choice takes 1"):
        MultipleChoice(Bundle(path, manifest), session=Scripted(lambda ids, mask, types: ids))
