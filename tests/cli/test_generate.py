"""``edgebert generate`` and ``edgebert score``: prompts in, text and figures out."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from edgebert.cli.generation_options import TABLE
from edgebert_runtime.generation.option_parsers import CHECKS
from tests.support.patience import PATIENCE

SHARED = {"texts": 1, "max_batch_tokens": None, "encoding_errors": "strict"}
RESULT = {"text": "A", "tokens": [5, 6], "token_logprobs": [-0.33333334, -0.5], "score": -0.8333334}


def generate(run: Any, *args: object, stdin: str | bytes | None = None) -> Any:
    return run("generate", "generate", *args, stdin=stdin)


def refused(run: Any, engine: Any, *args: object, stdin: str | None = None) -> str:
    """Return the last line of the message of wrong usage, which is found before the bundle is loaded."""
    result = generate(run, *args, stdin=stdin)
    assert (result.exit_code, result.stdout, engine.loads) == (2, "", [])
    return str(result.stderr.splitlines()[-1])


def misused(run: Any, *args: object) -> str:
    """Return the last line of the message of options that do not go together in this bundle."""
    result = generate(run, *args)
    assert (result.exit_code, result.stdout) == (2, "")
    return str(result.stderr.splitlines()[-1].removeprefix("Error: "))


def failed(run: Any, *args: object, stdin: str | bytes | None = None) -> str:
    """Return the message of a failure."""
    result = generate(run, *args, stdin=stdin)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    return str(result.stderr.removeprefix("edgebert: error: ").rstrip("\n"))


def test_a_single_prompt_prints_the_text_as_it_is(run: Any, engine: Any) -> None:
    assert generate(run, "once\n\tmore  \x1b[2J\r\u2028").stdout == "ONCE\n\tMORE   [2J  \n"
    assert generate(run, "").stdout == "\n"


@pytest.mark.parametrize("stdin", ["one\nmore\n", "one\r\nmore", "\ufeffone\nmore"])
def test_whole_input_is_one_prompt(run: Any, engine: Any, tmp_path: Path, stdin: str) -> None:
    assert generate(run, "--one-text", stdin=stdin).stdout == "ONE\nMORE\n"
    (tmp_path / "p.txt").write_text(stdin, newline="")
    assert generate(run, "--one-text", "--input", tmp_path / "p.txt").stdout == "ONE\nMORE\n"
    assert [call["texts"] for call in engine.calls] == [1, 1]


def test_several_results_are_a_line_each(run: Any, engine: Any) -> None:
    assert generate(run, "a\nb\tc", "d").stdout == "A B C\nD\n"
    assert generate(run, stdin="a\nb\n").stdout == "A\nB\n"
    assert generate(run, stdin="a\n").stdout == "A\n"
    several = ["--num-beams", "4", "--num-return-sequences", "3"]
    assert generate(run, "a\nb", "c", *several).stdout == "A B\nA B!\nA B!!\nC\nC!\nC!!\n"
    assert generate(run, "a\nb", *several).stdout == "A B\nA B!\nA B!!\n"


def test_json_has_every_figure_of_a_result(run: Any, engine: Any) -> None:
    lines = generate(run, "--json", stdin="a\nb\n").stdout.splitlines()
    assert json.loads(lines[0]) == {"index": 0, **RESULT, "finish_reason": "length"}
    assert '"token_logprobs": [-0.33333334, -0.5]' in lines[1]
    assert (json.loads(lines[1])["index"], json.loads(lines[1])["text"]) == (1, "B")
    objects = [
        json.loads(line) for line in generate(run, "a\n", "b", "--json", "--do-sample", *RETURN).stdout.splitlines()
    ]
    places = [(item["index"], item["sequence"], item["text"]) for item in objects]
    assert places == [(0, 0, "A\n"), (0, 1, "A\n!"), (1, 0, "B"), (1, 1, "B!")]
    assert "sequence" not in json.loads(generate(run, "a", "--json").stdout)


RETURN = ["--num-return-sequences", "2"]
GREEDY = {
    "max_new_tokens": ("5", 5),
    "repetition_penalty": ("1.2", 1.2),
    "no_repeat_ngram_size": ("2", 2),
    "prompt_lookup": (None, True),
}
BEAMS = {
    "num_beams": ("3", 3),
    "num_return_sequences": ("2", 2),
    "length_penalty": ("-0.5", -0.5),
    "early_stopping": ("never", "never"),
    "max_length": ("9", 9),
}
SAMPLING = {
    "do_sample": (None, True),
    "temperature": ("0.7", 0.7),
    "top_k": ("4", 4),
    "top_p": ("0.9", 0.9),
    "min_p": ("0.05", 0.05),
    "typical_p": ("0.8", 0.8),
    "seed": ("3", 3),
    "min_new_tokens": ("2", 2),
}


@pytest.mark.parametrize("options", [{}, GREEDY, BEAMS, SAMPLING], ids=["none", "greedy", "beams", "sampling"])
def test_what_the_user_gave_is_handed_on_and_nothing_else(run: Any, engine: Any, options: dict[str, Any]) -> None:
    engine.decoding = {"eos_token_id": 2}
    spelt = {"do_sample": "--do-sample"}
    words = [(spelt.get(name, f"--{name.replace('_', '-')}"), text) for name, (text, _) in options.items()]
    result = generate(run, "a", *[word for pair in words for word in pair if word])
    assert (result.exit_code, result.stderr) == (0, "")
    assert engine.calls == [{**SHARED, **{name: value for name, (_, value) in options.items()}}]


def test_options_of_several_values(run: Any, engine: Any) -> None:
    shared = "--max-batch-tokens 9 --encoding-errors replace --device auto --threads 2".split()
    assert generate(run, "a", "--stop", "\n", "--stop", "b c", *shared).exit_code == 0
    assert engine.calls == [{"texts": 1, "max_batch_tokens": 9, "encoding_errors": "replace", "stop": ("\n", "b c")}]
    assert engine.loads == [(Path("generate"), {"device": "auto", "threads": 2})]
    for word, value in (("false", False), ("true", True)):
        assert generate(run, "a", "--num-beams", "2", "--early-stopping", word).exit_code == 0
        assert engine.calls[-1]["early_stopping"] is value
    assert generate(run, "a", "--no-do-sample").exit_code == 0
    assert engine.calls[-1]["do_sample"] is False


def test_every_option_is_one_of_the_library() -> None:
    assert {name for name, *_ in TABLE} - {"prompt_lookup"} <= set(CHECKS)


def test_options_hold_on_top_of_those_of_the_bundle(run: Any, engine: Any) -> None:
    assert misused(run, "a", "--temperature", "0.5") == "--temperature 0.5 has no effect without --do-sample"
    engine.decoding = {"do_sample": True, "num_return_sequences": 2}
    assert generate(run, "a", "--temperature", "0.5").stdout == "A\nA!\n"
    assert generate(run, "a", "--no-do-sample").stdout == "A\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--max-new-tokens 5 --max-length 9", "--max-new-tokens 5 and --max-length 9 both set a length; give one"),
        ("--early-stopping true", "--early-stopping true has no effect without --num-beams of 2 or more"),
        ("--early-stopping never", "--early-stopping never has no effect without --num-beams of 2 or more"),
        ("--do-sample --num-beams 2", "--num-beams 2 has no effect with --do-sample; leave one of them out"),
        (
            "--num-return-sequences 2",
            "--num-return-sequences 2 is too many: the most likely tokens make one sequence; add --do-sample or "
            "--num-beams 2",
        ),
        ("--seed 1", "--seed 1 has no effect without --do-sample"),
    ],
)
def test_errors_name_options_as_the_user_does(run: Any, engine: Any, options: str, message: str) -> None:
    line = misused(run, "a", *options.split())
    assert line.startswith(message)
    assert "=" not in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--max-new-tokens 0", "--max-new-tokens 0 is not between 1 and 1000000"),
        ("--top-p 1.5", "--top-p 1.5 is not a number that is more than 0 and at most 1"),
        ("--temperature nan", "--temperature nan is not a number that"),
        ("--seed -1", "--seed -1 is less than 0"),
        ("--num-beams two", "Invalid value for '--num-beams': 'two' is not a valid"),
        ("--stop=", "--stop holds '', not a string of at least one character"),
        ("--stream b", "--stream takes one prompt, not 2"),
        ("--stream --json", "Give --json or --stream, not both"),
        ("--stream --max-batch-tokens 9", "Give --max-batch-tokens or --stream, not both"),
        ("--stream --num-beams 2", "Give --num-beams or --stream, not both"),
        ("--stream --do-sample --num-return-sequences 2", "Give --num-return-sequences or --stream, not both"),
        ("--one-text", "Give PROMPTS or --one-text, not both"),
        ("--input x", "Give texts as arguments or with --input, not both"),
    ],
)
def test_wrong_usage_is_found_before_the_bundle_is_loaded(run: Any, engine: Any, options: str, message: str) -> None:
    assert refused(run, engine, "a", *options.split()).startswith(f"Error: {message}")


def test_errors_name_the_prompt(run: Any, engine: Any) -> None:
    many = "x\n" * 1000
    where = "has 9 tokens and leaves no room in the model's 8"
    assert failed(run, "full") == f"text 1 {where}"
    result = generate(run, stdin=f"{many}full\n")
    assert result.stderr == f"edgebert: error: line 1001 of standard input {where}\n"
    assert failed(run, "--one-text", stdin="full\n") == f"standard input {where}"
    assert "line 2 of standard input is not UTF-8" in failed(run, "--one-text", stdin=b"a\n\xff")


def test_prompts_are_run_in_parts(run: Any, engine: Any) -> None:
    assert generate(run, stdin="x\n" * 300).stdout == "X\n" * 300
    assert generate(run, *["x"] * 130).exit_code == 0
    assert [call["texts"] for call in engine.calls] == [64, 64, 64, 64, 44, 64, 64, 2]


def test_stream_prints_the_same_text(run: Any, engine: Any) -> None:
    assert generate(run, "once upon\n", "--stream").stdout == "ONCE UPON\n\n"
    assert generate(run, "--stream", "--do-sample", "--seed", "1", stdin="once upon\n").stdout == "ONCE UPON\n"
    assert generate(run, "--stream", "--one-text", stdin="a b\nc\n").stdout == "A B\nC\n"
    assert engine.calls[1] == {"texts": 1, "encoding_errors": "strict", "do_sample": True, "seed": 1}


def test_stream_refuses_what_is_not_one_prompt(run: Any, engine: Any) -> None:
    assert failed(run, "--stream", stdin="a\nb\n").startswith("--stream takes one prompt, not 2; --one-text makes one")
    assert failed(run, "--stream", stdin="").startswith("--stream takes one prompt, not 0")
    assert failed(run, "boom", "--stream") == "text 1 is bad: it says boom"


def test_stream_prints_pieces_as_they_come_and_stops_at_once(start: Any) -> None:
    process = start("generate", "generate", "one stuck", "--stream")
    assert process.stdout.read(9) == b"ONE STUCK"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)  # the fake engine sleeps longer than that
    assert (process.returncode, out, err) == (130, b"\n", b"edgebert: interrupted\n")


def test_a_reader_that_leaves_ends_the_stream(start: Any) -> None:
    process = start("generate", "generate", "...", "--stream")
    assert process.stdout.read(7) == b"... and"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=PATIENCE) == 141
    process.stdin.close()
    process.stderr.close()


def test_score(run: Any, engine: Any) -> None:
    assert run("score", "generate", "a b", "c").stdout == "-1.3333334\t1.3956125\t4\n-1.0\t1.3956125\t3\n"
    lines = [json.loads(line) for line in run("score", "generate", "--json", stdin="a\n\n").stdout.splitlines()]
    assert [line["index"] for line in lines] == [0, 1]
    assert lines[1] == {
        "index": 1,
        "tokens": [7, 7],
        "token_logprobs": [-0.33333334, -0.33333334],
        "score": -0.6666667,
        "perplexity": 1.3956125,
    }
    options = "--max-batch-tokens 9 --encoding-errors replace".split()
    assert run("score", "generate", "a", *options).exit_code == 0
    assert engine.calls[-1] == {"texts": 1, "max_batch_tokens": 9, "encoding_errors": "replace"}


def test_what_json_has_no_number_for(run: Any, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.cli.fake.THIRD", float("nan"))
    assert json.loads(run("score", "generate", "a", "--json").stdout)["perplexity"] is None
    assert run("score", "generate", "a").stdout == "nan\tnan\t3\n"
