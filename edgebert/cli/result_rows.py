"""Results on standard output or in a file: a line each, of cells with tabs between, or of JSON."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgebert.cli.files.atomic_file import AtomicFile
from edgebert.cli.files.rows import MISSING, Row

if TYPE_CHECKING:
    from edgebert_runtime import Choice, Ranked

# Tabs and the ends of lines would break a row into more, other control characters would disturb a terminal, and lone
# surrogates cannot be printed.
CONTROLS = [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029]
PRINTABLE = dict.fromkeys(CONTROLS, " ") | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
# The key of click's meta: the file of the results of the running command.
OUTPUT = "edgebert.output"
LINES = {code: put for code, put in PRINTABLE.items() if code not in (ord("\n"), ord("\t"))}


@contextlib.contextmanager
def result_output(destination: Path) -> Iterator[None]:
    """Send results to a file instead of standard output. It appears when it is complete."""
    with AtomicFile(destination) as file:
        click.get_current_context().meta[OUTPUT] = file
        yield


def echo_line(text: str, end: str = "\n") -> None:
    """Print a line of the results."""
    file: AtomicFile | None = click.get_current_context().meta.get(OUTPUT)
    if file is None:
        click.echo(text + end, nl=False)
    else:
        file.write((text + end).encode("utf-8", "replace"))


def echo_row(*cells: object) -> None:
    """Print cells with tabs between them; control characters within become spaces."""
    echo_line("\t".join(cell.translate(PRINTABLE) if isinstance(cell, str) else number(cell) for cell in cells))


def echo_text(pieces: Iterable[str]) -> None:
    """Print the pieces of a text as they come; an interrupted line gets its end too."""
    printed = False
    try:
        for piece in pieces:
            echo_line(piece.translate(LINES), end="")
            printed = True
    except BaseException:
        if printed:
            echo_line("")
        raise
    echo_line("")


def echo_object(row: Row, value: object) -> None:
    """Print the result of a row as a JSON object in a line.

    It begins with the number of the row and its id, and ends with the row itself as ``input``, where it has such.
    """
    echo_line(f"{{{place_of(row)}, {json.dumps(exact(value))[1:-1]}{record_of(row)}}}")


def place_of(row: Row) -> str:
    """Return the first members of an object: the number of the row, and its id."""
    index = f'"index": {row.index}'
    return index if row.row_id is MISSING else f'{index}, "id": {as_json(row.row_id)}'


def record_of(row: Row) -> str:
    """Return the last member of an object: the fields of the row, unchanged."""
    return "" if row.record is None else f', "input": {as_json(row.record)}'


def as_json(value: object) -> str:
    """Return a value of the input as JSON; values of Parquet that JSON does not have are texts, or null."""
    try:
        return json.dumps(value, default=as_text, allow_nan=False)
    except ValueError:
        return json.dumps(without_nan(value), default=as_text)


def as_text(value: object) -> str:
    """Return a date, a decimal number or bytes as a text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def without_nan(value: object) -> object:
    """Return a value with null in the place of nan and infinity."""
    if isinstance(value, Mapping):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return finite(value) if isinstance(value, float) else value


def echo_ranked(rows: list[Row], ranked: Iterable[Ranked] | Iterable[Choice], as_json: bool) -> None:
    """Print texts with their scores, best first; ``rows`` are those of the texts, in their order."""
    for item in ranked:
        if as_json:
            fields = {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
            echo_object(rows[fields.pop("index")], fields)
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
