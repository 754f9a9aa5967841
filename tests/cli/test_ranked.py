"""``edgebert rerank`` and ``edgebert choose``: texts in, the same out with scores, best first."""

from __future__ import annotations

import json
from typing import Any

import pytest

LONG = "one two three four five six seven"


def test_rerank_prints_score_and_passage(run: Any, engine: Any) -> None:
    result = run("rerank", "rerank", "which?", "a", "abc", "")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "1.0\tabc\n0.33333334\ta\n0.0\t\n"
    assert engine.calls[0]["query"] == "which?"
    assert run("rerank", "rerank", "which?", "--top-k", "1", stdin="a\nabc\n\n").stdout == "1.0\tabc\n"


def test_rerank_reads_all_passages_before_it_sorts(run: Any, engine: Any, small_reads: None) -> None:
    result = run("rerank", "rerank", "q", "--top-k", "2", stdin="xy\n" * 3000 + "xyz\n")
    assert result.stdout == "1.0\txyz\n0.6666667\txy\n"
    assert [call["texts"] for call in engine.calls] == [3001]


def test_json_lines(run: Any, engine: Any) -> None:
    result = run("rerank", "rerank", "q", "--json", "a\tb\n", LONG)
    first, second = result.stdout.splitlines()
    assert json.loads(first) == {"index": 1, "score": 11.0, "text": LONG, "truncated": True}
    assert second == '{"index": 0, "score": 1.3333334, "text": "a\\tb\\n", "truncated": false}'


def test_passages_cannot_break_a_line(run: Any, engine: Any) -> None:
    assert run("rerank", "rerank", "q", "a\tb\r\n\x1b[2J\u2028\x85").stdout.count("\n") == 1
    assert run("rerank", "rerank", "q", "a\tb\nc").stdout == "1.6666667\ta b c\n"


def test_choose(run: Any, engine: Any) -> None:
    result = run("choose", "multiple-choice", "what?", "a", "abc", "de", "--", "-x")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "1.0\tabc\n0.6666667\tde\n0.6666667\t-x\n0.33333334\ta\n"
    assert engine.calls[0]["prompt"] == "what?"
    lines = run("choose", "multiple-choice", "--json", "what?", "a", "abc").stdout.splitlines()
    assert json.loads(lines[0]) == {"index": 1, "score": 1.0, "text": "abc", "truncated": False}


def test_choose_names_its_texts(run: Any, engine: Any) -> None:
    result = run("choose", "multiple-choice", "what?", "boom", "a")
    assert (result.exit_code, result.stderr) == (1, "edgebert: error: a choice with the prompt is bad: it says boom\n")


@pytest.mark.parametrize(
    "args",
    [
        ["rerank", "rerank"],
        ["rerank", "rerank", "q", "a", "--top-k", "0"],
        ["rerank", "rerank", "q", "a", "--input", "x"],
        ["choose", "multiple-choice", "what?"],
        ["choose", "multiple-choice", "what?", "only"],
        ["choose", "multiple-choice", "what?", "a", "b", "--max-tokens", "0"],
    ],
)
def test_wrong_usage(run: Any, engine: Any, args: list[str]) -> None:
    result = run(*args)
    assert (result.exit_code, result.stdout, engine.loads) == (2, "", [])


@pytest.mark.parametrize("args", [["rerank", "rerank", "q", "a"], ["choose", "multiple-choice", "q", "a", "b"]])
def test_options_reach_the_engine(run: Any, engine: Any, args: list[str]) -> None:
    options = "--max-tokens 3 --no-truncate --max-batch-tokens 9 --encoding-errors replace --device auto --threads 2"
    assert run(*args, *options.split()).exit_code == 0
    assert engine.loads[0][1] == {"device": "auto", "threads": 2}
    expected = {"max_tokens": 3, "truncate": False, "max_batch_tokens": 9, "encoding_errors": "replace"}
    assert engine.calls[0].items() >= expected.items()
