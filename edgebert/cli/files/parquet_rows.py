"""Rows of a Parquet file, with pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from edgebert.cli.errors import Failure
from edgebert.cli.files.rows import Window

ROWS = 1024


def open_parquet(file: Path | None) -> tuple[Iterator[Window], int]:
    """Return the rows of a file in windows, read as they are asked for, and their number.

    Raises:
        UsageError: for standard input.
        Failure: if the file cannot be read.
    """
    if file is None or str(file) == "-":
        raise click.UsageError("Parquet is read from a file: give its name with --input.")
    import pyarrow
    import pyarrow.parquet

    source = click.format_filename(file)
    file.open("rb").close()  # a missing file is an error of the operating system
    try:
        opened = pyarrow.parquet.ParquetFile(file)
    except (pyarrow.ArrowException, OSError) as error:
        raise Failure(f"{source} is not a Parquet file that pyarrow reads ({error})") from error
    return batches(opened, source), opened.metadata.num_rows


def batches(opened: Any, source: str) -> Iterator[Window]:
    """Yield the rows of an open file, batch by batch."""
    import pyarrow

    first = 0
    try:
        for batch in opened.iter_batches(batch_size=ROWS):
            records = batch.to_pylist()
            places = range(first + 1, first + len(records) + 1)
            yield Window(first, records, places, len(records), source, "row")
            first += len(records)
    except (pyarrow.ArrowException, OSError) as error:
        raise Failure(f"{source} is damaged after row {first} ({error})") from error
