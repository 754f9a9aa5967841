"""The best spans over all windows are those that a search through everything finds."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgebert_runtime import Answer, Answerer
from edgebert_runtime.inputs.character_spans import plan_windows, trim_to_graphemes
from edgebert_runtime.tasks.answer_spans import best_spans, log_normalizer, read_words
from tests.runtime.fakes import KINDS, RowSession, both, make_answerer
from tests.support.work import lines_run

WORD = st.sampled_from("the cat sat berlin catting parisxq zzz . ,".split())


def search_everything(
    engine: Answerer, question: str, context: str, windows: list[tuple[int, int]], longest: int, impossible: bool
) -> list[tuple[float, tuple[int, int]]]:
    """Return score and place of all distinct answers, best first, by loops over windows, starts and ends."""
    question_ids = engine._tokenizer.content(question).ids
    tokens = engine._tokenizer.content(context)
    tables = []
    for first, last in windows:
        row = engine._tokenizer.pair.join(question_ids, tokens.ids[first:last]).ids
        at = engine._tokenizer.pair.starts(len(question_ids), last - first)[1]
        tables.append(np.stack(engine._session.compute(row), 1)[[0, *range(at, at + last - first)]])  # type: ignore[attr-defined]
    total = sum(np.exp(table.astype(np.float64)).sum(0) for table in tables)
    tables = [np.exp(table.astype(np.float64)) / total for table in tables]
    results = {(0, 0): min(float(table[0, 0] * table[0, 1]) for table in tables)} if impossible else {}
    for (first, last), table in zip(windows, tables, strict=True):
        for i, j in itertools.product(range(first, last), repeat=2):
            if i <= j < i + longest:
                left, right = tokens.word_ids.index(tokens.word_ids[i]), j
                while right + 1 < len(tokens.ids) and tokens.word_ids[right + 1] == tokens.word_ids[j]:
                    right += 1
                start, end = trim_to_graphemes(context, tokens.offsets[left][0], tokens.offsets[right][1])
                score = float(table[1 + i - first, 0] * table[1 + j - first, 1])
                if start < end:
                    results[start, end] = max(results.get((start, end), 0.0), score)
    return sorted(((score, place) for place, score in results.items()), key=lambda a: (-round(np.log(a[0]), 6), a[1]))


def coarse(ids: list[int]) -> list[Any]:
    """Return whole numbers, so that many scores are equal."""
    return [np.round(side / 3) for side in both(ids)]


@pytest.fixture(scope="module", params=["random", "many equal", "metaspace over spaces"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Answerer:
    compute = coarse if request.param == "many equal" else both
    kind = request.param if request.param in KINDS else "wordpiece"
    return make_answerer(tmp_path_factory.mktemp("engine"), RowSession(compute), KINDS[kind]())


@given(
    context=st.lists(WORD, min_size=1, max_size=40).map("  ".join),
    top_k=st.sampled_from([1, 2, 5, 50, 5000]),
    longest=st.sampled_from([1, 2, 15, 64]),
    impossible=st.booleans(),
    stride=st.sampled_from([None, 0, 3, 7]),
    room=st.sampled_from([8, 11, 20]),
)
@settings(max_examples=120, deadline=None)
def test_equals_a_search_through_everything(
    engine: Answerer, context: str, top_k: int, longest: int, impossible: bool, stride: int | None, room: int
) -> None:
    question = "sat the cat"
    length, question_ids = (len(engine._tokenizer.content(text).ids) for text in (context, question))
    windows = plan_windows(length, room, room // 4 if stride is None else stride)
    expected = search_everything(engine, question, context, windows, longest, impossible)
    results = engine.answer(
        question,
        context,
        top_k=top_k,
        max_answer_tokens=longest,
        handle_impossible_answer=impossible,
        stride=stride,
        max_tokens=room + question_ids + engine._tokenizer.pair.num_special_tokens,
    )
    assert len(results) == min(top_k, len(expected))
    assert [(answer.start, answer.end) for answer in results] == [place for _, place in expected[:top_k]]
    np.testing.assert_allclose(
        [answer.score for answer in results], [score for score, _ in expected[:top_k]], rtol=1e-6
    )
    assert all(answer.text == context[answer.start : answer.end] for answer in results)


def test_equal_scores_keep_the_order_of_the_context(tmp_path: Path) -> None:
    engine = make_answerer(tmp_path, RowSession(lambda ids: [np.zeros(len(ids))] * 2))
    results = engine.answer("a", "the cat sat", top_k=9, handle_impossible_answer=True)
    assert [answer.text for answer in results] == ["", "the", "the cat", "the cat sat", "cat", "cat sat", "sat"]
    assert {round(answer.score, 9) for answer in results} == {round(1 / 16, 9)}
    long = engine.answer("a", "the cat sat " * 100, top_k=3)
    assert [(answer.start, answer.end) for answer in long] == [(0, 3), (0, 7), (0, 11)]


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u3000"])
def test_blank_texts_have_no_answer(engine: Answerer, blank: str) -> None:
    rows: list[Any] = engine._session.rows  # type: ignore[attr-defined]
    rows.clear()
    for pair in ((blank, "the cat"), ("the cat", blank), (blank, blank)):
        assert engine.answer(*pair, top_k=3) == []
        assert engine.answer(*pair, handle_impossible_answer=True) == [Answer("", 1.0, 0, 0)]
    assert not rows
    first, none, last = engine.answer_many([("a", "the cat"), ("a", blank), ("a", "the cat")])
    assert first == last
    assert (len(first), none) == (1, [])


def test_many_spans_in_one_word_do_not_crowd_out_others() -> None:
    count = 40  # tokens of one word, before two words of a token each
    words = read_words(
        "x" * count + " b c", [*[0] * count, 1, 2], [*((i, i + 1) for i in range(count)), (41, 42), (43, 44)]
    )
    side = np.array([0.0, *[9.0] * count, 1.0, 2.0])
    results = best_spans([(0, count + 2)], [(side, side)], words, 5, 15)
    assert [(span.start, span.end) for span in results] == [(0, 40), (0, 44), (0, 42), (43, 44), (41, 44)]


def test_an_equal_span_of_a_later_window_may_stand_before() -> None:
    words = read_words("a b c d e f", list(range(6)), [(2 * i, 2 * i + 1) for i in range(6)])
    starts = (np.array([0.0, 0, 0, 0, 1]), np.array([0.0, 1, 0, 0, 0]))
    results = best_spans([(0, 4), (2, 6)], [(start, np.zeros(5)) for start in starts], words, 1, 1)
    assert [(span.start, span.end) for span in results] == [(4, 5)]


def test_the_work_of_thirty_windows_is_a_few_thousand_lines() -> None:
    rng = np.random.default_rng(0)
    windows = plan_windows(30 * 256 + 128, 384, 128)
    words = read_words(
        "x " * windows[-1][1], list(range(windows[-1][1])), [(2 * i, 2 * i + 1) for i in range(windows[-1][1])]
    )
    sides = [(rng.normal(0, 3, 1 + end - start), rng.normal(0, 3, 1 + end - start)) for start, end in windows]
    best = best_spans(windows, sides, words, 5, 15)
    assert len(best) == 5
    assert best[0].negative_score + log_normalizer(sides) > 0
    work = lines_run(lambda: (best_spans(windows, sides, words, 5, 15), log_normalizer(sides)))
    assert work < 8000  # of 7,808 tokens
