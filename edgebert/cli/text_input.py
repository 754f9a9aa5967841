"""Bytes of a stream as lines, as texts with a NUL behind each, or as one text."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

import click

from edgebert.cli.errors import Failure
from edgebert.cli.files.rows import Window

WINDOW_BYTES = 1 << 18  # one read: some thousand sentences, enough to fill batches of equal length
MAX_LINE_BYTES = 4 << 20  # the longest text that engines take, a million characters, fits in
MAX_RECORD_BYTES = 16 << 20  # the same with its other fields, and escaped

REMEDY = "convert it, or give --encoding-errors replace"
EncodingErrors = Literal["strict", "replace"]


def line_windows(stream: BinaryIO, source: str, errors: EncodingErrors, remedy: str = REMEDY) -> Iterator[Window]:
    """Yield the lines of ``stream`` as they arrive: the lines of a slow writer come without waiting for more.

    Lines end with LF or CRLF; the last one may lack its end. An empty line is an empty text.

    Raises:
        Failure: naming the line that is not UTF-8, or is too long.
    """
    for first, lines, num_bytes in byte_lines(stream, source, advice="; write one text a line"):
        places = range(first + 1, first + len(lines) + 1)
        texts = [
            decode(line.removesuffix(b"\r"), f"line {place} of {source}", errors, remedy)
            for place, line in zip(places, lines, strict=True)
        ]
        yield Window(first, texts, places, num_bytes, source)


def nul_windows(stream: BinaryIO, source: str, errors: EncodingErrors) -> Iterator[Window]:
    """Yield the texts of ``stream`` as they arrive. Each may have many lines, and a NUL ends it."""
    for first, parts, num_bytes in byte_lines(stream, source, end=b"\0", unit="text"):
        places = range(first + 1, first + len(parts) + 1)
        names = [f"text {place} of {source}" for place in places]
        texts = [decode(part, name, errors, REMEDY) for part, name in zip(parts, names, strict=True)]
        yield Window(first, texts, places, num_bytes, source, "text")


def byte_lines(
    stream: BinaryIO,
    source: str,
    end: bytes = b"\n",
    unit: str = "line",
    max_bytes: int = MAX_LINE_BYTES,
    advice: str = "",
) -> Iterator[tuple[int, list[bytes], int]]:
    """Yield lines as they arrive, without their ends: the number of the first from 0, the lines, and their bytes.

    A byte order mark at the start is dropped.

    Raises:
        Failure: naming the line that is longer than ``max_bytes``.
    """
    first, buffer, at_start = 0, bytearray(), True
    while block := read_available(stream):
        if at_start:
            block, at_start = block.removeprefix(b"\xef\xbb\xbf"), False
        buffer += block
        if len(buffer) > max_bytes and end not in buffer:
            raise Failure(f"{unit} {first + 1} of {source} is longer than {max_bytes >> 20} MiB{advice}")
        if end in block:
            complete, _, tail = bytes(buffer).rpartition(end)
            lines = complete.split(end)
            yield first, lines, len(complete) + 1
            first, buffer = first + len(lines), bytearray(tail)
    if buffer:
        yield first, [bytes(buffer)], len(buffer)


def read_available(stream: BinaryIO) -> bytes:
    """Return the bytes that are there, waiting only if there are none; empty at the end."""
    read1 = getattr(stream, "read1", stream.read)
    block: bytes = read1(WINDOW_BYTES)
    return block


def decode(line: bytes, name: str, errors: EncodingErrors, remedy: str) -> str:
    """Return the line called ``name`` as text."""
    try:
        return line.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        unit = name.partition(" ")[0]
        raise Failure(
            f"{name} is not UTF-8 ({error.reason} at byte {error.start + 1} of the {unit}); {remedy}"
        ) from error


def whole_window(stream: BinaryIO, name: str, errors: EncodingErrors) -> Iterator[Window]:
    """Yield all of ``stream`` as one text."""
    yield Window(0, [read_whole(stream, name, errors)], [1], file_size(stream) or 0, name, None)


def read_whole(stream: BinaryIO, name: str, errors: EncodingErrors) -> str:
    """Read one text of many lines; they end with LF in it, and the last has no end.

    Raises:
        Failure: if it is not UTF-8, or too long.
    """
    lines: list[str] = []
    num_bytes = 0
    for window in line_windows(stream, name, errors):
        num_bytes += window.size
        if num_bytes > MAX_LINE_BYTES:
            raise Failure(f"{name} is longer than {MAX_LINE_BYTES >> 20} MiB; give a part of it")
        lines += window.items
    return "\n".join(lines)


def read_texts(file: Path, option: str, content: str = "texts") -> list[str]:
    """Read the lines of the ``file`` of an option but the empty ones; errors call them ``content``.

    Raises:
        Failure: if there are none, or the file is not UTF-8.
    """
    with opened(file, content, "one a line", option) as (stream, name):
        windows = line_windows(stream, name, "strict", "convert it")
        texts = [text for window in windows for text in window.items if text.strip()]
    if not texts:
        raise Failure(f"{name} holds no {content}; write one a line")
    return texts


@contextlib.contextmanager
def opened(file: Path | None, content: str, form: str, option: str) -> Iterator[tuple[BinaryIO, str]]:
    """Yield a file, or standard input where none is named, with its name.

    Users hear that ``content`` of this ``form`` is read, and by which ``option`` it can be given.
    """
    if file and str(file) != "-":
        with file.open("rb") as stream:
            yield stream, click.format_filename(file)
        return
    if sys.stdin is None:
        raise click.UsageError(f"Standard input is closed: give {content} as arguments or with {option}.")
    if sys.stdin.buffer.isatty():
        click.echo(f"edgebert: reading {content} from the terminal, {form}; Ctrl-D ends the input", err=True)
    yield sys.stdin.buffer, "standard input"


def file_size(stream: BinaryIO) -> int | None:
    """Return the size of a regular file, and None for a pipe or a terminal."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, AttributeError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
