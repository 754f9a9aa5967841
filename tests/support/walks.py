"""Measure how often a call goes back to a file that it left: ``walk(call)`` traces it.

Consecutive function calls in one file are one stay. A return is a stay in a file that was visited before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PRODUCT = tuple(f"{ROOT / folder}/" for folder in ("edgebert", "exporters", "runtime"))


class Walk(NamedTuple):
    """The stays of a call, the files that it visits, and its returns to a file that it left."""

    stays: int
    files: int
    returns: int


def walk(call: Callable[[], object]) -> Walk:
    """Run ``call`` and count its stays in files of the product, on this thread."""
    path = files_visited(call)
    return Walk(len(path), len(set(path)), len(path) - len(set(path)))


def files_visited(call: Callable[[], object]) -> list[str]:
    """Run ``call`` and return the file of each stay, in order."""
    files: list[str] = []

    def trace(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PRODUCT):
            files.append(frame.f_code.co_filename)

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(previous)
    return [file for file, _ in groupby(files)]
