"""Runs of an engine over the texts of a command: windows, progress, and errors that name the text."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edgebert.cli.errors import name_inputs
from edgebert.cli.files.input_formats import argument_windows, opened_rows
from edgebert.cli.files.rows import TEXT, Fields, Row, Window
from edgebert.cli.progress import count_progress
from edgebert.cli.request import Request
from edgebert.cli.result_rows import result_output

if TYPE_CHECKING:
    from edgebert_runtime.errors import EdgebertError

TEXTS_AT_ONCE = 64  # for slow calls: enough to fill batches, few enough to see results come
T = TypeVar("T")
U = TypeVar("U")


class Reading:
    """The rows of a request in windows. ``num_truncated`` counts those that were cut, for the last message.

    ``total`` is the size of the input in the unit of the windows', None if unknown.
    """

    def __init__(
        self, request: Request, stack: contextlib.ExitStack, windows: Iterator[Window], total: int | None
    ) -> None:
        self.request, self.stack, self.windows, self.total = request, stack, windows, total
        self.num_truncated = 0

    def results(
        self, compute: Callable[..., T], fields: Fields = TEXT, max_texts: int | None = None
    ) -> Iterator[tuple[list[Row], T]]:
        """Yield the rows of each window with the result of ``compute``.

        It is called with a list for each of the fields, of at most ``max_texts``. Progress is shown if results go
        into a file, or no terminal.
        """
        taker = fields.taker or f"edgebert {self.request.verb}"
        fields.check_names(self.request.fields, taker)
        shown = self.request.output is not None or not sys.stdout.isatty()
        bar = count_progress(self.total, shown=shown, label=self.request.verb)
        advance = self.stack.enter_context(bar)  # the stack ends it before an error is printed
        for window in self.windows:
            for part in window.parts(max_texts or max(1, len(window.items))):
                name_inputs(part.text_name)
                rows = part.rows(self.request.id_field)
                yield rows, compute(*part.columns(fields, self.request.fields))
                advance(len(rows), part.size)

    def each(
        self, compute: Callable[..., Sequence[U]], fields: Fields = TEXT, max_texts: int | None = None
    ) -> Iterator[tuple[Row, U]]:
        """Yield each row with its result; ``compute`` returns one result a row."""
        for rows, results in self.results(compute, fields, max_texts):
            yield from zip(rows, results, strict=True)

    def whole(self, fields: Fields = TEXT) -> tuple[list[Row], list[str]]:
        """Read all rows with their texts, and let errors name them."""
        fields.check_names(self.request.fields, f"edgebert {self.request.verb}")
        windows = list(self.windows)
        if not windows:
            return [], []
        items = [item for window in windows for item in window.items]
        places = [place for window in windows for place in window.places]
        window = replace(windows[0], items=items, places=places)
        name_inputs(window.text_name)
        (texts,) = window.columns(fields, self.request.fields)
        return window.rows(self.request.id_field), texts


@contextlib.contextmanager
def reading(
    request: Request,
    *,
    one_text: bool = False,
    arguments: Sequence[Any] | None = None,
    name_argument: Callable[[EdgebertError], str] | None = None,
) -> Iterator[Reading]:
    """Open the rows of a request, and its output. Reports texts that were cut at the end.

    ``one_text`` makes one text of all lines. ``arguments`` are rows of several texts, which ``name_argument`` names in
    errors, in place of those of the request.
    """
    arguments = request.texts if arguments is None else arguments
    with contextlib.ExitStack() as stack:
        total: int | None
        if arguments:
            windows, total = argument_windows(arguments, name_argument), len(arguments)
        else:
            windows, total = stack.enter_context(
                opened_rows(request.file, request.input_format, request.encoding_errors, one_text)
            )
        if request.output is not None and not request.writes_vectors:
            stack.enter_context(result_output(request.output))
        texts = Reading(request, stack, windows, total)
        yield texts
    if texts.num_truncated:
        click.echo(
            f"edgebert: texts cut because they were too long: {texts.num_truncated:,} (see --max-tokens)", err=True
        )
