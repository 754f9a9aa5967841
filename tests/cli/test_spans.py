"""``edgebert tag``, ``answer`` and ``fill-mask``: places in texts, with offsets and scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgebert.cli.text_input import MAX_LINE_BYTES

SHARED = {"max_tokens": 3, "max_batch_tokens": 9, "encoding_errors": "replace"}
OPTIONS = "--max-tokens 3 --max-batch-tokens 9 --encoding-errors replace"


def test_tag_prints_a_line_for_each_entity(run: Any, engine: Any) -> None:
    result = run("tag", "tag", stdin="Ada met Bob\n\nin ÉVREUX 𝔸\n")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "1\t0\t3\tNAME\t0.33333334\tAda\n1\t8\t11\tNAME\t0.33333334\tBob\n3\t4\t9\tNAME\t0.33333334\tVREUX\n"
    )


def test_tag_prints_json_for_each_text(run: Any, engine: Any) -> None:
    first, second = run("tag", "tag", "--json", "a", "Ada\x07").stdout.splitlines()
    assert first == '{"index": 0, "entities": []}'
    entity = '{"label": "NAME", "score": 0.33333334, "start": 0, "end": 4, "text": "Ada\\u0007"}'
    assert second == f'{{"index": 1, "entities": [{entity}]}}'
    assert run("tag", "tag", "Ada\x07").stdout == "1\t0\t4\tNAME\t0.33333334\tAda \n"


def test_tag_hands_its_options_on(run: Any, engine: Any) -> None:
    assert run("tag", "tag", "a", *OPTIONS.split()).exit_code == 0
    assert run("tag", "tag", "a", *OPTIONS.split(), "--aggregation", "max", "--stride", "0").exit_code == 0
    assert engine.calls == [
        {"texts": 1, **SHARED, "aggregation": "simple", "stride": None},
        {"texts": 1, **SHARED, "aggregation": "max", "stride": 0},
    ]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_answer_finds_the_context_anywhere(run: Any, engine: Any, tmp_path: Path, options: list[str]) -> None:
    context = "line one\nthen Ada\tLovelace and Bob"
    (tmp_path / "c.txt").write_bytes(b"\xef\xbb\xbf" + context.replace("\n", "\r\n").encode() + b"\n")
    results = [
        run("answer", "answer", "who?", "--context", context, *options),
        run("answer", "answer", "who?", "--context-file", tmp_path / "c.txt", *options),
        run("answer", "answer", "who?", "--context-file", "-", *options, stdin=context),
        run("answer", "answer", "who?", *options, stdin=context + "\n"),
    ]
    assert [call["contexts"] for call in engine.calls] == [[context]] * 4
    assert {result.exit_code for result in results} == {0}
    assert len({result.output for result in results}) == 1


def test_answer_prints_a_line_for_each_answer(run: Any, engine: Any) -> None:
    result = run("answer", "answer", "who?", "where?", "--top-k", "2", "--context", "is A\tb and B")
    assert result.stdout == "".join(f"{n}\t0.33333334\t3\t4\tA\n{n}\t0.33333334\t11\t12\tB\n" for n in (1, 2))
    result = run("answer", "answer", "who?", "--no-answer", "--context", "a")
    assert result.stdout == "1\t0.5\t0\t0\t\n"
    assert run("answer", "answer", "who?", "--context", "a").output == ""


def test_answer_prints_json_for_each_question(run: Any, engine: Any) -> None:
    result = run("answer", "answer", "who?", "x", "--top-k", "2", "--no-answer", "--json", "--context", "A")
    none, span = '{"text": "", "score": 0.5, "start": 0, "end": 0}', '"score": 0.33333334, "start": 0, "end": 1}'
    lines = [f'{{"index": {i}, "answers": [{none}, {{"text": "A", {span}]}}\n' for i in (0, 1)]
    assert result.stdout == "".join(lines)


def test_answer_hands_its_options_on(run: Any, engine: Any) -> None:
    own = ["--max-answer-tokens", "4", "--stride", "2"]
    assert run("answer", "answer", "who?", "--context", "c", *OPTIONS.split(), *own).exit_code == 0
    expected = {"max_answer_tokens": 4, "handle_impossible_answer": False, "stride": 2}
    assert engine.calls == [{"texts": 1, "contexts": ["c"], **SHARED, **expected}]


def test_a_context_that_cannot_be_read(run: Any, engine: Any, tmp_path: Path) -> None:
    result = run("answer", "answer", "who?", stdin=b"fine\nbad \xff\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "line 2 of standard input is not UTF-8" in result.stderr
    assert run("answer", "answer", "who?", "--encoding-errors", "replace", stdin=b"bad \xff").exit_code == 0
    assert engine.calls[0]["contexts"] == ["bad \ufffd"]
    result = run("answer", "answer", "who?", stdin=b"line\n" * (MAX_LINE_BYTES // 5 + 1))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "standard input is longer than 4 MiB" in result.stderr
    result = run("answer", "answer", "who?", "--context-file", tmp_path / "none")
    assert result.stderr == f"edgebert: error: {tmp_path / 'none'}: No such file or directory\n"
    result = run("answer", "answer", "a", "boom", "--context", "c")
    assert result.stderr == "edgebert: error: question 2 with its context is bad: it says boom\n"


def test_fill_mask_prints_a_line_for_each_filling(run: Any, engine: Any) -> None:
    result = run("fill-mask", "fill-mask", "--top-k", "2", stdin="a _ _\nnone\n_\n")
    assert (result.exit_code, result.stderr) == (0, "")
    third = "0.33333334"
    assert result.stdout.splitlines() == [
        f"1\t1\t{third}\tsun\ta sun _",
        f"1\t1\t{third}\tmoon\ta moon _",
        f"1\t2\t{third}\tsun\ta _ sun",
        f"1\t2\t{third}\tmoon\ta _ moon",
        f"3\t1\t{third}\tsun\tsun",
        f"3\t1\t{third}\tmoon\tmoon",
    ]


def test_fill_mask_prints_json_for_each_text(run: Any, engine: Any) -> None:
    first, second = run("fill-mask", "fill-mask", "--json", "--target", "x", "a\t_", "none").stdout.splitlines()
    filling = {"token": "x", "token_id": 1, "score": 0.33333334, "text": "a\tx", "start": 2, "end": 3}
    assert json.loads(first) == {"index": 0, "masks": [[filling]]}
    assert second == '{"index": 1, "masks": []}'


def test_fill_mask_hands_its_options_on(run: Any, engine: Any) -> None:
    assert run("fill-mask", "fill-mask", "_", *OPTIONS.split()).stdout.count("\n") == 3
    targets = ["--target", "x", "--target", "y"]
    assert run("fill-mask", "fill-mask", "_", *OPTIONS.split(), "--no-truncate", *targets).stdout.count("\n") == 2
    assert engine.calls == [
        {"texts": 1, **SHARED, "truncate": True, "targets": None},
        {"texts": 1, **SHARED, "truncate": False, "targets": ("x", "y")},
    ]


@pytest.mark.parametrize(
    "args",
    [
        ["tag", "tag", "a", "--aggregation", "mean"],
        ["tag", "tag", "a", "--stride", "-1"],
        ["tag", "tag", "a", "--no-truncate"],
        ["answer", "answer", "--context", "c"],
        ["answer", "answer", "who?", "--context", "c", "--context-file", "f"],
        ["answer", "answer", "who?", "--context", "c", "--top-k", "0"],
        ["answer", "answer", "who?", "--context", "c", "--max-answer-tokens", "0"],
        ["fill-mask", "fill-mask", "_", "--top-k", "0"],
    ],
)
def test_wrong_usage(run: Any, engine: Any, args: list[str]) -> None:
    result = run(*args)
    assert (result.exit_code, result.stdout, engine.loads) == (2, "", [])
