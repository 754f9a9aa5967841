"""Texts from arguments, lines or a whole file, in windows of bounded size."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

import click

from edgebert.cli.errors import Failure, input_name

if TYPE_CHECKING:
    from edgebert_runtime.errors import EdgebertError

WINDOW_BYTES = 1 << 18  # one read: some thousand sentences, enough to fill batches of equal length
MAX_LINE_BYTES = 4 << 20  # the longest text that engines take, a million characters, fits in
MAX_ARGUMENTS = 1024

REMEDY = "convert it, or give --encoding-errors replace"
EncodingErrors = Literal["strict", "replace"]


@dataclass(frozen=True)
class Window:
    """Consecutive texts.

    Attributes:
        first: The number of the first text, from 0.
        texts: The texts.
        num_bytes: The bytes that were read for them.
        source: The name of their file, None for arguments.
        one_text: Whether the text is all of its file.
    """

    first: int
    texts: list[str]
    num_bytes: int
    source: str | None
    one_text: bool = False

    def text_name(self, error: EdgebertError) -> str:
        """Return the words for the text that an error of a call with these texts is about."""
        place = (
            self.source if self.one_text and self.source else line_name(self.first + (error.index or 0), self.source)
        )
        return input_name(error, place)

    def parts(self, max_texts: int) -> Iterator[Window]:
        """Yield the texts again, at most so many at once."""
        remaining = self.num_bytes
        for start in range(0, len(self.texts), max_texts):
            texts = self.texts[start : start + max_texts]
            is_last = start + max_texts >= len(self.texts)
            num_bytes = remaining if is_last else min(remaining, sum(map(len, texts)))
            remaining -= num_bytes
            yield replace(self, first=self.first + start, texts=texts, num_bytes=num_bytes)


def line_name(number: int, source: str | None) -> str:
    """Return the words for the text with this number from 0; users count from 1."""
    return f"text {number + 1}" if source is None else f"line {number + 1} of {source}"


def argument_windows(texts: Sequence[str]) -> Iterator[Window]:
    """Yield the texts given as arguments."""
    for first in range(0, len(texts), MAX_ARGUMENTS):
        part = list(texts[first : first + MAX_ARGUMENTS])
        yield Window(first, part, sum(map(len, part)), None)


def line_windows(stream: BinaryIO, source: str, errors: EncodingErrors, remedy: str = REMEDY) -> Iterator[Window]:
    """Yield the lines of ``stream`` as they arrive: the lines of a slow writer come without waiting for more.

    Lines end with LF or CRLF; the last one may lack its end. An empty line is an empty text. A byte order mark at the
    start is dropped.

    Raises:
        Failure: naming the line that is not UTF-8, or is too long.
    """
    first, buffer, at_start = 0, bytearray(), True
    while block := read_available(stream):
        if at_start:
            block, at_start = block.removeprefix(b"\xef\xbb\xbf"), False
        buffer += block
        if len(buffer) > MAX_LINE_BYTES and b"\n" not in buffer:
            raise Failure(
                f"{line_name(first, source)} is longer than {MAX_LINE_BYTES >> 20} MiB; write one text a line"
            )
        if b"\n" in block:
            complete, _, tail = bytes(buffer).rpartition(b"\n")
            lines = complete.split(b"\n")
            texts = [decode(line, line_name(first + i, source), errors, remedy) for i, line in enumerate(lines)]
            yield Window(first, texts, len(complete) + 1, source)
            first, buffer = first + len(lines), bytearray(tail)
    if buffer:
        text = decode(bytes(buffer), line_name(first, source), errors, remedy)
        yield Window(first, [text], len(buffer), source)


def read_available(stream: BinaryIO) -> bytes:
    """Return the bytes that are there, waiting only if there are none; empty at the end."""
    read1 = getattr(stream, "read1", stream.read)
    block: bytes = read1(WINDOW_BYTES)
    return block


def decode(line: bytes, name: str, errors: EncodingErrors, remedy: str) -> str:
    """Return the line called ``name`` as text."""
    try:
        return line.removesuffix(b"\r").decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise Failure(
            f"{name} is not UTF-8 ({error.reason} at byte {error.start + 1} of the line); {remedy}"
        ) from error


def whole_window(stream: BinaryIO, name: str, errors: EncodingErrors) -> Iterator[Window]:
    """Yield all of ``stream`` as one text."""
    yield Window(0, [read_whole(stream, name, errors)], file_size(stream) or 0, name, one_text=True)


def read_whole(stream: BinaryIO, name: str, errors: EncodingErrors) -> str:
    """Read one text of many lines; they end with LF in it, and the last has no end.

    Raises:
        Failure: if it is not UTF-8, or too long.
    """
    lines: list[str] = []
    num_bytes = 0
    for window in line_windows(stream, name, errors):
        num_bytes += window.num_bytes
        if num_bytes > MAX_LINE_BYTES:
            raise Failure(f"{name} is longer than {MAX_LINE_BYTES >> 20} MiB; give a part of it")
        lines += window.texts
    return "\n".join(lines)


def read_texts(file: Path, content: str = "texts") -> list[str]:
    """Read the lines of ``file`` but the empty ones; errors call them ``content``.

    Raises:
        Failure: if there are none, or the file is not UTF-8.
    """
    name = click.format_filename(file)
    with file.open("rb") as stream:
        windows = line_windows(stream, name, "strict", "convert it")
        texts = [text for window in windows for text in window.texts if text.strip()]
    if not texts:
        raise Failure(f"{name} holds no {content}; write one a line")
    return texts


def split_pairs(texts: list[str], taker: str) -> tuple[list[str], list[str]]:
    """Return the first and the second text of each pair, for the option or bundle that is the ``taker``.

    Raises:
        InputError: naming the text that has not exactly one tab.
    """
    from edgebert_runtime.errors import InputError

    pairs = [text.split("\t") for text in texts]
    for index, pair in enumerate(pairs):
        if len(pair) != 2:
            tabs = f"{len(pair) - 1} tabs" if pair[1:] else "no tab"
            raise InputError(f"has {tabs}", index=index, hint=f"{taker} takes two texts with one tab between them")
    return [first for first, _ in pairs], [second for _, second in pairs]


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
