"""Read texts, one a line, in windows of bounded size."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import click

from edgebert.cli.errors import Failure

WINDOW_BYTES = 1 << 18  # what is read at once: some thousand sentences, enough to fill batches of equal length
MAX_LINE_BYTES = 16 << 20
MAX_ARGUMENTS = 1024

Errors = Literal["strict", "replace"]


@dataclass(frozen=True)
class Window:
    """Some consecutive texts: the number of the first one, counted from 0, and how many bytes were read for them."""

    first: int
    texts: list[str]
    read: int


def argument_windows(texts: Sequence[str]) -> Iterator[Window]:
    """Yield the texts given as arguments."""
    for first in range(0, len(texts), MAX_ARGUMENTS):
        part = list(texts[first : first + MAX_ARGUMENTS])
        yield Window(first, part, sum(len(text) for text in part))


def line_windows(stream: BinaryIO, name: str, errors: Errors = "strict") -> Iterator[Window]:
    """Yield the lines of ``stream`` as they arrive: what a slow writer has sent is handed on without waiting.

    Lines end with LF or CRLF; the last one may lack its end; an empty line is an empty text. A byte order mark at the
    start is dropped.

    Raises:
        Failure: naming the line that is not UTF-8, or is too long.
    """
    first, rest, start = 0, bytearray(), True
    while block := read_some(stream):
        if start:
            block, start = block.removeprefix(b"\xef\xbb\xbf"), False
        rest += block
        if len(rest) > MAX_LINE_BYTES and b"\n" not in rest:
            raise Failure(f"{name}: line {first + 1} is longer than {MAX_LINE_BYTES >> 20} MiB; write one text a line")
        if b"\n" in block:
            whole, _, tail = bytes(rest).rpartition(b"\n")
            lines = whole.split(b"\n")
            yield Window(first, [decode(line, name, first + i, errors) for i, line in enumerate(lines)], len(whole) + 1)
            first, rest = first + len(lines), bytearray(tail)
    if rest:
        yield Window(first, [decode(bytes(rest), name, first, errors)], len(rest))


def read_some(stream: BinaryIO) -> bytes:
    """Return what is there, waiting only if there is nothing; empty at the end."""
    read1 = getattr(stream, "read1", stream.read)
    block: bytes = read1(WINDOW_BYTES)
    return block


def decode(line: bytes, name: str, index: int, errors: Errors) -> str:
    """Return a line as text."""
    line = line.removesuffix(b"\r")
    try:
        return line.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise Failure(
            f"{name}: line {index + 1} is not UTF-8 ({error.reason} at byte {error.start + 1} of the line); "
            "convert it, or give --errors replace"
        ) from error


def read_texts(file: Path) -> list[str]:
    """Read all texts of ``file``; empty lines are left out.

    Raises:
        Failure: if there are none, or the file is not UTF-8.
    """
    with file.open("rb") as stream:
        name = click.format_filename(file)
        texts = [text for window in line_windows(stream, name) for text in window.texts if text.strip()]
    if not texts:
        raise Failure(f"{name} holds no texts; write one a line")
    return texts


def file_size(stream: BinaryIO) -> int | None:
    """Return the size of a regular file, and None for a pipe or a terminal."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, AttributeError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
