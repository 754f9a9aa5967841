"""Opening a bundle, with the checks that it is the one that was exported.

Opening runs nothing from the folder and never uses the network. It leaves the folder only by links to regular files
whose size and hash are those of the manifest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgebert_runtime.bundle.graph_validation import check_graph
from edgebert_runtime.bundle.links import fault_of, is_inside
from edgebert_runtime.bundle.manifest import MANIFEST_NAME, FileEntry, GraphSpec, Manifest
from edgebert_runtime.errors import BundleError, IntegrityError, UnsafeBundleError

MAX_MANIFEST_BYTES = 16 << 20
# Files of raw weights, which nothing interprets.
DATA_FILES = ("weights.bin",)
Verify = Literal["hash", "size"]


@dataclass(frozen=True)
class Bundle:
    """An opened and checked bundle: its folder and its manifest."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, folder: str | os.PathLike[str], verify: Verify = "hash") -> Bundle:
        """Open ``folder`` and check every file that its manifest lists.

        ``verify="size"`` compares sizes only, and the SHA-256 of links that lead out of the folder. The SHA-256 of the
        files takes about a second a gigabyte.

        Raises:
            BundleError: if the folder is no bundle of this format.
            IntegrityError: if a file is missing, or differs from the exported one.
            UnsafeBundleError: if a file is named by a path or is a special one, or a graph holds operators that
                edgebert never writes.
        """
        with opening(folder, verify) as bundle:
            return bundle

    def graph(self, name: str) -> GraphSpec:
        """Return the graph called ``name``.

        Raises:
            BundleError: if the bundle has none of that name.
        """
        if name not in self.manifest.graphs:
            raise BundleError(f"{self.path} has no graph {name!r}, only {sorted(self.manifest.graphs)}")
        return self.manifest.graphs[name]


@contextlib.contextmanager
def opening(folder: str | os.PathLike[str], verify: Verify = "hash") -> Iterator[Bundle]:
    """Open a bundle as :meth:`Bundle.open` does, and hash its weights during the body.

    An error of the weights is raised at the end of the body.
    """
    check_arguments(folder, verify)
    path = Path(folder)
    text = read_manifest(path)
    try:
        manifest = Manifest.from_json(text)
    except BundleError as fault:
        raise BundleError(f"{path}: {fault}") from fault
    hashed = []
    for name, entry in manifest.files.items():
        check_size(path, name, entry)
        if verify == "hash" or leads_out(path / name):
            hashed.append(name)
            if name not in DATA_FILES:
                check_hash(path, name, entry)
    for spec in manifest.graphs.values():
        if spec.file not in manifest.files or spec.file in DATA_FILES:
            raise IntegrityError(f"{path}: {MANIFEST_NAME} lists no size and hash of {spec.file}")
        check_graph(path, spec, manifest.files)
    data = [name for name in DATA_FILES if name in hashed]
    errors: list[Exception] = []

    def check_data() -> None:
        try:
            for name in data:
                check_hash(path, name, manifest.files[name])
        except Exception as error:  # to be raised where someone catches it
            errors.append(error)

    thread = threading.Thread(target=check_data, name="edgebert-hash")
    thread.start()
    try:
        yield Bundle(path, manifest)
    finally:
        thread.join()
        for error in errors:
            raise error


def check_arguments(folder: object, verify: object) -> None:
    """Make sure that a folder is a path, and ``verify`` one of its values.

    Raises:
        BundleError: naming the argument.
    """
    if not isinstance(folder, (str, os.PathLike)):
        raise BundleError(f"folder={folder!r:.60} is not a path; give the folder that 'edgebert export' wrote")
    if not isinstance(verify, str) or verify not in ("hash", "size"):
        raise BundleError(f'verify={verify!r} is not one of "hash", "size"')


def read_manifest(path: Path) -> str:
    """Return the text of the manifest in the folder ``path``."""
    if not path.exists():
        raise BundleError(f"{path} does not exist; give the folder that 'edgebert export' wrote")
    if not path.is_dir():
        raise BundleError(f"{path} is a file; give the folder that 'edgebert export' wrote")
    file = path / MANIFEST_NAME
    if file.is_symlink() and not file.is_file():
        target = os.path.realpath(file)
        raise BundleError(f"{file} is a link to {target}, which is no regular file; copy the whole folder")
    if not file.is_file():
        hint = "; it is a checkpoint: run 'edgebert export' on it first" if (path / "config.json").exists() else ""
        raise BundleError(f"{path} holds no {MANIFEST_NAME}, so it is not an edgebert bundle{hint}")
    size = file.stat().st_size
    if size > MAX_MANIFEST_BYTES:
        raise BundleError(f"{file} has {size} bytes, more than the {MAX_MANIFEST_BYTES} of any manifest")
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BundleError(f"{file} is not UTF-8 ({error.reason} at byte {error.start}); export again") from error


def check_size(folder: Path, name: str, entry: FileEntry) -> None:
    """Make sure that a file of the manifest is a regular one, or a link to one, of the right size.

    Raises:
        IntegrityError: if it is missing, a link that leads nowhere, or of another size.
        UnsafeBundleError: if its name is a path, or it is a folder, a pipe or a device.
    """
    if not name or name != os.path.basename(name) or name in (".", "..") or "\0" in name or "\\" in name:
        raise UnsafeBundleError(f"{folder}: {MANIFEST_NAME} lists {name!r}, which is not a plain file name")
    file = folder / name
    try:
        status = file.stat()
    except OSError as error:
        raise IntegrityError(f"{file} {fault_of(file, error)}; copy the whole folder, or export again") from error
    if not stat.S_ISREG(status.st_mode):
        where = f"is a link to {os.path.realpath(file)}, " if file.is_symlink() else "is "
        raise UnsafeBundleError(f"{file} {where}a folder or a special file; a bundle holds regular files only")
    if status.st_size != entry.bytes and not leads_out(file):
        raise IntegrityError(f"{file} has {status.st_size} bytes, the manifest says {entry.bytes}; copy it again")


def check_hash(folder: Path, name: str, entry: FileEntry) -> None:
    """Compare the SHA-256 of a file with that of the manifest.

    Raises:
        IntegrityError: if it is another.
        UnsafeBundleError: if the file is a link out of the folder, too.
    """
    file = folder / name
    if (digest := sha256(file)) != entry.sha256:
        if leads_out(file):  # to a file of which nothing should be told
            raise UnsafeBundleError(f"{file} is a link to another file than that of the manifest; put the file there")
        raise IntegrityError(f"{file} has SHA-256 {digest}, the manifest says {entry.sha256}; copy it again")


def leads_out(file: Path) -> bool:
    """Tell whether a file of a bundle is a link to a place where anything may be."""
    return file.is_symlink() and not is_inside(file.parent, os.path.realpath(file))


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file in hex digits."""
    digest, buffer = hashlib.sha256(), bytearray(1 << 20)
    view = memoryview(buffer)
    with open(file, "rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            digest.update(view[:count])
    return digest.hexdigest()
