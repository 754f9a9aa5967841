"""``edgebert translate``, and ``edgebert score`` over pairs: texts in, translations and figures out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

CALL = {
    "texts": 1,
    "split_sentences": False,
    "target_prefix": None,
    "max_batch_tokens": None,
    "encoding_errors": "strict",
}
RESULT = {"text": "A", "tokens": [5, 6], "token_logprobs": [-0.33333334, -0.5], "score": -0.8333334}
SEVERAL = ["--num-beams", "4", "--num-return-sequences", "2"]


def translate(run: Any, *args: object, stdin: str | None = None) -> Any:
    return run("translate", "translate", *args, stdin=stdin)


def printed(run: Any, *args: object, stdin: str | None = None) -> str:
    result = translate(run, *args, stdin=stdin)
    assert (result.exit_code, result.stderr) == (0, "")
    return str(result.stdout)


def test_a_line_for_each_text(run: Any, engine: Any, tmp_path: Path) -> None:
    assert printed(run, "a\nb\tc", "d") == "A B C\nD\n"
    assert printed(run, stdin="a\n\nb\n") == "A\n\nB\n"
    (tmp_path / "t.txt").write_text("a\r\nb")
    assert printed(run, "--input", tmp_path / "t.txt") == "A\nB\n"
    assert printed(run, "a", "b", *SEVERAL) == "A\nA!\nB\nB!\n"


def test_a_single_text_is_printed_as_it_is(run: Any, engine: Any) -> None:
    assert printed(run, "once.\n\nTwice.") == "ONCE.\n\nTWICE.\n"
    assert printed(run, "--one-text", stdin="one\nmore\n") == "ONE\nMORE\n"
    assert printed(run, "once upon\n", "--stream") == "ONCE UPON\n\n"
    assert engine.calls[-1] == {
        "texts": 1,
        "split_sentences": False,
        "target_prefix": None,
        "encoding_errors": "strict",
    }
    assert printed(run, "--stream", "--one-text", "--split-sentences", stdin="a b\nc\n") == "A B\nC\n"


def test_json_has_every_figure_of_a_result(run: Any, engine: Any) -> None:
    lines = printed(run, "--json", stdin="a\nb\n").splitlines()
    assert json.loads(lines[0]) == {"index": 0, **RESULT, "finish_reason": "length"}
    objects = [json.loads(line) for line in printed(run, "a", "b\n", "--json", *SEVERAL).splitlines()]
    places = [(item["index"], item["sequence"], item["text"]) for item in objects]
    assert places == [(0, 0, "A"), (0, 1, "A!"), (1, 0, "B\n"), (1, 1, "B\n!")]


def test_what_the_user_gave_is_handed_on_and_nothing_else(run: Any, engine: Any) -> None:
    printed(run, "a")
    assert engine.calls == [CALL]
    options = "--source-language en --target-language de --target-prefix So --num-beams 3 --length-penalty 0.6"
    printed(
        run, "a", *options.split(), "--max-new-tokens", "5", "--max-batch-tokens", "9", "--encoding-errors", "replace"
    )
    languages = {"source_language": "en", "target_language": "de"}
    search = {"num_beams": 3, "length_penalty": 0.6, "max_new_tokens": 5}
    own = {"target_prefix": "So", "max_batch_tokens": 9, "encoding_errors": "replace"}
    assert engine.calls[-1] == {**CALL, **languages, **search, **own}
    printed(run, "a", "--split-sentences", "--do-sample", "--seed", "2")
    assert engine.calls[-1] == {**CALL, "split_sentences": True, "do_sample": True, "seed": 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--max-new-tokens 0", "--max-new-tokens 0 is not between 1 and 1000000"),
        ("--target-prefix x --split-sentences", "Give --target-prefix or --split-sentences, not both"),
        ("--stream b", "--stream takes one text, not 2"),
        ("--stream --json", "Give --json or --stream, not both"),
        ("--stream --num-beams 2", "Give --num-beams or --stream, not both"),
        ("--one-text", "Give TEXTS or --one-text, not both"),
        ("--prompt-lookup", "No such option"),
    ],
)
def test_wrong_usage_is_found_before_the_bundle_is_loaded(run: Any, engine: Any, options: str, message: str) -> None:
    result = translate(run, "a", *options.split())
    assert (result.exit_code, result.stdout, engine.loads) == (2, "", [])
    assert result.stderr.splitlines()[-1].startswith(f"Error: {message}")


def test_errors_name_texts_and_options_as_the_user_does(run: Any, engine: Any) -> None:
    result = translate(run, stdin="a\nlong\n")
    remedy = "is long; split it, or pass --split-sentences"
    assert (result.exit_code, result.stderr) == (1, f"edgebert: error: line 2 of standard input {remedy}\n")
    assert translate(run, "a", "--temperature", "0.5").stderr.endswith(
        "--temperature 0.5 has no effect without --do-sample\n"
    )


def test_score_of_pairs(run: Any, engine: Any) -> None:
    result = run("score", "translate", "a b\tc", "d\te")
    assert result.stdout == "-1.3333334\t1.3956125\t4\n-1.0\t1.3956125\t3\n"
    (line,) = run("score", "translate", "--json", "--target-language", "de", stdin="a\tb\n").stdout.splitlines()
    assert json.loads(line)["index"] == 0
    assert engine.calls[-1] == {
        "texts": 1,
        "target_language": "de",
        "max_batch_tokens": None,
        "encoding_errors": "strict",
    }
    result = run("score", "translate", stdin="a\tb\nc\n")
    taken = "has no tab; a bundle that translates takes two texts with one tab between them"
    assert (result.exit_code, result.stderr) == (1, f"edgebert: error: line 2 of standard input {taken}\n")
    result = run("score", "generate", "a", "--source-language", "de")
    assert result.stderr == "edgebert: error: generate translates nothing; leave out --source-language\n"
