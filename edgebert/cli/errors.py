"""The boundary between Python's errors and the terminal: one line on standard error, and an exit code.

Commands raise, or let the library raise, and catch nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import IO, Any, NoReturn

import click

FAILED, INTERRUPTED, BROKEN_PIPE, TERMINATED = 1, 130, 141, 143
DEBUG = "edgebert.debug"

EXTRAS = {
    "onnxruntime": "cpu",
    "torch": "export",
    "onnx": "export",
    "onnxscript": "export",
    "onnx_ir": "export",
    "safetensors": "export",
}


class Failure(click.ClickException):
    """A failed command: its message becomes the one line that the user sees."""

    exit_code = FAILED

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the line to standard error."""
        click.echo(f"edgebert: error: {self.message}", file=file, err=True)


@contextlib.contextmanager
def boundary(ctx: click.Context) -> Iterator[None]:
    """Turn whatever is raised inside into one line and an exit code; with ``--debug``, after its traceback."""
    try:
        with exit_on_sigterm():
            yield
    except (click.ClickException, click.exceptions.Exit, SystemExit):
        raise
    except BrokenPipeError:
        abandon_stdout()
        sys.exit(BROKEN_PIPE)
    except BaseException as error:  # not only Exception: a panic in a Rust library derives from BaseException
        if isinstance(error, OSError):
            abandon_stdout()
        if ctx.meta.get(DEBUG):
            click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
        if isinstance(error, KeyboardInterrupt):
            click.echo("edgebert: interrupted", err=True)
            exec("")  # or, after an interrupt within exec(), "python -m" would die of SIGINT instead of exiting
            sys.exit(INTERRUPTED)
        raise Failure(explain(error)) from error


def explain(error: BaseException) -> str:
    """Say what happened, and what to do about it, in words for the user."""
    # If the module of the error classes was never imported, the error is none of them.
    tree = sys.modules.get("edgebert_runtime.errors")
    if tree is not None and isinstance(error, tree.EdgebertError):
        return str(error) or type(error).__name__
    if isinstance(error, MemoryError):
        return f"out of memory ({error})" if str(error) else "out of memory"
    if isinstance(error, ImportError):
        return explain_import(error)
    if isinstance(error, UnicodeEncodeError):
        return f"standard output cannot show {error.object[error.start]!r}; set PYTHONIOENCODING=utf-8"
    if isinstance(error, OSError) and error.strerror:
        names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
        return ": ".join([" -> ".join(names) or "cannot read or write", error.strerror])
    return f"this is a bug in edgebert, run the command again with --debug and report it: {describe(error)}"


def explain_import(error: ImportError) -> str:
    """Name the package that is missing or broken, and the line that installs it."""
    package = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(package)
    remedy = f'pip install "edgebert[{extra}]"' if extra else "pip install --force-reinstall edgebert"
    if isinstance(error, ModuleNotFoundError) and error.name == package:
        return f"the package {package} is not installed; run: {remedy}"
    return f"{package or 'a package'} cannot be imported ({describe(error)}); run 'edgebert doctor', or: {remedy}"


def describe(error: BaseException) -> str:
    """Return the error's type and message."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def one_line(message: str) -> str:
    """Fold a message of several lines into one, and escape what would disturb a terminal."""
    folded = " ".join(line.strip() for line in message.splitlines() if line.strip())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in folded)


def abandon_stdout() -> None:
    """Point standard output at nothing, so that the interpreter's last flush cannot fail as well."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
        return
    with contextlib.suppress(OSError, ValueError, AttributeError):
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, sys.stdout.fileno())
        os.close(descriptor)


@contextlib.contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM raise, so that temporary files are removed on the way out."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(_number: int, _frame: object) -> NoReturn:
        sys.exit(TERMINATED)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
