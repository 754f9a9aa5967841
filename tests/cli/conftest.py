"""Fixtures of the command line's tests: a runner, and a fake engine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

import edgebert_runtime
from edgebert.cli import main, progress, text_input
from tests.cli import fake

Run = Callable[..., Result]


@pytest.fixture(scope="session")
def run() -> Run:
    """Return a function that runs the command line in this process."""

    def invoke(*args: object, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(main, [str(arg) for arg in args], input=stdin)

    return invoke


@pytest.fixture(autouse=True)
def no_progress_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer than any test before progress is shown, so that a busy machine prints no more than a fast one."""
    monkeypatch.setattr(progress, "INTERVAL", fake.SLOW)


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[bytes]]:
    """Return a function that starts the command line over a fake engine in another process."""

    def popen(*args: object, **options: Any) -> subprocess.Popen[bytes]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen([sys.executable, fake.__file__, *map(str, args)], **pipes)

    return popen


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> fake.FakeEngine:
    """Put a fake engine in the place of every bundle; its task is the folder's name, or else embed."""
    engine = fake.FakeEngine()
    monkeypatch.setattr(edgebert_runtime, "load", engine.load)
    return engine


@pytest.fixture
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read 4 KiB at once instead of 256, so that some thousand lines take several reads."""
    monkeypatch.setattr(text_input, "WINDOW_BYTES", 1 << 12)
