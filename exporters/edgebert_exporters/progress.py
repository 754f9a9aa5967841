"""Reports while a bundle is made: progress (a step, how much of it is done, and how much there is), and notes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

from edgebert_runtime.errors import ReferenceWarning

Progress = Callable[[str, int, int], None]


def silent(step: str, done: int, total: int) -> None:
    """Report progress to nobody."""


def report_notes(notes: Sequence[str]) -> None:
    """Warn of differences from the reference, in the name of whoever called a function of the library.

    Between them is :func:`edgebert_exporters.arguments.typed`.
    """
    for note in notes:
        warnings.warn(ReferenceWarning(note), stacklevel=4)
