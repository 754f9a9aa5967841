"""``edgebert tokens``: texts in, numbers of tokens out, and with --json the tokens with their characters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner, Result

from edgebert.cli import main
from edgebert_runtime import Tokenizer


def tokens(*args: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["tokens", *map(str, args)], input=stdin)


def test_a_number_for_each_text(fp32_bundle: Path) -> None:
    expected = Tokenizer.load(fp32_bundle).count_tokens(["the cat", "", "a [SEP]"])
    assert tokens(fp32_bundle, "the cat", "", "a [SEP]").stdout.split() == list(map(str, expected))
    assert tokens(fp32_bundle, stdin="the cat\n\na [SEP]\n").stdout.split() == list(map(str, expected))
    assert tokens(fp32_bundle, "a [SEP]", "--special-tokens").stdout == "4\n"


def test_json_has_the_tokens_and_their_places(fp32_bundle: Path) -> None:
    row = json.loads(tokens(fp32_bundle, "--json", "the cat").stdout)
    assert row["count"] == len(row["ids"]) == 4
    assert row["tokens"] == ["[CLS]", "the", "cat", "[SEP]"]
    assert ["the cat"[start:end] for start, end in row["offsets"]] == ["", "the", "cat", ""]
    assert row["special"] == [True, False, False, True]


def test_targets_of_a_translator(translator_bundle: Callable[..., Path]) -> None:
    folder = translator_bundle("cpu")
    expected = Tokenizer.load(folder).count_tokens(["a mat"], side="target")
    assert tokens(folder, "a mat", "--target").stdout == f"{expected[0]}\n"


def test_options_of_a_model_are_refused(fp32_bundle: Path) -> None:
    result = tokens(fp32_bundle, "a", "--threads", "2")
    assert result.exit_code == 2
    assert "Leave out --threads: no model is run." in result.stderr
