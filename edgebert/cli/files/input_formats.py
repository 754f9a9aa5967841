"""The formats of an input, and how each is opened."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from edgebert.cli.files.csv_rows import CSV_DELIMITERS, TSV_DELIMITERS, csv_windows
from edgebert.cli.files.json_rows import json_windows
from edgebert.cli.files.parquet_rows import open_parquet
from edgebert.cli.files.rows import Window
from edgebert.cli.text_input import EncodingErrors, file_size, line_windows, nul_windows, opened, whole_window

if TYPE_CHECKING:
    from edgebert_runtime.errors import EdgebertError

InputFormat = Literal["text", "jsonl", "csv", "tsv", "nul", "parquet"]
INPUT_FORMATS: tuple[InputFormat, ...] = ("text", "jsonl", "csv", "tsv", "nul", "parquet")
# The formats whose rows have fields.
WITH_FIELDS = ("jsonl", "csv", "tsv", "parquet")
SUFFIXES: dict[str, InputFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
READERS: dict[str, Callable[[BinaryIO, str, EncodingErrors], Iterator[Window]]] = {
    "text": line_windows,
    "nul": nul_windows,
    "jsonl": json_windows,
    "csv": partial(csv_windows, delimiters=CSV_DELIMITERS),
    "tsv": partial(csv_windows, delimiters=TSV_DELIMITERS),
}
# The words for an input, where it is typed into a terminal.
FORMS = {
    "text": "one a line",
    "nul": "with a NUL behind each",
    "jsonl": "a JSON object a line",
    "csv": "with a header",
    "tsv": "with a header",
}
MAX_ARGUMENTS = 1024


def format_of(file: Path | None) -> InputFormat:
    """Return the format that the name of a file stands for: lines of text where it says nothing."""
    return SUFFIXES.get(file.suffix.lower(), "text") if file else "text"


def argument_windows(
    items: Sequence[Any], name_argument: Callable[[EdgebertError], str] | None = None
) -> Iterator[Window]:
    """Yield the texts given as arguments, or tuples of them that ``name_argument`` names in errors."""
    for first in range(0, len(items), MAX_ARGUMENTS):
        part = items[first : first + MAX_ARGUMENTS]
        yield Window(first, part, range(first + 1, first + len(part) + 1), len(part), None, name_argument=name_argument)


@contextlib.contextmanager
def opened_rows(
    file: Path | None, input_format: InputFormat, errors: EncodingErrors, one_text: bool = False
) -> Iterator[tuple[Iterator[Window], int | None]]:
    """Open a file, or standard input, and yield its rows in windows, with its size where that is known.

    ``one_text`` takes all lines as one text.
    """
    if input_format == "parquet":
        yield open_parquet(file)
        return
    content, form = ("a text", "of any length") if one_text else ("texts", FORMS[input_format])
    with opened(file, content, form, "--input") as (stream, name):
        yield (whole_window if one_text else READERS[input_format])(stream, name, errors), file_size(stream)
