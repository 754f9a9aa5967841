"""Figures on standard output: JSON, tables, sizes. Progress on standard error."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

StepProgress = Callable[[str, int, int], None]
Row = tuple[str, str]
LONG_LIST = 6


def echo_json(value: object) -> None:
    """Print ``value`` as JSON."""
    click.echo(json.dumps(value, indent=2, default=plain))


def plain(value: Any) -> Any:
    """Return a NumPy number or a path as a type that JSON has."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def echo_table(rows: Iterable[Row], title: str | None = None) -> None:
    """Print rows of a label and a text, aligned."""
    rows = list(rows)
    if title and rows:
        click.echo(f"\n{title}")
    width = max((len(label) for label, _ in rows), default=0)
    for label, text in rows:
        click.echo(f"{'  ' if title else ''}{label:<{width}}  {text}".rstrip())


def flatten(value: object, label: str = "") -> Iterator[Row]:
    """Yield a row for each figure of nested dictionaries, and for each dictionary in a list."""
    if isinstance(value, list | tuple) and value and all(isinstance(item, dict) and item for item in value):
        for first, *others in (list(item.items()) for item in value):
            text = ", ".join(f"{key.replace('_', ' ')} {number(item)}" for key, item in others)
            yield f"{label} {number(first[1])}".strip(), text
    elif isinstance(value, dict) and value:
        for key, item in value.items():
            yield from flatten(item, f"{label} {key}".strip().replace("_", " "))
    else:
        yield label, number(value)


def number(value: object) -> str:
    """Format a figure for reading."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, list | tuple):
        if len(value) > LONG_LIST:
            return f"{len(value)} values"
        return ", ".join(number(item) for item in value) or "none"
    return "none" if value is None or value == {} else str(value)


def size(count: int) -> str:
    """Format a number of bytes."""
    amount = float(count)
    for unit in ("bytes", "kB", "MB"):
        if amount < 1000:
            return f"{count} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def stderr_is_terminal() -> bool:
    """Return whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextlib.contextmanager
def step_progress() -> Iterator[StepProgress | None]:
    """Yield a function that shows a bar for each step; None without a terminal."""
    if not stderr_is_terminal():
        yield None
        return
    with contextlib.ExitStack() as bars:
        name: str | None = None
        bar: Any = None

        def advance(step: str, done: int, total: int) -> None:
            nonlocal name, bar
            if step != name:
                bars.close()
                name, bar = step, bars.enter_context(click.progressbar(length=total, label=step, file=sys.stderr))
            bar.update(done - bar.pos)

        yield advance


@contextlib.contextmanager
def call_progress(label: str) -> Iterator[Callable[[int, int | None], None] | None]:
    """Yield the ``progress`` of an engine's method, a bar for one call; None without a terminal."""
    with step_progress() as progress:
        yield progress and (lambda done, total: progress(label, done, total or done))


@contextlib.contextmanager
def count_progress(total: int | None, shown: bool, label: str) -> Iterator[Callable[[int], object]]:
    """Yield a function that moves a bar by a number of units; ``total`` is None if unknown."""
    if not (shown and stderr_is_terminal()):
        yield lambda _count: None
        return
    endless: Iterator[None] = (None for _ in ())  # click asks for a length, or for an iterable without one
    with click.progressbar(endless, length=total, label=label, show_pos=total is None, file=sys.stderr) as bar:
        yield bar.update
