"""Run an engine over the texts that a command was given, in windows, with progress and errors that name the text."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import click

from edgebert.cli.errors import Failure
from edgebert.cli.output import count_progress
from edgebert.cli.texts import MAX_LINE_BYTES, Errors, Window, argument_windows, file_size, line_windows
from edgebert.cli.verbs import Request

T = TypeVar("T")
U = TypeVar("U")


class Reading:
    """Texts that are being read; ``cut`` counts those that were too long, for the message at the end."""

    def __init__(self, stack: contextlib.ExitStack, windows: Iterator[Window], total: int | None, verb: str) -> None:
        self.stack, self.windows, self.total, self.verb = stack, windows, total, verb
        self.cut = 0

    def results(self, compute: Callable[[list[str]], T], shown: bool = False) -> Iterator[tuple[int, T]]:
        """Yield the number of the first text of each window, from 0, with what ``compute`` gives for its texts.

        Progress is shown if ``shown``, or if standard output goes elsewhere than to the terminal.
        """
        bar = count_progress(self.total, shown=shown or not sys.stdout.isatty(), label=self.verb)
        advance = self.stack.enter_context(bar)  # the stack ends it before an error is printed
        for window in self.windows:
            with window.naming():
                found = compute(window.texts)
            yield window.first, found
            advance(len(window.texts) if self.total is None else window.read)

    def each(self, compute: Callable[[list[str]], list[U]]) -> Iterator[tuple[int, U]]:
        """Yield the number of each text, from 0, with its part of what ``compute`` gives for a window."""
        for first, found in self.results(compute):
            yield from enumerate(found, first)

    def whole(self) -> Window:
        """Read all texts."""
        windows = list(self.windows)
        source = windows[0].source if windows else None
        return Window(0, [text for window in windows for text in window.texts], 0, source)


@contextlib.contextmanager
def reading(request: Request) -> Iterator[Reading]:
    """Open the texts of a request; say at the end how many were cut."""
    with contextlib.ExitStack() as stack:
        total: int | None
        if request.texts:
            windows, total = argument_windows(request.texts), sum(map(len, request.texts))
        else:
            stream, name = stack.enter_context(opened(request.file, "texts", "one a line", "--input"))
            windows, total = line_windows(stream, name, request.errors), file_size(stream)
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
