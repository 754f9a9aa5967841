"""Read texts, one a line, in windows of bounded size."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

import click

from edgebert.cli.errors import Failure, input_name

if TYPE_CHECKING:
    from edgebert_runtime.errors import EdgebertError

WINDOW_BYTES = 1 << 18  # what is read at once: some thousand sentences, enough to fill batches of equal length
MAX_LINE_BYTES = 4 << 20  # the longest text that engines take, a million characters, fits in
MAX_ARGUMENTS = 1024

REMEDY = "convert it, or give --errors replace"
Errors = Literal["strict", "replace"]


@dataclass(frozen=True)
class Window:
    """Some consecutive texts: the number of the first one, counted from 0, and how many bytes were read for them.

    ``source`` is the file from which they came, None for arguments; ``whole`` says that the text is all of it.
    """

    first: int
    texts: list[str]
    read: int
    source: str | None
    whole: bool = False

    def text_name(self, error: EdgebertError) -> str:
        """Return the words for the text that an error of a call with these texts is about."""
        return input_name(error, called(self.first + (error.index or 0), self.source, self.whole))

    def parts(self, most: int) -> Iterator[Window]:
        """Yield the texts again, at most so many at once."""
        left = self.read
        for start in range(0, len(self.texts), most):
            texts = self.texts[start : start + most]
            read = left if start + most >= len(self.texts) else min(left, sum(map(len, texts)))
            left -= read
            yield replace(self, first=self.first + start, texts=texts, read=read)


def called(index: int, source: str | None, whole: bool = False) -> str:
    """Return what users call the text with this index: they count from 1."""
    if whole and source is not None:
        return source
    return f"text {index + 1}" if source is None else f"line {index + 1} of {source}"


def argument_windows(texts: Sequence[str]) -> Iterator[Window]:
    """Yield the texts given as arguments."""
    for first in range(0, len(texts), MAX_ARGUMENTS):
        part = list(texts[first : first + MAX_ARGUMENTS])
        yield Window(first, part, sum(map(len, part)), None)


def line_windows(stream: BinaryIO, source: str, errors: Errors, remedy: str = REMEDY) -> Iterator[Window]:
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
            raise Failure(f"{called(first, source)} is longer than {MAX_LINE_BYTES >> 20} MiB; write one text a line")
        if b"\n" in block:
            whole, _, tail = bytes(rest).rpartition(b"\n")
            lines = whole.split(b"\n")
            texts = [decode(line, called(first + i, source), errors, remedy) for i, line in enumerate(lines)]
            yield Window(first, texts, len(whole) + 1, source)
            first, rest = first + len(lines), bytearray(tail)
    if rest:
        yield Window(first, [decode(bytes(rest), called(first, source), errors, remedy)], len(rest), source)


def read_some(stream: BinaryIO) -> bytes:
    """Return what is there, waiting only if there is nothing; empty at the end."""
    read1 = getattr(stream, "read1", stream.read)
    block: bytes = read1(WINDOW_BYTES)
    return block


def decode(line: bytes, name: str, errors: Errors, remedy: str) -> str:
    """Return the line called ``name`` as text."""
    line = line.removesuffix(b"\r")
    try:
        return line.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise Failure(
            f"{name} is not UTF-8 ({error.reason} at byte {error.start + 1} of the line); {remedy}"
        ) from error


def read_texts(file: Path, what: str = "texts") -> list[str]:
    """Read all texts, or what else there is, of ``file``; empty lines are left out.

    Raises:
        Failure: if there are none, or the file is not UTF-8.
    """
    with file.open("rb") as stream:
        name = click.format_filename(file)
        texts = [
            text
            for window in line_windows(stream, name, "strict", "convert it")
            for text in window.texts
            if text.strip()
        ]
    if not texts:
        raise Failure(f"{name} holds no {what}; write one a line")
    return texts


def split_pairs(texts: list[str], what: str) -> tuple[list[str], list[str]]:
    """Return the first and the second text of each pair; ``what`` takes them.

    Raises:
        InputError: naming what has not exactly one tab.
    """
    from edgebert_runtime.errors import InputError

    pairs = [text.split("\t") for text in texts]
    for index, pair in enumerate(pairs):
        if len(pair) != 2:
            found = f"{len(pair) - 1} tabs" if pair[1:] else "no tab"
            raise InputError(f"has {found}", index=index, hint=f"{what} takes two texts with one tab between them")
    return [first for first, _ in pairs], [second for _, second in pairs]


def file_size(stream: BinaryIO) -> int | None:
    """Return the size of a regular file, and None for a pipe or a terminal."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, AttributeError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
