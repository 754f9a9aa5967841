"""Every command, started with a standard stream closed: one line at most, and never a bug of edgebert."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgebert.cli import COMMANDS
from tests.cli import fake
from tests.support.patience import PATIENCE

CLOSED = "edgebert: error: standard output is closed; send it to a file, or to /dev/null\n"


def start(command: str, folder: Path, *closed: int) -> subprocess.CompletedProcess[str]:
    """Run a command over a folder that is no bundle, with these descriptors closed."""
    redirections = " ".join({0: "<&-", 1: ">&-", 2: "2>&-"}[descriptor] for descriptor in closed)
    line = f'exec "$@" {redirections}'
    arguments = [sys.executable, "-m", "edgebert", command, str(folder)]
    arguments += [str(folder / "out")] if command in ("export", "quantize") else []
    arguments = arguments[:-1] if command == "doctor" else arguments
    return subprocess.run(
        ["sh", "-c", line, "sh", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_closed_standard_output_is_said_before_any_work(command: str, tmp_path: Path) -> None:
    done = start(command, tmp_path, 1)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", CLOSED)


@pytest.mark.parametrize("closed", [(0,), (0, 2), (2,), (0, 1, 2)])
def test_other_closed_streams_change_no_error(closed: tuple[int, ...], tmp_path: Path) -> None:
    expected = start("info", tmp_path)
    assert "this is a bug" not in expected.stderr
    done = start("info", tmp_path, *closed)
    assert done.returncode == expected.returncode == 1
    assert done.stdout == ""
    assert done.stderr == ("" if 2 in closed else expected.stderr)


def test_results_come_though_errors_go_nowhere(tmp_path: Path) -> None:
    """A file that is opened does not become the standard error of a library."""
    line = f'exec "{sys.executable}" "{fake.__file__}" embed embed "the cat" {{}}'
    outputs = [
        subprocess.run(["sh", "-c", line.format(end)], capture_output=True, timeout=PATIENCE, check=True).stdout
        for end in ("", "2>&-", "<&- 2>&-")
    ]
    assert outputs[0].strip()
    assert outputs[1:] == outputs[:1] * 2
    assert os.listdir(tmp_path) == []


def test_closed_standard_input_names_the_other_ways() -> None:
    line = f'exec "{sys.executable}" "{fake.__file__}" embed embed <&-'
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 2
    assert "Standard input is closed: give" in done.stderr
