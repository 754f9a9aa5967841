"""Answers: the best spans over all windows, as a search through everything finds, in the context's characters."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import processors

from edgebert_runtime import Answerer
from edgebert_runtime.errors import BundleError, EdgebertError, InputError, LimitError
from edgebert_runtime.inputs.character_spans import plan_windows
from tests.runtime.fakes import KINDS, RowSession, both, fake_bundle, make_answerer, wordpiece

PROPERTY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WORD = st.sampled_from("the cat sat berlin catting parisxq é cafe\u0301 日本 ह zzz . ,".split())
TEXT = st.lists(WORD, max_size=60).map(" ".join)
STRANGE = ["\0", "a\0b", "\u0301" * 50, "\u202e\u200d\ufeff", "👩‍👩‍👧  👍🏽 b", "שָׁלוֹם", "x" * 100_000, "[SEP] [CLS]"]


def planted(start: int, end: int) -> RowSession:
    """Make a session that is sure that answers begin and end with certain token ids."""
    return RowSession(lambda ids: [np.array([9.0 * (token == expected) for token in ids]) for expected in (start, end)])


@pytest.fixture(scope="module")
def session() -> RowSession:
    return RowSession(both)


@pytest.fixture(scope="module")
def answerer(session: RowSession, tmp_path_factory: pytest.TempPathFactory) -> Answerer:
    return make_answerer(tmp_path_factory.mktemp("answerer"), session)


@pytest.mark.parametrize("longest", [1, 4, 15])
def test_one_window_equals_the_pipeline_that_transformers_had(answerer: Answerer, longest: int) -> None:
    """Its steps up to version 4, since version 5 has no question answering: mask, softmax, outer product, triangle."""
    question, context = "the cat", "the dog sat in berlin and ran in paris ."
    question_ids, ids = (answerer._tokenizer.content(text).ids for text in (question, context))
    row = [2, *question_ids, 3, *ids, 3]
    undesired = np.array(
        [place != 0 and not len(question_ids) + 2 <= place < len(row) - 1 for place in range(len(row))]
    )
    start, end = (np.where(undesired, -10000.0, side) for side in both(row))
    start, end = (np.exp(side - side.max()) / np.exp(side - side.max()).sum() for side in (start, end))
    null = start[0] * end[0]
    start[0] = end[0] = 0
    table = np.tril(np.triu(np.outer(start, end)), longest - 1)
    first, last = np.unravel_index(table.argmax(), table.shape)
    words = context.split()  # each word is a token here
    expected = " ".join(words[first - len(question_ids) - 2 : last - len(question_ids) - 1])
    (best,) = answerer.answer(question, context, max_answer_tokens=longest)
    assert best.text == expected
    assert best.score == pytest.approx(table.max(), rel=1e-5)
    answers = answerer.answer(question, context, max_answer_tokens=longest, top_k=10_000, handle_impossible_answer=True)
    (nothing,) = [answer for answer in answers if not answer.text]
    assert (nothing.start, nothing.end) == (0, 0)
    assert nothing.score == pytest.approx(null, rel=1e-5)


def test_an_answer_near_the_end_of_a_long_context(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    vocab = wordpiece().get_vocab()
    engine = make_answerer(tmp_path, planted(vocab["berlin"], vocab["paris"]))
    context = "the cat  sat. " * 40 + "In Berlİn and\tParis the dog ran."
    with caplog.at_level(logging.WARNING, logger="edgebert"):
        (answer,) = engine.answer("in the mat?", context)
        (second,) = engine.answer("in the mat?", context, truncate=False, max_tokens=24)
    assert second.text == answer.text
    assert not caplog.records
    assert len(engine._tokenizer.content(context).ids) > 5 * engine.default_tokens
    assert answer.text == context[answer.start : answer.end] == "Berlİn and\tParis"
    assert answer.start == context.index("Berl")


def test_as_many_distinct_answers_as_asked_for(answerer: Answerer) -> None:
    context = "the cat sat in berlin and the dog ran in paris . " * 8
    for top_k in (1, 5, 40):
        answers = answerer.answer("a cat in paris", context, top_k=top_k)
        assert len({(answer.start, answer.end) for answer in answers}) == len(answers) == top_k
        assert [answer.score for answer in answers] == sorted((answer.score for answer in answers), reverse=True)
    assert len(answerer.answer("a cat", "the mat", top_k=9)) == 3


@pytest.mark.parametrize(("sure", "text"), [(-9.0, "berlin"), (30.0, "")])
def test_no_answer_competes(tmp_path: Path, sure: float, text: str) -> None:
    berlin = wordpiece().get_vocab()["berlin"]
    session = RowSession(lambda ids: [np.array([sure] + [9.0 * (token == berlin) for token in ids[1:]])] * 2)
    engine = make_answerer(tmp_path, session)
    context = "the cat sat in berlin . " + "the dog ran . " * 20
    (best,) = engine.answer("a", context, handle_impossible_answer=True)
    assert best.text == text
    assert (best.start, best.end) == ((0, 0) if not text else (15, 21))
    answers = engine.answer("a", context, handle_impossible_answer=True, top_k=3)
    assert len(answers) == 3
    assert answers[0] == best
    assert [answer.text for answer in engine.answer("a", context)] == ["berlin"]


def test_the_question_and_each_window_are_framed(answerer: Answerer, session: RowSession) -> None:
    session.rows.clear()
    context = "the cat sat on a mat and " * 10
    answerer.answer("a dog", context, stride=4)
    question_ids, ids = (answerer._tokenizer.content(text).ids for text in ("a dog", context))
    windows = plan_windows(len(ids), 32 - 3 - 2, 4)
    assert session.rows == sorted(
        ([2, *question_ids, 3, *ids[start:end], 3] for start, end in windows), key=len, reverse=True
    )


@pytest.mark.parametrize(
    ("context", "word", "text"),
    [("x 日本日本 y", "本", "本"), ("Cafe\u0301s, foo", "é", "Cafe\u0301s,"), ("a (paris)", "p", "(paris)")],
)
def test_answers_are_widened_to_words_where_there_are_spaces(
    tmp_path: Path, context: str, word: str, text: str
) -> None:
    tokenizer = KINDS["metaspace"]()
    tokens = tokenizer.encode(context, add_special_tokens=False).tokens
    expected = next(place for place, token in enumerate(tokens) if token.endswith(word)) - len(tokens) - 1
    session = RowSession(lambda ids: [9.0 * (np.arange(-len(ids), 0) == expected)] * 2)
    engine = make_answerer(tmp_path, session, tokenizer)
    assert engine.answer("the", context)[0].text == text


@pytest.mark.parametrize("kind", KINDS)
def test_strange_texts(tmp_path: Path, session: RowSession, kind: str) -> None:
    engine = make_answerer(tmp_path, session, KINDS[kind](), limits=(512, 512))
    results = engine.answer_many([("cat", context) for context in STRANGE], top_k=3)
    for context, answers in zip(STRANGE, results, strict=True):
        for answer in answers:
            assert 0 <= answer.start < answer.end <= len(context)
            assert answer.text == context[answer.start : answer.end] == answer.text.strip()
            assert 0 < answer.score <= 1
    assert [len(answers) for answers in results][4] == 3


def test_a_session_may_use_its_memory_again(answerer: Answerer, tmp_path: Path) -> None:
    class Reusing(RowSession):
        memory: Any = ()

        def run(self, output_names: Any, feeds: Any) -> Any:
            for array in self.memory:
                array[:] = np.nan
            self.memory = super().run(output_names, feeds)
            return self.memory

    context = "the cat sat in berlin and the dog ran in paris . " * 8
    results = make_answerer(tmp_path, Reusing(both)).answer("a", context, max_batch_tokens=32, top_k=5)
    assert results == answerer.answer("a", context, top_k=5)


@given(pairs=st.lists(st.tuples(WORD, TEXT), max_size=6), seed=st.integers(0, 99), budget=st.integers(1, 90))
@PROPERTY
def test_batch_equals_single_equals_shuffled(
    answerer: Answerer, pairs: list[tuple[str, str]], seed: int, budget: int
) -> None:
    together = answerer.answer_many(pairs, top_k=2)
    assert together == [answerer.answer(*pair, top_k=2) for pair in pairs]
    order = np.random.default_rng(seed).permutation(len(pairs))
    shuffled = answerer.answer_many((pairs[i] for i in order), top_k=2, max_batch_tokens=budget)
    assert shuffled == [together[i] for i in order]


def test_windows_of_all_questions_share_batches(tmp_path: Path) -> None:
    class Counter(RowSession):
        batches = 0

        def run(self, output_names: Any, feeds: Any) -> Any:
            self.batches += 1
            return super().run(output_names, feeds)

    counter = Counter(both)
    calls: list[tuple[int, int | None]] = []
    pairs = [("a cat", "the dog ran in paris . " * 9)] * 4
    engine = make_answerer(tmp_path, counter)
    results = engine.answer_many(
        pairs, max_batch_tokens=10_000, progress=lambda done, total: calls.append((done, total))
    )
    assert (counter.batches, len(results), len(counter.rows)) == (1, 4, 12)
    assert calls == [(4, 4)]
    assert engine.answer_many([]) == engine.answer_many(iter(())) == []
    assert counter.batches == 1


def test_a_question_needs_room_beside_it(answerer: Answerer) -> None:
    long = "the " * 22
    with pytest.raises(
        LimitError, match=r"text 0 has a question of 22 tokens, which leaves 7 of 32 .*of 9; .*max_tokens up to 64"
    ):
        answerer.answer(long, "the cat sat on a mat and ran .")
    assert answerer.answer(long, "the cat sat on a mat .")
    assert answerer.answer(long, "the cat " * 30, max_tokens=64)
    with pytest.raises(LimitError, match="leaves 0 of 32 for the context of 1"):
        answerer.answer("the " * 40, "cat")
    with pytest.raises(LimitError, match=r"leaves 10 of 32 .*stride=10; lower it"):
        answerer.answer("the " * 19, "the cat " * 30, stride=10)
    assert answerer.answer("the " * 19, "the cat", stride=10)
    with pytest.raises(LimitError, match=r"the context of question 1 has 1000001 characters"):
        answerer.answer_many([("a", "b"), ("a", "a" * 1_000_001)])


def test_replaced_surrogates_do_not_move_spans(tmp_path: Path) -> None:
    berlin = wordpiece().get_vocab()["berlin"]
    engine = make_answerer(tmp_path, planted(berlin, berlin))
    context = "\ud83d\ude00 \ud800 berlin \udfff"
    (answer,) = engine.answer("in \ud800?", context, encoding_errors="replace")
    assert answer.text == context[answer.start : answer.end] == "berlin"
    with pytest.raises(InputError, match=r"the context of question 0 has the lone surrogate U\+D83D at character 0"):
        engine.answer("in", context)
    with pytest.raises(InputError, match=r"question 0 has the lone surrogate U\+D800"):
        engine.answer("\ud800", "the")


def test_bundles_that_cannot_answer(tmp_path: Path, session: RowSession) -> None:
    with pytest.raises(BundleError, match="has no output end_logits"):
        Answerer(fake_bundle(tmp_path, "answer", {"start_logits": ("batch", "sequence")}, {}), session=session)
    tokenizer = wordpiece()
    tokenizer.post_processor = processors.TemplateProcessing("$A [SEP]", "$A [SEP] $B [SEP]", [("[SEP]", 3)])
    with pytest.raises(BundleError, match="begins pairs of texts without a special token"):
        make_answerer(tmp_path, session, tokenizer)


def test_numbers_that_are_not_finite_are_errors(tmp_path: Path) -> None:
    engine = make_answerer(tmp_path, RowSession(lambda ids: [np.full(len(ids), np.inf)] * 2))
    with pytest.raises(EdgebertError, match="NaN or infinity for text 1"):
        engine.answer_many([("a", ""), ("a", "the cat")])
