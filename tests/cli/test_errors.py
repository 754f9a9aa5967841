"""The error boundary: one line on standard error, an exit code, and no traceback."""

from __future__ import annotations

import errno
import logging
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

import edgebert_runtime
from edgebert.cli.errors import one_line
from edgebert_runtime import errors
from tests.cli.stopping import stop
from tests.support.patience import PATIENCE

TREE = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.EdgebertError)]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Return a function that makes ``edgebert info`` meet an error."""

    def fail_with(error: BaseException) -> None:
        def open_bundle(*_args: object, **_options: object) -> None:
            raise error

        fake = type("Bundle", (), {"open": staticmethod(open_bundle)})
        monkeypatch.setattr(edgebert_runtime, "Bundle", fake, raising=False)

    return fail_with


@pytest.mark.parametrize("kind", TREE)
def test_each_error_is_one_line(run: Any, failing: Any, kind: type[Exception]) -> None:
    failing(kind("something\n  happened\n\nto the model"))
    result = run("info", "b")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == "edgebert: error: something happened to the model\n"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MemoryError(), "out of memory"),
        (MemoryError("Unable to allocate 4 TiB"), "out of memory (Unable to allocate 4 TiB)"),
        (PermissionError(errno.EACCES, "Permission denied", "/x/y"), "/x/y: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "cannot read or write: No space left on device"),
        (OSError(errno.EXDEV, "Cross-device link", "a", None, "b"), "a -> b: Cross-device link"),
        (
            ModuleNotFoundError("No module named 'torch'", name="torch"),
            'the package torch is not installed; run: pip install "edgebert[export]"',
        ),
        (
            ModuleNotFoundError("No module named 'onnxruntime'", name="onnxruntime"),
            'the package onnxruntime is not installed; run: pip install "edgebert[cpu]"',
        ),
        (
            ModuleNotFoundError("No module named 'numpy'", name="numpy"),
            "the package numpy is not installed; run: pip install --force-reinstall edgebert",
        ),
    ],
)
def test_errors_of_the_machine_are_explained(run: Any, failing: Any, error: Exception, text: str) -> None:
    failing(error)
    result = run("info", "b")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"edgebert: error: {text}\n")


@pytest.mark.parametrize("error", [ImportError("libcudart.so.12: cannot open", name="onnxruntime.capi"), ImportError()])
def test_a_broken_package_points_at_the_doctor(run: Any, failing: Any, error: ImportError) -> None:
    failing(error)
    result = run("info", "b")
    assert result.exit_code == 1
    assert "edgebert doctor" in result.stderr
    assert result.stderr.count("\n") == 1


class Panic(BaseException):
    """Stands for the panic of a Rust library."""


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError("deep\ndeeper"), Panic("at the disco")])
def test_any_other_error_is_said_to_be_a_bug(run: Any, failing: Any, error: BaseException) -> None:
    failing(error)
    result = run("info", "b")
    assert result.exit_code == 1
    assert result.stderr.startswith("edgebert: error: this is a bug in edgebert")
    assert "--debug" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("args", [["--debug", "info", "b"], ["info", "b", "--debug"]])
def test_debug_shows_the_traceback(run: Any, failing: Any, args: list[str]) -> None:
    failing(errors.BundleError("broken"))
    result = run(*args)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.endswith("edgebert: error: broken\n")


def test_interrupt_exits_with_130(run: Any, failing: Any) -> None:
    failing(KeyboardInterrupt())
    result = run("info", "b")
    assert (result.exit_code, result.stderr) == (130, "edgebert: interrupted\n")


def test_an_interrupted_import_exits_with_130() -> None:
    command = [sys.executable, "-m", "tests.cli.fake", "embed", "b", "stop"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "edgebert: interrupted\n")


def test_messages_cannot_disturb_the_terminal() -> None:
    assert one_line("a\x1b[2J\r\nb\tc \ud800 ü") == "a\\x1b[2J b\\tc \\ud800 ü"


def test_log_and_warnings_are_quiet_until_asked_for(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_bundle(*_args: object, **_options: object) -> None:
        logging.getLogger("edgebert_runtime.x").warning("look\nhere")
        logging.getLogger("edgebert_exporters.x").info("working")
        logging.getLogger("edgebert.x").debug("detail")
        logging.getLogger("foreign").warning("chatter")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("deprecated", FutureWarning, stacklevel=1)
        raise click.exceptions.Exit(0)

    fake = type("Bundle", (), {"open": staticmethod(open_bundle)})
    monkeypatch.setattr(edgebert_runtime, "Bundle", fake, raising=False)
    assert run("info", "b").stderr == "edgebert: warning: look here\n"
    assert "info: working" in run("info", "b", "-v").stderr
    assert "chatter" not in run("info", "b", "-v").stderr
    for args in (["info", "b", "-vv"], ["-v", "info", "-v", "b"], ["-vv", "info", "b"]):
        text = run(*args).stderr
        for part in ("look here", "working", "detail", "chatter", "deprecated"):
            assert part in text
    assert logging.getLogger("edgebert").level == logging.NOTSET


def test_interrupted_as_soon_as_there_is_a_file(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    created: list[Path] = []

    def open_file(path: Path, mode: str) -> None:
        path.touch()
        created.append(path)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "open", open_file)
    assert run("embed", "b", "a text", "--output", tmp_path / "v.npy").exit_code == 130
    assert len(created) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_leave_nothing_half_written(tmp_path: Path, start: Any, number: int, code: int) -> None:
    destination = tmp_path / "v.npy"
    process = start("embed", "b", "--output", destination)
    process.stdin.write(b"one\nslow\n")
    process.stdin.flush()
    assert stop(process, tmp_path, number, after=0.3) == code


def test_a_reader_that_leaves_is_no_error(start: Any, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("hello world\n" * 50_000)
    process = start("embed", "b", "--input", texts)
    assert process.stdout.readline() == b"11.0 104.0 0.1\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=PATIENCE) == 141
    process.stdin.close()
    process.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_one_line(start: Any) -> None:
    with open("/dev/full", "wb") as full:
        process = start("embed", "b", "hello", stdout=full, stdin=subprocess.DEVNULL)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert err == b"edgebert: error: cannot read or write: No space left on device\n"
