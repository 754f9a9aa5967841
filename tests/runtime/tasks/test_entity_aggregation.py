"""Labels become entities: schemes, words, windows; against regular expressions and loops written out."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgebert_runtime.inputs.character_spans import plan_windows
from edgebert_runtime.tasks.entity_aggregation import (
    ELECTRA,
    LabelledPiece,
    aggregate_entities,
    group,
    merge,
    merge_windows,
    predict_labels,
    read_scheme,
)


class Words(NamedTuple):
    """Tokens with the number of the word of each."""

    word_ids: list[int | None]


KINDS = {"X": "BIESx", "Y": "biesy"}  # a letter for each label; plain labels continue like I
LETTERS = {f"{prefix}-{kind}": letters[at] for kind, letters in KINDS.items() for at, prefix in enumerate("BIES")}
LETTERS |= {"L-X": "E", "U-X": "S", "L-Y": "e", "U-Y": "s", "X": "I", "Y": "i", "O": "."}
NAMES = tuple(LETTERS)
SCHEME = read_scheme(NAMES)
ENTITY = re.compile("S|[BI]I*E?|E|s|[bi]i*e?|e")


def parts(labels: list[str], scores: list[float] | None = None) -> list[LabelledPiece]:
    scores = scores or [0.5] * len(labels)
    numbered = enumerate(zip(labels, scores, strict=True))
    return [LabelledPiece(NAMES.index(label), score, i, i) for i, (label, score) in numbered if label != "O"]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("", []),
        ("O O", []),
        ("B-X I-X O", [("X", 0, 1)]),
        ("B-X B-X I-X", [("X", 0, 0), ("X", 1, 2)]),
        ("I-X I-X O I-X", [("X", 0, 1), ("X", 3, 3)]),
        ("B-X I-Y I-Y", [("X", 0, 0), ("Y", 1, 2)]),
        ("B-X I-X E-X I-X", [("X", 0, 2), ("X", 3, 3)]),
        ("S-X S-X E-X E-X", [("X", 0, 0), ("X", 1, 1), ("X", 2, 2), ("X", 3, 3)]),
        ("U-X B-X L-X", [("X", 0, 0), ("X", 1, 2)]),
        ("X X Y O Y", [("X", 0, 1), ("Y", 2, 2), ("Y", 4, 4)]),
        ("B-X X S-X X", [("X", 0, 1), ("X", 2, 2), ("X", 3, 3)]),
    ],
)
def test_schemes(labels: str, expected: list[Any]) -> None:
    assert [(results.name, results.first, results.last) for results in merge(parts(labels.split()), SCHEME)] == expected


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.floats(0, 1)), max_size=14))
@settings(max_examples=300, deadline=None)
def test_any_labels_equal_a_regular_expression(drawn: list[tuple[str, float]]) -> None:
    labels, scores = [label for label, _ in drawn], [score for _, score in drawn]
    text = "".join(LETTERS[label] for label in labels)
    results = merge(parts(labels, scores), SCHEME)
    matches = list(ENTITY.finditer(text))
    assert [(entity.first, entity.last + 1) for entity in results] == [match.span() for match in matches]
    for entity, match in zip(results, matches, strict=True):
        assert entity.name == ("X" if match[0].isupper() else "Y")
        assert entity.score == pytest.approx(np.mean(scores[match.start() : match.end()]))


@given(st.lists(st.tuples(st.sampled_from("XY"), st.integers(1, 4), st.integers(0, 2)), max_size=6))
def test_what_was_written_is_read(entities: list[tuple[str, int, int]]) -> None:
    labels: list[str] = []
    expected = []
    for kind, length, gap in entities:
        expected.append((kind, len(labels), len(labels) + length - 1))
        labels += [f"S-{kind}"] if length == 1 else [f"B-{kind}", *[f"I-{kind}"] * (length - 2), f"E-{kind}"]
        labels += ["O"] * gap
    assert [(results.name, results.first, results.last) for results in merge(parts(labels), SCHEME)] == expected


def test_names_of_labels() -> None:
    scheme = read_scheme(("O", "B-PER", "I-", "-X", "work-of-art", "B-work-of-art", "original", "b-PER"))
    assert scheme.types == ("O", "PER", "I-", "-X", "work-of-art", "work-of-art", "original", "b-PER")
    assert scheme.inside == {1, 2, 3, 4, 5, 6, 7}
    assert read_scheme(ELECTRA).inside == {1}
    assert read_scheme(("replaced", "original")).inside == {0, 1}


@given(st.lists(st.integers(0, 2) | st.none(), max_size=12))
def test_group_makes_runs(keys: list[int | None]) -> None:
    runs = group(keys)
    assert [place for first, last in runs for place in range(first, last + 1)] == list(range(len(keys)))
    for first, last in runs:
        assert len(set(keys[first : last + 1])) == 1
        assert first == last or keys[first] is not None
    for (_, last), (first, _) in zip(runs, runs[1:], strict=False):
        assert keys[last] != keys[first] or keys[first] is None


@given(length=st.integers(1, 60), size=st.integers(1, 20), data=st.data())
@settings(deadline=None)
def test_stitch_takes_the_window_farthest_from_an_edge(length: int, size: int, data: Any) -> None:
    windows = plan_windows(length, size, data.draw(st.integers(0, size - 1)))
    judged = [(np.full(end - start, i), np.full(end - start, i, np.float32)) for i, (start, end) in enumerate(windows)]
    labels, scores = merge_windows(windows, judged)
    for place in range(length):
        depths = []
        for start, end in windows:
            edges = [place - start] * (start > 0) + [end - 1 - place] * (end < length)
            depths.append(min(edges, default=10**6) if start <= place < end else -1)
        assert labels[place] == scores[place] == int(np.argmax(depths))


def test_judge_gives_the_best_probability() -> None:
    logits = np.array([[0, 1, 2], [1000, -1000, 1000], [-5, -5, -6]], np.float32)
    best, scores = predict_labels(logits)
    exact = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    assert best.tolist() == [2, 0, 0]
    np.testing.assert_allclose(scores, (exact / exact.sum(1, keepdims=True)).max(1), rtol=1e-6)


def test_aggregations_of_words() -> None:
    names = ("O", "B-X", "I-X", "B-Y", "I-Y")
    best, scores = np.array([1, 4, 0, 2, 2, 3]), np.array([0.5, 0.75, 0.25, 0.875, 1.0, 0.5], np.float32)
    words: list[int | None] = [0, 0, 1, 1, 2, 3]

    def run(aggregation: str) -> list[tuple[Any, ...]]:
        return [
            tuple(results)
            for results in aggregate_entities((best, scores), read_scheme(names), aggregation, Words(words))
        ]

    assert run("none") == [
        ("B-X", 0.5, 0, 0),
        ("I-Y", 0.75, 1, 1),
        ("I-X", 0.875, 3, 3),
        ("I-X", 1.0, 4, 4),
        ("B-Y", 0.5, 5, 5),
    ]
    assert run("simple") == [("X", 0.5, 0, 0), ("Y", 0.75, 1, 1), ("X", 0.9375, 3, 4), ("Y", 0.5, 5, 5)]
    assert run("first") == [("X", 0.5, 0, 1), ("X", 1.0, 4, 4), ("Y", 0.5, 5, 5)]
    assert run("max") == [("Y", 0.75, 0, 1), ("X", 0.9375, 2, 4), ("Y", 0.5, 5, 5)]


def test_of_equal_tokens_the_first_gives_its_word_the_label() -> None:
    judged = np.array([1, 2]), np.array([0.5, 0.5], np.float32)
    results = aggregate_entities(judged, read_scheme(("O", "A", "B")), "max", Words([7, 7]))
    assert [tuple(entity) for entity in results] == [("A", 0.5, 0, 1)]
