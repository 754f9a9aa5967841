"""Results on standard output: a line each, of cells with tabs between, or of JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from edgebert_runtime import Choice, Ranked

# Tabs and the ends of lines would break a row into more, other control characters would disturb a terminal, and lone
# surrogates cannot be printed.
CONTROLS = [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029]
PRINTABLE = dict.fromkeys(CONTROLS, " ") | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
LINES = {code: put for code, put in PRINTABLE.items() if code not in (ord("\n"), ord("\t"))}


def echo_row(*cells: object) -> None:
    """Print cells with tabs between them; control characters within become spaces."""
    click.echo("\t".join(cell.translate(PRINTABLE) if isinstance(cell, str) else number(cell) for cell in cells))


def echo_text(pieces: Iterable[str]) -> None:
    """Print the pieces of a text as they come; an interrupted line gets its end too."""
    printed = False
    try:
        for piece in pieces:
            click.echo(piece.translate(LINES), nl=False)
            printed = True
    except BaseException:
        if printed:
            click.echo()
        raise
    click.echo()


def echo_object(value: object) -> None:
    """Print a JSON object in a line."""
    click.echo(json.dumps(exact(value)))


def echo_ranked(ranked: Iterable[Ranked] | Iterable[Choice], as_json: bool) -> None:
    """Print texts with their scores."""
    for item in ranked:
        if as_json:
            echo_object(item)
        else:
            echo_row(item.score, item.text)


def number(value: Any) -> str:
    """Format a whole number, or a float32 in as many digits as it needs."""
    if isinstance(value, int):
        return str(value)
    import numpy as np

    return str(np.float32(value))


def exact(value: Any) -> Any:
    """Return a result for the json module, with the digits of float32."""
    if dataclasses.is_dataclass(value):
        return {field.name: exact(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [exact(item) for item in value]
    return value if value is None or isinstance(value, str | int) else finite(float(number(value)))


def finite(value: float) -> float | None:
    """Return a number; None for nan and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None
