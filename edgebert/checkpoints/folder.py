"""Read the files of a checkpoint folder without trusting them.

Only regular files are opened, links only where they stay inside the folder or lead to the ``blobs`` of the hub
cache, and nothing larger than its cap is read.
"""

from __future__ import annotations

import codecs
import itertools
import os
import re
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from edgebert_runtime import strict_json
from edgebert_runtime.bundle.links import is_inside
from edgebert_runtime.errors import CheckpointError

MAX_CONFIG_BYTES = 1 << 20
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "starts with a UTF-8 byte order mark",
    codecs.BOM_UTF16_LE: "is UTF-16",
    codecs.BOM_UTF16_BE: "is UTF-16",
}


@dataclass(frozen=True)
class CheckpointFolder:
    """A folder with a checkpoint, whose files are read by name."""

    path: Path

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> CheckpointFolder:
        """Make sure that ``path`` is a folder.

        Raises:
            CheckpointError: if it does not exist or is not a folder.
        """
        folder = Path(path)
        if folder.is_dir():
            return cls(folder)
        if os.path.lexists(folder):
            raise CheckpointError(one_line(f"{folder} is not a folder; give the folder that holds config.json"))
        hint = "give the folder that holds config.json and model.safetensors"
        if HUB_NAME.fullmatch(str(path)):
            hint = f"edgebert reads local folders only; for a model of the Hub run 'hf download {path} --local-dir DIR'"
        raise CheckpointError(one_line(f"{folder} does not exist; {hint}"))

    def has(self, name: str) -> bool:
        """Say whether the folder has an entry ``name`` of any type."""
        return os.path.lexists(self.path / name)

    def entries(self, limit: int = 10_000) -> list[str]:
        """Return the names of the entries of the folder in order, at most ``limit``; none where it cannot be read."""
        try:
            with os.scandir(self.path) as entries:
                return sorted(entry.name for entry in itertools.islice(entries, limit))
        except OSError:
            return []

    def names(self, limit: int = 8) -> str:
        """Return some file names of the folder, for messages."""
        try:
            with os.scandir(self.path) as entries:
                names = [entry.name for entry in itertools.islice(entries, limit + 1)]
        except OSError as error:
            return f"nothing that can be read: {error.strerror}"
        more = ", ..." if len(names) > limit else ""
        return ", ".join(sorted(names[:limit])) + more if names else "nothing"

    def stream(self, name: str) -> BinaryIO:
        """Open the regular file ``name`` for reading.

        Raises:
            CheckpointError: if it is missing, cannot be read, is not a regular file, or is a link out of the folder.
        """
        target = os.path.realpath(self.path / name)
        if not is_inside(self.path, target):
            raise CheckpointError(
                f"{name} is a link to {target}, outside of the folder; replace the link by the file itself"
            )
        try:
            # Without O_NONBLOCK, opening a named pipe would wait for somebody to write into it.
            descriptor = os.open(target, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        except FileNotFoundError as error:
            raise CheckpointError(f"{name} is missing; save or download the checkpoint again") from error
        except OSError as error:
            raise CheckpointError(f"{name} cannot be read ({error.strerror}); check the file") from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise CheckpointError(f"{name} is not a regular file; put the file itself there")
        return os.fdopen(descriptor, "rb")

    def content(self, name: str, cap: int) -> bytes:
        """Return the bytes of the file ``name``, at most ``cap``.

        Raises:
            CheckpointError: if it cannot be read or is too large.
        """
        with self.stream(name) as stream:
            data = stream.read(cap + 1)
            size = os.fstat(stream.fileno()).st_size
        if len(data) > cap:
            raise CheckpointError(f"{name} has {size} bytes, at most {cap} are read; is it the right file?")
        return data

    def text(self, name: str, cap: int = MAX_CONFIG_BYTES, *, drop_mark: bool = False) -> str:
        """Return the UTF-8 text of the file ``name``, at most ``cap`` bytes.

        A byte order mark of UTF-8 is dropped with ``drop_mark``, and is an error otherwise.

        Raises:
            CheckpointError: if it cannot be read, is too large, or is not plain UTF-8.
        """
        data = self.content(name, cap)
        for mark, what in BYTE_ORDER_MARKS.items():
            if data.startswith(mark) and not (drop_mark and mark == codecs.BOM_UTF8):
                raise CheckpointError(f"{name} {what}; save it as UTF-8 without a byte order mark")
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise CheckpointError(
                f"{name} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8"
            ) from error

    def json(self, name: str, kind: type[dict[str, Any]] | type[list[Any]] = dict, cap: int = MAX_CONFIG_BYTES) -> Any:
        """Return the content of a JSON file, which must be a ``kind``.

        Raises:
            CheckpointError: if it cannot be read, is not JSON, or is of another type.
        """
        text = self.text(name, cap)
        if not text.strip():
            raise CheckpointError(f"{name} is empty; save or download it again")
        value = parse_json(name, text)
        if not isinstance(value, kind):
            expected = "an object" if kind is dict else "a list"
            raise CheckpointError(f"{name} should hold {expected}, holds {value!r:.60}; save or download it again")
        return value


def parse_json(name: str, text: str) -> Any:
    """Parse the JSON of the file ``name``, without repeated keys.

    Raises:
        CheckpointError: if it is not JSON, with the place of the fault, or has a key twice.
    """
    try:
        return strict_json.loads(text, unique)
    except (ValueError, RecursionError) as error:
        fault = f"{foreign(text.encode(errors='replace')) or 'not valid JSON'} ({error})"
        raise CheckpointError(f"{name} is {fault}; save or download it again") from error


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object, refusing repeated keys."""
    data = dict(pairs)
    if len(data) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {twice!r:.80} stands there twice")
    return data


def foreign(data: bytes) -> str | None:
    """Recognize what often stands in place of a model's file."""
    start = data[:256].lstrip().lower()
    if start.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer and not the file itself: run 'git lfs pull' in the folder"
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "a web page and not the file itself"
    if start.startswith((b"pk\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04")):
        return "a pickle of PyTorch"
    return None


def is_plain(name: object) -> bool:
    """Say whether ``name`` is a plain file name, not a path."""
    return (
        isinstance(name, str)
        and name not in ("", ".", "..")
        and not any(part in name for part in ("/", "\\", ":"))
        and name.isprintable()
    )


def some(names: Sequence[str], limit: int = 5) -> str:
    """Return the first names of a list, and their number."""
    shown = ", ".join(f"{name:.120}" for name in names[:limit])
    return f"{shown}, ... ({len(names)} in all)" if len(names) > limit else shown


def one_line(text: str) -> str:
    """Escape line breaks and terminal controls in ``text``."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
