"""Folders that the processes of one test run share: each is made once, by the process that needs it first."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Once = Callable[[str, Callable[[Path], object]], Path]


def shared_folders(factory: pytest.TempPathFactory) -> Once:
    """Return a function from a name and a function that makes the folder to the folder of this name.

    The name says everything that the content depends on. Nobody changes the content later.
    """
    base = factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    root.mkdir(exist_ok=True)

    def once(name: str, make: Callable[[Path], object]) -> Path:
        folder, done = root / name, root / f"{name}.done"
        if not done.exists():
            with locked(root / f"{name}.lock"):
                if not done.exists():
                    make(folder)
                    done.touch()
        return folder

    return once


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold a lock on a file, which the system takes away from a process that ends."""
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
