"""JSON Lines: an object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn

from edgebert.cli.errors import Failure
from edgebert.cli.files.rows import Window
from edgebert.cli.text_input import MAX_RECORD_BYTES, REMEDY, EncodingErrors, byte_lines, decode


def json_windows(stream: BinaryIO, source: str, errors: EncodingErrors) -> Iterator[Window]:
    """Yield the objects of ``stream`` as they arrive. Empty lines are none.

    Raises:
        Failure: naming the line that holds no JSON object.
    """
    first = 0
    for first_line, lines, num_bytes in byte_lines(stream, source, max_bytes=MAX_RECORD_BYTES):
        records, places = [], []
        for place, line in enumerate(lines, first_line + 1):
            if line.strip():
                name = f"line {place} of {source}"
                records.append(parse(decode(line, name, errors, REMEDY), name))
                places.append(place)
        yield Window(first, records, places, num_bytes, source)
        first += len(records)


def parse(line: str, name: str) -> dict[str, Any]:
    """Return the object of a line; ``name`` is the line, for errors."""
    try:
        record = json.loads(line, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Failure(f"{name} is not JSON ({error}); write an object a line") from error
    if not isinstance(record, dict):
        raise Failure(f"{name} is {record!r:.40}, not an object; JSON Lines has an object a line")
    return record


def refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and infinity, which JSON does not have."""
    raise ValueError(f"{name} is no value of JSON")
