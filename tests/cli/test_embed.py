"""``edgebert embed``: texts in, vectors out."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebert.cli.text_input import MAX_LINE_BYTES, line_windows
from tests.support.patience import PATIENCE


def test_arguments_become_lines_of_numbers(run: Any, engine: Any) -> None:
    result = run("embed", "b", "ab", "", "c d")
    assert result.exit_code == 0
    assert result.stdout == "2.0 97.0 0.1\n0.0 0.0 0.1\n3.0 99.0 0.1\n"
    assert result.stderr == ""
    assert np.loadtxt(io.StringIO(result.stdout), dtype=np.float32)[0, 2] == np.float32(0.1)


@pytest.mark.parametrize(
    ("stdin", "texts"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"\xef\xbb\xbfa\n", ["a"]),
        ("ü\u2028x\x0by\n".encode(), ["ü\u2028x\x0by"]),
        (b"a\0b\n", ["a\0b"]),
    ],
)
def test_lines_of_stdin_are_texts(run: Any, engine: Any, stdin: bytes, texts: list[str]) -> None:
    result = run("embed", "b", stdin=stdin)
    assert result.exit_code == 0
    assert [int(float(line.split()[0])) for line in result.stdout.splitlines()] == [len(text) for text in texts]


def test_input_file(run: Any, engine: Any, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a\nbb\n")
    assert run("embed", "b", "--input", tmp_path / "t.txt").stdout.count("\n") == 2
    assert run("embed", "b", "--input", "-", stdin="a\n").stdout.count("\n") == 1
    missing = run("embed", "b", "--input", tmp_path / "none")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert missing.stderr == f"edgebert: error: {tmp_path / 'none'}: No such file or directory\n"


def test_json_lines(run: Any, engine: Any) -> None:
    result = run("embed", "b", "--json", "a", "one two three four five six seven")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["index"] for row in rows] == [0, 1]
    assert rows[0] == {"index": 0, "vector": [1.0, 97.0, 0.1], "tokens": 3, "truncated": False}
    assert rows[1]["truncated"] is True
    assert result.stderr == "edgebert: texts cut because they were too long: 1 (see --max-tokens)\n"


def test_options_reach_the_engine(run: Any, engine: Any) -> None:
    options = "--max-tokens 3 --no-truncate --max-batch-tokens 9 --encoding-errors replace --device auto --threads 2"
    assert run("embed", "b", "a", *options.split()).exit_code == 0
    assert engine.loads == [(Path("b"), {"device": "auto", "threads": 2})]
    shared = {"texts": 1, "max_tokens": 3, "max_batch_tokens": 9, "encoding_errors": "replace"}
    assert engine.calls == [{**shared, "truncate": False, "long_texts": "truncate", "stride": 0}]
    windows = "--max-tokens 3 --max-batch-tokens 9 --encoding-errors replace --long-texts mean --stride 1"
    assert run("embed", "b", "a", *windows.split()).exit_code == 0
    assert engine.calls[1:] == [{**shared, "truncate": True, "long_texts": "mean", "stride": 1}]


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        (("--prompt", "query"), {"prompt": "query"}),
        (("--prompt-text", ""), {"prompt_text": ""}),
        (("--prompt-text", "a: ", "--normalize"), {"prompt_text": "a: ", "normalize": True}),
        (("--dim", "3", "--no-normalize"), {"dim": 3, "normalize": False}),
    ],
)
def test_prompts_and_sizes_reach_the_engine(run: Any, engine: Any, options: Any, keywords: dict[str, Any]) -> None:
    assert run("embed", "b", "a", *options).exit_code == 0
    (call,) = engine.calls
    names = ("prompt", "prompt_text", "dim", "normalize")
    assert {name: call[name] for name in names if name in call} == keywords


def test_a_file_of_cut_vectors_says_their_size(run: Any, engine: Any, tmp_path: Path) -> None:
    engine.dim = 9
    assert run("embed", "b", "--dim", "3", "--output", tmp_path / "v.npy", "a", "b").exit_code == 0
    assert np.load(tmp_path / "v.npy").shape == (2, 3)


@pytest.mark.parametrize("texts", [[], ["a"], ["a", "bb", ""] * 900])
def test_numpy_file(run: Any, engine: Any, tmp_path: Path, texts: list[str]) -> None:
    destination = tmp_path / "v.npy"
    destination.write_text("old")
    result = run("embed", "b", "--output", destination, stdin="".join(f"{text}\n" for text in texts))
    assert (result.exit_code, result.output) == (0, "")
    vectors = np.load(destination)
    assert vectors.shape == (len(texts), 3)
    assert vectors.dtype == np.float32
    assert vectors[:, 0].tolist() == [len(text) for text in texts]
    assert list(tmp_path.iterdir()) == [destination]


def test_a_failure_leaves_the_old_file(run: Any, engine: Any, tmp_path: Path) -> None:
    destination = tmp_path / "v.npy"
    destination.write_text("old")
    result = run("embed", "b", "--output", destination, "a", "boom")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "edgebert: error: text 2 is bad: it says boom\n"
    assert destination.read_text() == "old"
    assert list(tmp_path.iterdir()) == [destination]


@pytest.mark.parametrize("name", ["none/v.npy", "file/v.npy", "folder.npy"])
def test_a_destination_that_cannot_be_written_fails_before_loading(
    run: Any, engine: Any, tmp_path: Path, name: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.npy").mkdir()
    result = run("embed", "b", "a", "--output", tmp_path / name)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("edgebert: error: ")
    assert str(tmp_path / name) in result.stderr
    assert result.stderr.count("\n") == 1
    assert engine.loads == []


def test_a_special_file_is_never_replaced(run: Any, engine: Any, tmp_path: Path) -> None:
    (tmp_path / "v.npy").symlink_to(os.devnull)
    result = run("embed", "b", "a", "--output", tmp_path / "v.npy")
    assert result.exit_code == 1
    assert "not a regular file" in result.stderr
    assert not Path(os.devnull).is_file()


def test_a_full_disk_leaves_nothing(start: Any, tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))

    process = start(
        "embed", "b", "--output", tmp_path / "v.npy", *["a"] * 50, preexec_fn=limit, stdin=subprocess.DEVNULL
    )
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert (out, err) == (b"", f"edgebert: error: cannot write {tmp_path / 'v.npy'}: File too large\n".encode())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "args",
    [
        ["--json", "--output", "v.npy"],
        ["--output", "v.txt"],
        ["--input", "x", "text"],
        ["--max-tokens", "0"],
        ["--threads", "0"],
        ["--stride", "1"],
        ["--long-texts", "sum"],
        ["--long-texts", "mean", "--stride", "-1"],
        ["--long-texts", "mean", "--no-truncate"],
    ],
)
def test_options_that_cannot_work_are_refused(run: Any, engine: Any, args: list[str]) -> None:
    result = run("embed", "b", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert engine.loads == []


def test_invalid_utf8_names_the_line(run: Any, engine: Any) -> None:
    result = run("embed", "b", stdin=b"fine\nbad \xff here\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "line 2 of standard input is not UTF-8" in result.stderr
    assert "byte 5 of the line" in result.stderr
    assert "--encoding-errors replace" in result.stderr
    assert result.stderr.count("\n") == 1
    assert run("embed", "b", "--encoding-errors", "replace", stdin=b"bad \xff\n").stdout == "5.0 98.0 0.1\n"


def test_errors_of_the_engine_name_line_and_option(run: Any, engine: Any, small_reads: None) -> None:
    stdin = "fine\n" * 3000 + "one two three four five\n"
    result = run("embed", "b", "--max-tokens", "4", "--no-truncate", stdin=stdin)
    assert result.exit_code == 1
    assert result.stderr == (
        "edgebert: error: line 3001 of standard input has more than 4 tokens; raise --max-tokens, "
        "or leave out --no-truncate\n"
    )


def test_an_endless_line_is_refused(run: Any, engine: Any) -> None:
    result = run("embed", "b", stdin=b"x\n" + b"a" * (MAX_LINE_BYTES + 1))
    assert result.exit_code == 1
    assert "line 2 of standard input is longer than 4 MiB" in result.stderr


def test_lines_are_handed_on_as_they_come() -> None:
    class Slow(io.BytesIO):
        blocks = [b"a\nb", b"b\nc", b"", b"never"]

        def read1(self, _size: int | None = -1) -> bytes:
            return self.blocks.pop(0)

    windows = list(line_windows(Slow(), "x", "strict"))
    assert [(window.first, *window.items) for window in windows] == [(0, "a"), (1, "bb"), (2, "c")]


def test_a_slow_writer_gets_answers_at_once(start: Any) -> None:
    process = start("embed", "b")
    for text in (b"one\n", b"three\n"):
        process.stdin.write(text)
        process.stdin.flush()
        assert process.stdout.readline().startswith(f"{len(text) - 1}.0 ".encode())
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_memory_is_bounded(run: Any, engine: Any) -> None:
    run("embed", "b", stdin=b"some words in a line\n" * 40_000)
    assert sum(call["texts"] for call in engine.calls) == 40_000
    assert max(call["texts"] for call in engine.calls) < 20_000
