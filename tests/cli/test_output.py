"""Tables, figures and progress."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgebert.cli import formatting as output
from edgebert.cli import progress as progress_output
from tests.support.patience import PATIENCE


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Terminal]:
    """Return a function that makes standard error a terminal."""

    def replace() -> Terminal:  # during the test: before it, pytest would put its own stream back
        stream = Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        return stream

    return replace


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "yes"),
        (12345, "12,345"),
        (0.123456, "0.1235"),
        (1e-7, "1e-07"),
        (123456.7, "123,457"),
        (np.float32(0.5), "0.5"),
        ([1, 2], "1, 2"),
        ([], "none"),
        ([0.0] * 384, "384 values"),
        (None, "none"),
        ("text", "text"),
    ],
)
def test_number(value: object, text: str) -> None:
    assert output.number(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (90_900_000, "90.9 MB"), (2 * 10**10, "20.0 GB")],
)
def test_size(count: int, text: str) -> None:
    assert output.size(count) == text


def test_flatten() -> None:
    value = {"a_b": {"c": 1, "d": {"e": 0.5}}, "speed": [{"shape": "1 x 2", "ms": 3, "ratio": 1.5}]}
    assert list(output.flatten(value)) == [("a b c", "1"), ("a b d e", "0.5"), ("speed 1 x 2", "ms 3, ratio 1.5")]


def test_json_takes_numpy_and_paths(capsys: pytest.CaptureFixture[str]) -> None:
    output.echo_json({"a": np.float32(0.5), "b": np.arange(2), "c": {1}.__class__})
    assert json.loads(capsys.readouterr().out)["b"] == [0, 1]


def test_a_bar_for_each_step(watch: Callable[[], Terminal]) -> None:
    terminal = watch()
    with progress_output.step_progress() as progress:
        assert progress is not None
        progress("read", 0, 1)
        progress("read", 1, 1)
        for done in range(3):
            progress("verify", done, 2)
    assert "read" in terminal.getvalue()
    assert "verify" in terminal.getvalue()
    assert "100%" in terminal.getvalue()


def test_a_bar_for_a_call(watch: Callable[[], Terminal]) -> None:
    terminal = watch()
    with progress_output.call_progress("rerank") as progress:
        assert progress is not None
        progress(512, 1024)
        progress(1024, None)
    assert "rerank" in terminal.getvalue()
    assert "100%" in terminal.getvalue()


@pytest.mark.parametrize("total", [4, None])
def test_a_bar_for_texts(watch: Callable[[], Terminal], total: int | None) -> None:
    terminal = watch()
    with progress_output.count_progress(total, shown=True, label="embed") as advance:
        advance(1, 1)
        advance(3, 3)
    assert ("100%" if total else "4") in terminal.getvalue()


def test_no_bar_where_nobody_watches(watch: Callable[[], Terminal], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watch()
    with progress_output.count_progress(4, shown=False, label="embed") as advance:
        advance(1, 1)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress_output.step_progress() as progress:
        assert progress is not None
        progress("read", 0, 1)
    with progress_output.call_progress("rerank") as call:
        assert call is not None
        call(1, 2)
    with progress_output.count_progress(4, shown=True, label="embed") as advance:
        advance(1, 1)
    assert terminal.getvalue() == ""


def test_lines_of_progress_where_there_is_no_terminal(start: Any) -> None:
    process = start("embed", "b", env={**os.environ, "PROGRESS_INTERVAL": "0.05"})
    process.stdin.write(b"a\n" * 3)
    process.stdin.flush()
    first = process.stderr.readline().decode()
    _, rest = process.communicate(b"b\n", timeout=PATIENCE)
    assert re.fullmatch(r"edgebert: embed: \d texts?, [\d.]+/s, after 0:\d\d\n", first)
    assert re.fullmatch(r"edgebert: embed: 4 texts, .*\n", rest.decode().splitlines(keepends=True)[-1])


def test_quiet_shows_no_progress(start: Any) -> None:
    process = start("-q", "embed", "b", env={**os.environ, "PROGRESS_INTERVAL": "0.01"})
    _, errors = process.communicate(b"a\n" * 5000, timeout=PATIENCE)
    assert errors == b""
