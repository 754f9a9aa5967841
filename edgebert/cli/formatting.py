"""Figures on standard output: JSON, tables, sizes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import click

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
