"""``edgebert classify``: texts or pairs in, labels with scores out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

LONG = "one two three four five six seven"


def test_the_best_label_of_each_text(run: Any, engine: Any) -> None:
    result = run("classify", "classify", "a", "", "b")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "high\t0.7\n" * 3
    assert run("classify", "classify", "--top-k", "2", stdin="a\n").stdout == "high\t0.7\tmid\t0.2\n"
    assert run("classify", "classify", "--top-k", "9", "a").stdout == "high\t0.7\tmid\t0.2\tlow\t0.1\n"
    assert run("classify", "classify", stdin="").output == ""


def test_equal_scores_keep_the_order_of_the_labels(run: Any, engine: Any) -> None:
    engine.scores = (0.25, 0.5, 0.25)
    assert run("classify", "classify", "--top-k", "3", "a").stdout == "mid\t0.5\tlow\t0.25\thigh\t0.25\n"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "mid\t0.9\thigh\t0.5\n"),
        (["--threshold", "0.91"], "\n"),
        (["--threshold", "0"], "mid\t0.9\thigh\t0.5\tlow\t0.1\n"),
        (["--top-k", "1"], "mid\t0.9\n"),
    ],
)
def test_several_labels_reach_the_threshold(run: Any, engine: Any, options: list[str], line: str) -> None:
    engine.problem_type, engine.scores = "multi_label", (0.1, 0.9, 0.5)
    assert run("classify", "classify", *options, stdin="a\nb\n").stdout == line * 2


def test_estimated_numbers_are_printed_as_they_are(run: Any, engine: Any) -> None:
    engine.problem_type, engine.scores = "regression", (-0.1, 3.0, 1e-7)
    assert run("classify", "classify", "a").stdout == "-0.1\t3.0\t1e-07\n"


def test_json_has_all_scores_in_the_digits_of_float32(run: Any, engine: Any) -> None:
    result = run("classify", "classify", "--json", "--top-k", "1", "a", LONG)
    first, second = result.stdout.splitlines()
    scores = '{"low": 0.1, "mid": 0.2, "high": 0.7}'
    assert first == f'{{"index": 0, "label": "high", "score": 0.7, "scores": {scores}, "truncated": false}}'
    assert json.loads(second)["index"] == 1
    assert json.loads(second)["truncated"] is True
    assert result.stderr == "edgebert: texts cut because they were too long: 1 (see --max-tokens)\n"


def test_labels_cannot_break_a_line(run: Any, engine: Any) -> None:
    engine.labels = ("a", "b", "c\td\n\x1b[2J\ud800")
    assert run("classify", "classify", "a").stdout == "c d  [2J\ufffd\t0.7\n"
    assert json.loads(run("classify", "classify", "--json", "a").stdout)["label"] == engine.labels[2]


def test_pairs_have_a_tab_between_them(run: Any, engine: Any) -> None:
    assert run("classify", "classify", "--pairs", "a\tb c", "\t").exit_code == 0
    assert engine.calls[0]["joined"] == ["a|b c", "|"]
    assert run("classify", "next-sentence", "--pairs", stdin="a b\tc\r\n").exit_code == 0
    assert engine.calls[1]["joined"] == ["a b|c"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a\tb\nab\n", "line 2 of standard input has no tab"),
        ("a\tb\n\n", "line 2 of standard input has no tab"),
        ("a\tb\tc\n", "line 1 of standard input has 2 tabs"),
    ],
)
def test_what_is_no_pair_is_named(run: Any, engine: Any, texts: str, message: str) -> None:
    result = run("classify", "classify", "--pairs", stdin=texts)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"edgebert: error: {message}; --pairs takes two texts with one tab between them\n"
    arguments = run("classify", "classify", "--pairs", *texts.splitlines())
    assert arguments.stderr == result.stderr.replace("line", "text").replace(" of standard input", "")


@pytest.mark.parametrize(
    ("task", "problem_type", "options", "remedy"),
    [
        ("next-sentence", "single_label", [], "give --pairs"),
        ("classify", "regression", ["--top-k", "2"], "leave out --top-k"),
        ("classify", "single_label", ["--threshold", "0.5"], "leave out --threshold"),
    ],
)
def test_options_that_the_bundle_cannot_follow(
    run: Any, engine: Any, task: str, problem_type: str, options: list[str], remedy: str
) -> None:
    engine.problem_type = problem_type
    result = run("classify", task, "a", *options)
    assert (result.exit_code, result.stdout, engine.calls) == (1, "", [])
    assert result.stderr.startswith(f"edgebert: error: {task} ")
    assert remedy in result.stderr


@pytest.mark.parametrize("options", [["--threshold", "1.1"], ["--top-k", "0"], ["--top-k", "x"]])
def test_options_that_cannot_work_are_refused(run: Any, engine: Any, options: list[str]) -> None:
    result = run("classify", "classify", "a", *options)
    assert (result.exit_code, result.stdout, engine.loads) == (2, "", [])


def test_options_reach_the_engine(run: Any, engine: Any) -> None:
    options = "--max-tokens 3 --no-truncate --max-batch-tokens 9 --encoding-errors replace --device auto --threads 2"
    assert run("classify", "classify", "a", *options.split()).exit_code == 0
    assert engine.loads == [(Path("classify"), {"device": "auto", "threads": 2})]
    expected = {"max_tokens": 3, "truncate": False, "max_batch_tokens": 9, "encoding_errors": "replace"}
    assert engine.calls == [{"texts": 1, "joined": ["a"], **expected}]
