"""Runs of an engine over the texts of a command: windows, progress, and errors that name the text."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import click

from edgebert.cli.errors import name_inputs
from edgebert.cli.formatting import count_progress
from edgebert.cli.request import Request
from edgebert.cli.text_input import Window, argument_windows, file_size, line_windows, opened, whole_window

TEXTS_AT_ONCE = 64  # for slow calls: enough to fill batches, few enough to see results come
T = TypeVar("T")
U = TypeVar("U")


class Reading:
    """Texts in windows. ``num_truncated`` counts those that were cut, for the last message."""

    def __init__(self, stack: contextlib.ExitStack, windows: Iterator[Window], total: int | None, verb: str) -> None:
        self.stack, self.windows, self.total, self.verb = stack, windows, total, verb
        self.num_truncated = 0

    def results(
        self, compute: Callable[[list[str]], T], shown: bool = False, max_texts: int | None = None
    ) -> Iterator[tuple[int, T]]:
        """Yield the result of ``compute`` for each window, with the number of its first text from 0.

        Progress is shown if ``shown``, or if standard output is no terminal. ``compute`` gets at most ``max_texts``.
        """
        bar = count_progress(self.total, shown=shown or not sys.stdout.isatty(), label=self.verb)
        advance = self.stack.enter_context(bar)  # the stack ends it before an error is printed
        for window in self.windows:
            for part in window.parts(max_texts or max(1, len(window.texts))):
                name_inputs(part.text_name)
                yield part.first, compute(part.texts)
                advance(len(part.texts) if self.total is None else part.num_bytes)

    def each(self, compute: Callable[[list[str]], list[U]], max_texts: int | None = None) -> Iterator[tuple[int, U]]:
        """Yield each text's number from 0 and result; ``compute`` returns one result a text."""
        for first, results in self.results(compute, max_texts=max_texts):
            yield from enumerate(results, first)

    def whole(self) -> Window:
        """Read all texts, and let errors name them."""
        windows = list(self.windows)
        texts = [text for window in windows for text in window.texts]
        window = replace(windows[0], texts=texts) if windows else Window(0, [], 0, None)
        name_inputs(window.text_name)
        return window


@contextlib.contextmanager
def reading(request: Request, one_text: bool = False) -> Iterator[Reading]:
    """Open the texts of a request, all lines as one if ``one_text``. Reports those that were cut at the end."""
    with contextlib.ExitStack() as stack:
        total: int | None
        if request.texts:
            windows, total = argument_windows(request.texts), sum(map(len, request.texts))
        else:
            content, form = ("a text", "of any length") if one_text else ("texts", "one a line")
            stream, name = stack.enter_context(opened(request.file, content, form, "--input"))
            read = whole_window if one_text else line_windows
            windows, total = read(stream, name, request.encoding_errors), file_size(stream)
        texts = Reading(stack, windows, total, request.verb)
        yield texts
    if texts.num_truncated:
        click.echo(
            f"edgebert: texts cut because they were too long: {texts.num_truncated:,} (see --max-tokens)", err=True
        )
