"""A file that grows under a temporary name, and takes its own name when it is complete."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import click

from edgebert.cli.errors import Failure


class AtomicFile:
    """A binary file: leaving the ``with`` block after an error, or never leaving it, leaves the old file."""

    def __init__(self, destination: Path) -> None:
        self.name = click.format_filename(destination)
        self.target = Path(os.path.realpath(destination))
        self.temporary = self.target.with_name(f".{self.target.name}.{os.urandom(4).hex()}.tmp")

    def __enter__(self) -> AtomicFile:
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
                    self.stream.flush()
                    os.fsync(self.stream.fileno())
            if kind is None:
                with self.naming():
                    os.replace(self.temporary, self.target)
        finally:
            self.temporary.unlink(missing_ok=True)

    def write(self, data: bytes) -> None:
        """Append bytes."""
        with self.naming():
            self.stream.write(data)

    @contextlib.contextmanager
    def naming(self) -> Iterator[None]:
        """Name the file in errors of a full, read-only or missing folder."""
        try:
            yield
        except OSError as error:
            raise Failure(f"cannot write {self.name}: {error.strerror or error}") from error
