"""The boundary between Python's errors and the terminal: one line on standard error, and an exit code.

Commands raise, or let the library raise, and catch nothing. Errors of the library name options and inputs in fields;
here they get the words of the command line.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import IO, TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from edgebert_runtime.errors import EdgebertError

FAILED, INTERRUPTED, BROKEN_PIPE, TERMINATED = 1, 130, 141, 143
# Keys of click's meta: whether tracebacks are shown, the context of the running command, the namer of its inputs.
DEBUG, COMMAND, INPUT_NAME = "edgebert.debug", "edgebert.command", "edgebert.input_name"
MAX_VALUE_CHARACTERS = 60

EXTRAS = {
    "onnxruntime": "cpu",
    "torch": "export",
    "onnx": "export",
    "onnxscript": "export",
    "onnx_ir": "export",
    "safetensors": "export",
    "pyarrow": "parquet",
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
    """Turn each error into one line and an exit code; ``--debug`` prints the traceback too."""
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
        # If the module of the error classes was never imported, the error is none of them.
        tree = sys.modules.get("edgebert_runtime.errors")
        if tree is not None and isinstance(error, tree.EdgebertError):
            raise in_cli_words(error, ctx.meta.get(COMMAND, ctx)) from error
        raise Failure(explain(error)) from error


def name_inputs(name: Callable[[EdgebertError], str]) -> None:
    """Set the words for inputs in errors of the running command: ``name(error)``."""
    click.get_current_context().meta[INPUT_NAME] = name


def in_cli_words(error: EdgebertError, ctx: click.Context) -> click.ClickException:
    """Return an error of the library for the terminal. A wrong option is wrong usage."""
    options = {param.name: param for param in ctx.command.params if isinstance(param, click.Option)}
    message = error.sentence(partial(option_name, options), ctx.meta.get(INPUT_NAME, input_name))
    if error.option in options and ctx.get_parameter_source(error.option) is ParameterSource.COMMANDLINE:
        return click.UsageError(one_line(message), ctx)
    return Failure(message or type(error).__name__)


def option_name(options: Mapping[str, click.Option], name: str, value: object) -> str:
    """Return a parameter of the library as it stands on the command line: ``--max-tokens 0``."""
    option = options.get(name)
    positive = option.opts[0] if option else f"--{name.replace('_', '-')}"
    if value is ...:
        return positive
    if isinstance(value, bool) and (option is None or option.is_flag):
        negative = option.secondary_opts[0] if option and option.secondary_opts else f"--no-{positive[2:]}"
        return positive if value else negative
    text = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return f"{positive} {shlex.quote(text.lower() if isinstance(value, bool) else text[:MAX_VALUE_CHARACTERS])}"


def input_name(error: EdgebertError, counted: str | None = None) -> str:
    """Return the input of an error, counted from 1; ``counted`` are the words for item and index."""
    item = error.item or "text"
    place = item if error.index is None else counted or f"{item} {error.index + 1}"
    if error.part is None:
        return place
    part = error.part if isinstance(error.part, str) else f"{error.part[0]} {error.part[1] + 1}"
    return f"{part} of {place}"


def explain(error: BaseException) -> str:
    """Return the message, with a remedy, for an error that is not the library's."""
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
    """Return the missing or broken package, and the line that installs it."""
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
    """Return a message as one line, with control characters escaped."""
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
