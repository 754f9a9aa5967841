"""Write a bundle all or nothing.

Files go to a hidden sibling of the destination, which replaces it in one rename. Whenever the process stops, the
destination is unchanged or the whole new bundle.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from edgebert_runtime.bundle.manifest import MANIFEST_NAME
from edgebert_runtime.errors import ExportError


@contextlib.contextmanager
def staged(destination: str | os.PathLike[str], *, force: bool = False) -> Iterator[Path]:
    """Yield an empty folder that becomes ``destination`` when the block ends without an error.

    Raises:
        ExportError: if the destination exists and ``force`` is not given, is not a bundle, or cannot be written.
    """
    target = Path(os.path.abspath(destination))
    check_destination(target, force)
    remove_abandoned(target)
    with contextlib.ExitStack() as cleanup:
        try:
            folder = target.parent / f".{target.name}.edgebert-{secrets.token_hex(8)}"
            cleanup.callback(shutil.rmtree, folder, ignore_errors=True)  # first: a signal may come as soon as it exists
            folder.mkdir(mode=0o700)
            cleanup.enter_context(locked(folder))
            yield folder
            for file in folder.iterdir():
                sync(file)
            os.chmod(folder, 0o777 & ~current_umask())
            sync(folder)
            put_in_place(folder, target)
        except OSError as error:
            raise ExportError(f"cannot write {target}: {explain(error)}") from error


def check_destination(target: Path, force: bool) -> None:
    """Refuse a destination that would destroy something, before any work is done."""
    if not target.parent.is_dir():
        raise ExportError(f"cannot write {target}: the folder {target.parent} does not exist; create it first")
    if not os.path.lexists(target):
        return
    if target.is_symlink():
        raise ExportError(f"{target} is a link to {os.path.realpath(target)}; give the folder itself")
    if not target.is_dir():
        raise ExportError(f"{target} exists and is not a folder; choose another destination")
    if any(target.iterdir()):
        if not (target / MANIFEST_NAME).is_file():
            raise ExportError(f"{target} exists and is not an edgebert bundle; choose another destination")
        if not force:
            raise ExportError(
                f"{target} exists",
                hint="use {force} to replace it, or choose another destination",
                options={"force": True},
            )


def put_in_place(folder: Path, target: Path) -> None:
    """Make ``folder`` the destination; the old one is removed last."""
    if target.exists():
        if not exchange(folder, target):
            old = Path(f"{folder}-old")
            os.rename(target, old)
            os.rename(folder, target)
            shutil.rmtree(old, ignore_errors=True)
    else:
        os.rename(folder, target)
    sync(target.parent)


def exchange(first_folder: Path, second_folder: Path) -> bool:
    """Swap two folders atomically; return False where the system has no such call."""
    libc = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(first_folder), os.fsencode(second_folder)
    if sys.platform == "linux" and hasattr(libc, "renameat2"):
        at_cwd, rename_exchange = -100, 2
        return bool(libc.renameat2(at_cwd, first, at_cwd, second, rename_exchange) == 0)
    if sys.platform == "darwin" and hasattr(libc, "renamex_np"):
        rename_swap = 2
        return bool(libc.renamex_np(first, second, rename_swap) == 0)
    return False


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder while its writer is alive, where the system has such locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def remove_abandoned(target: Path) -> None:
    """Remove staging folders of killed exports to the same destination."""
    try:
        import fcntl
    except ImportError:
        return
    for folder in target.parent.glob(f".{target.name}.edgebert-*"):
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)


def sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot sync a folder
            raise
    finally:
        os.close(handle)


def current_umask() -> int:
    """Return the umask of the process, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def explain(error: OSError) -> str:
    """Return an error of the file system with a hint for the user."""
    hints = {
        errno.ENOSPC: "free some space and try again",
        errno.EDQUOT: "your quota is used up",
        errno.EFBIG: "the file system or a limit (ulimit -f) forbids files of this size",
        errno.EACCES: "choose a folder that you may write to",
        errno.EROFS: "choose a folder that you may write to",
    }
    hint = hints.get(error.errno or 0)
    text = error.strerror or str(error)
    return f"{text}; {hint}" if hint else text
