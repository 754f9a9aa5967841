"""Reports of progress: a step, how much of it is done, and how much there is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]


def silent(step: str, done: int, total: int) -> None:
    """Report progress to nobody."""
