"""Run an engine over the texts that a command was given, in windows, with progress and errors that name the text."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, TypeVar

import click

from edgebert.cli.errors import Failure, name_inputs
from edgebert.cli.formatting import count_progress
from edgebert.cli.request import Request
from edgebert.cli.text_input import MAX_LINE_BYTES, Errors, Window, argument_windows, file_size, line_windows

AT_ONCE = 64  # texts at once where one takes long: enough to fill batches, few enough to see results come
T = TypeVar("T")
U = TypeVar("U")


class Reading:
    """Texts that are being read; ``cut`` counts those that were too long, for the message at the end."""

    def __init__(self, stack: contextlib.ExitStack, windows: Iterator[Window], total: int | None, verb: str) -> None:
        self.stack, self.windows, self.total, self.verb = stack, windows, total, verb
        self.cut = 0

    def results(
        self, compute: Callable[[list[str]], T], shown: bool = False, most: int | None = None
    ) -> Iterator[tuple[int, T]]:
        """Yield the number of the first text of each window, from 0, with what ``compute`` gives for its texts.

        Progress is shown if ``shown``, or if standard output goes elsewhere than to the terminal. ``compute`` gets at
        most ``most`` texts at once.
        """
        bar = count_progress(self.total, shown=shown or not sys.stdout.isatty(), label=self.verb)
        advance = self.stack.enter_context(bar)  # the stack ends it before an error is printed
        for window in self.windows:
            for part in window.parts(most or max(1, len(window.texts))):
                name_inputs(part.text_name)
                yield part.first, compute(part.texts)
                advance(len(part.texts) if self.total is None else part.read)

    def each(self, compute: Callable[[list[str]], list[U]], most: int | None = None) -> Iterator[tuple[int, U]]:
        """Yield the number of each text, from 0, with its part of what ``compute`` gives for a window."""
        for first, found in self.results(compute, most=most):
            yield from enumerate(found, first)

    def whole(self) -> Window:
        """Read all texts."""
        windows = list(self.windows)
        texts = [text for window in windows for text in window.texts]
        return replace(windows[0], texts=texts) if windows else Window(0, [], 0, None)


@contextlib.contextmanager
def reading(request: Request, whole: bool = False) -> Iterator[Reading]:
    """Open the texts of a request, which with ``whole`` are one text; say at the end how many were cut."""
    with contextlib.ExitStack() as stack:
        total: int | None
        if request.texts:
            windows, total = argument_windows(request.texts), sum(map(len, request.texts))
        else:
            what, how = ("a text", "of any length") if whole else ("texts", "one a line")
            stream, name = stack.enter_context(opened(request.file, what, how, "--input"))
            read = whole_window if whole else line_windows
            windows, total = read(stream, name, request.errors), file_size(stream)
        texts = Reading(stack, windows, total, request.verb)
        yield texts
    if texts.cut:
        click.echo(f"edgebert: texts cut because they were too long: {texts.cut:,} (see --max-tokens)", err=True)


@contextlib.contextmanager
def opened(file: Path | None, what: str, how: str, option: str) -> Iterator[tuple[BinaryIO, str]]:
    """Yield a file, or standard input where none is named, with its name."""
    if file and str(file) != "-":
        with file.open("rb") as stream:
            yield stream, click.format_filename(file)
        return
    if sys.stdin is None:
        raise click.UsageError(f"Standard input is closed: give {what} as arguments or with {option}.")
    if sys.stdin.buffer.isatty():
        click.echo(f"edgebert: reading {what} from the terminal, {how}; Ctrl-D ends the input", err=True)
    yield sys.stdin.buffer, "standard input"


def whole_window(stream: BinaryIO, name: str, errors: Errors) -> Iterator[Window]:
    """Yield all of ``stream`` as one text."""
    yield Window(0, [read_whole(stream, name, errors)], file_size(stream) or 0, name, whole=True)


def read_whole(stream: BinaryIO, name: str, errors: Errors) -> str:
    """Read one text of many lines; they end with LF in it, as everywhere in Python, and the last has no end.

    Raises:
        Failure: if it is not UTF-8, or too long.
    """
    lines: list[str] = []
    size = 0
    for window in line_windows(stream, name, errors):
        size += window.read
        if size > MAX_LINE_BYTES:
            raise Failure(f"{name} is longer than {MAX_LINE_BYTES >> 20} MiB; give a part of it")
        lines += window.texts
    return "\n".join(lines)
