"""Write vectors: as text, as JSON lines, or into a NumPy file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgebert.cli.errors import Failure

if TYPE_CHECKING:
    from edgebert_runtime import EmbedResult

Write = Callable[["EmbedResult", int], None]  # a result, and the number of its first text


def write_text(result: EmbedResult, _first: int) -> None:
    """Print a line for each text: its numbers, in as many digits as float32 needs."""
    for vector in result.vectors:
        click.echo(" ".join(map(str, vector)))


def write_json(result: EmbedResult, first: int) -> None:
    """Print a JSON object a line for each text."""
    rows = zip(result.vectors, result.token_counts, result.truncated, strict=True)
    for index, (vector, tokens, truncated) in enumerate(rows, first):
        # Written by hand, since the json module would print float32 with the digits of float64.
        numbers = ", ".join(map(str, vector))
        flag = "true" if truncated else "false"
        click.echo(f'{{"index": {index}, "vector": [{numbers}], "tokens": {tokens}, "truncated": {flag}}}')


class NumpyFile:
    """A ``.npy`` file that grows row by row under a temporary name, and takes its own name when it is complete.

    Leaving the ``with`` block after an error, or never leaving it, leaves the old file.
    """

    def __init__(self, destination: Path) -> None:
        self.name = click.format_filename(destination)
        self.target = Path(os.path.realpath(destination))
        self.temporary = self.target.with_name(f".{self.target.name}.{os.urandom(4).hex()}.tmp")
        self.rows, self.dim = 0, 0

    def __enter__(self) -> NumpyFile:
        if self.target.exists() and not self.target.is_file():
            raise Failure(f"{self.name} is not a regular file; give the name of a new one")
        try:
            with self.naming():
                self.stream = self.temporary.open("xb")
        except BaseException:  # a signal may come as soon as the file exists
            with contextlib.suppress(OSError):
                self.temporary.unlink()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_details: object) -> None:
        try:
            with self.naming(), self.stream:
                if kind is None:
                    self.stream.seek(0)
                    self.write_header()
                    self.stream.flush()
                    os.fsync(self.stream.fileno())
            if kind is None:
                with self.naming():
                    os.replace(self.temporary, self.target)
        finally:
            self.temporary.unlink(missing_ok=True)

    def start(self, dim: int) -> Write:
        """Return the function that appends rows of ``dim`` numbers."""
        self.dim = dim
        with self.naming():
            self.write_header()
        return self.append

    def write_header(self) -> None:
        """Write the header. Its length is fixed: NumPy leaves room for the number of rows to grow."""
        import numpy as np

        entries = {"descr": "<f4", "fortran_order": False, "shape": (self.rows, self.dim)}
        np.lib.format.write_array_header_1_0(self.stream, entries)

    def append(self, result: EmbedResult, _first: int) -> None:
        """Write the vectors of ``result``."""
        with self.naming():
            self.stream.write(result.vectors.astype("<f4", copy=False).tobytes())
        self.rows += len(result.vectors)

    @contextlib.contextmanager
    def naming(self) -> Iterator[None]:
        """Name the file in errors of a full, read-only or missing folder."""
        try:
            yield
        except OSError as error:
            raise Failure(f"cannot write {self.name}: {error.strerror or error}") from error
