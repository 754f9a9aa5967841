"""CSV and TSV with a header, as spreadsheets write them: quoted cells, with delimiters and ends of lines in them."""

from __future__ import annotations

import csv
import itertools
from collections import Counter, deque
from collections.abc import Iterator
from typing import BinaryIO

from edgebert.cli.errors import Failure
from edgebert.cli.files.rows import Window
from edgebert.cli.text_input import MAX_RECORD_BYTES, REMEDY, EncodingErrors, byte_lines, decode

# A spreadsheet writes semicolons where the comma is the decimal sign.
CSV_DELIMITERS = ",;\t"
TSV_DELIMITERS = "\t"


def csv_windows(stream: BinaryIO, source: str, errors: EncodingErrors, delimiters: str) -> Iterator[Window]:
    """Yield the rows of ``stream`` as they arrive, each an object with the names of the header.

    The first of ``delimiters`` that is in the header counts. Empty lines are no rows.

    Raises:
        Failure: naming the line whose cells do not fit the header, or whose quotes do not end.
    """
    csv.field_size_limit(MAX_RECORD_BYTES)
    lines = ArrivingLines(stream, source, errors)
    if (first_line := next(lines, None)) is None:
        return
    delimiter = next((mark for mark in delimiters if len(next(csv.reader([first_line], delimiter=mark))) > 1), ",")
    reader = csv.reader(itertools.chain([first_line], lines), delimiter=delimiter, strict=True)
    _, header = next_row(reader, source)
    if repeated := [name for name, count in Counter(header or ()).items() if count > 1]:
        raise Failure(f"the header of {source} has {repeated[0]!r} twice; rename one")
    first, records, places = 0, list[dict[str, str]](), list[int]()
    while header:
        place, cells = next_row(reader, source)
        if cells:
            if len(cells) != len(header):
                count = f"{len(cells)} cell{'s' * (len(cells) != 1)}"
                raise Failure(f"line {place} of {source} has {count}, the header has {len(header)}")
            records.append(dict(zip(header, cells, strict=True)))
            places.append(place)
        if cells is None or lines.are_read():
            yield Window(first, records, places, lines.take_size(), source)
            first, records, places = first + len(records), [], []
        if cells is None:
            return


def next_row(reader: Iterator[list[str]], source: str) -> tuple[int, list[str] | None]:
    """Return the number of the next row's first line from 1, and its cells; None at the end."""
    place = reader.line_num + 1  # type: ignore[attr-defined]
    try:
        return place, next(reader, None)
    except csv.Error as error:
        raise Failure(
            f"line {place} of {source} is not CSV ({error}); double the quotes within quotes, "
            "or read lines as they are with --input-format text"
        ) from error


class ArrivingLines(Iterator[str]):
    """The lines of a stream, with their ends. Knows whether the next one must be waited for."""

    def __init__(self, stream: BinaryIO, source: str, errors: EncodingErrors) -> None:
        self.blocks = byte_lines(stream, source, max_bytes=MAX_RECORD_BYTES)
        self.source, self.errors = source, errors
        self.waiting: deque[tuple[int, bytes]] = deque()
        self.size = 0

    def __next__(self) -> str:
        """Return the next line, and wait for it only if there is none."""
        while not self.waiting:
            first, lines, num_bytes = next(self.blocks)
            self.waiting.extend(enumerate(lines, first + 1))
            self.size += num_bytes
        place, line = self.waiting.popleft()
        return decode(line, f"line {place} of {self.source}", self.errors, REMEDY) + "\n"

    def are_read(self) -> bool:
        """Return whether the next line must be waited for."""
        return not self.waiting

    def take_size(self) -> int:
        """Return the bytes that arrived since the last call."""
        size, self.size = self.size, 0
        return size
