"""Write vectors: as text, as JSON Lines, into a NumPy file, or into a Parquet file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from edgebert.cli.errors import Failure
from edgebert.cli.files.atomic_file import AtomicFile
from edgebert.cli.files.rows import Row
from edgebert.cli.request import Request
from edgebert.cli.result_rows import echo_line, place_of, record_of

if TYPE_CHECKING:
    from edgebert_runtime import EmbedResult

Write = Callable[[list[Row], "EmbedResult"], None]
Start = Callable[[int], Write]  # takes the numbers of a vector

# Rows of a row group of Parquet.
GROUP_ROWS = 8192
ID_TYPES = {int: "int64", str: "string"}


@contextlib.contextmanager
def vector_output(request: Request) -> Iterator[Start]:
    """Yield the function that starts the output of a request, when the size of a vector is known."""
    if request.output is None or not request.writes_vectors:
        write = write_json if request.as_json else write_text
        yield lambda _dim: write
        return
    if is_parquet := request.output.suffix.lower() == ".parquet":
        import pyarrow.parquet  # noqa: F401  # before the model is loaded, in case that it is missing
    started: list[NumpyRows | ParquetRows] = []
    with AtomicFile(request.output) as file, contextlib.ExitStack() as stack:

        def start(dim: int) -> Write:
            rows = ParquetRows(file, dim, request.id_field is not None) if is_parquet else NumpyRows(file, dim)
            stack.callback(rows.release)
            started.append(rows)
            return rows.append

        yield start
        for rows in started:
            rows.finish()


def write_text(_rows: list[Row], result: EmbedResult) -> None:
    """Print a line for each text: its numbers, in as many digits as float32 needs."""
    for vector in result.vectors:
        echo_line(" ".join(map(str, vector)))


def write_json(rows: list[Row], result: EmbedResult) -> None:
    """Print a JSON object a line for each text."""
    for row, vector, tokens, truncated in zip(rows, result.vectors, result.token_counts, result.truncated, strict=True):
        # Written by hand, since the json module would print float32 with the digits of float64.
        numbers = ", ".join(map(str, vector))
        flag = "true" if truncated else "false"
        echo_line(
            f'{{{place_of(row)}, "vector": [{numbers}], "tokens": {tokens}, "truncated": {flag}{record_of(row)}}}'
        )


class NumpyRows:
    """The rows of a ``.npy`` file, of ``dim`` numbers each."""

    def __init__(self, file: AtomicFile, dim: int) -> None:
        self.file, self.shape = file, (0, dim)
        self.write_header()

    def write_header(self) -> None:
        """Write the header. Its length is fixed: NumPy leaves room for the number of rows to grow."""
        import numpy as np

        entries = {"descr": "<f4", "fortran_order": False, "shape": self.shape}
        with self.file.naming():
            np.lib.format.write_array_header_1_0(self.file.stream, entries)

    def append(self, _rows: list[Row], result: EmbedResult) -> None:
        """Write the vectors of ``result``."""
        with self.file.naming():
            self.file.stream.write(result.vectors.astype("<f4", copy=False).tobytes())
        self.shape = (self.shape[0] + len(result.vectors), self.shape[1])

    def finish(self) -> None:
        """Write the number of rows into the header."""
        with self.file.naming():
            self.file.stream.seek(0)
        self.write_header()

    def release(self) -> None:
        """Free nothing: a NumPy file holds nothing."""


class ParquetRows:
    """The rows of a Parquet file, written in groups of some thousand.

    The columns are ``index``, ``id`` where it was asked for, ``vector`` (a list of fixed size of float32), ``tokens``
    and ``truncated``.
    """

    def __init__(self, file: AtomicFile, dim: int, has_ids: bool) -> None:
        self.file, self.dim, self.has_ids = file, dim, has_ids
        self.pending: list[tuple[list[Row], EmbedResult]] = []
        self.num_pending = 0
        self.id_type: type = str
        self.writer: Any = None

    def append(self, rows: list[Row], result: EmbedResult) -> None:
        """Take the vectors of ``result``, and write a group where there are enough."""
        if self.has_ids:
            self.check_ids(rows)
        self.pending.append((rows, result))
        self.num_pending += len(rows)
        if self.num_pending >= GROUP_ROWS:
            self.write_group()

    def check_ids(self, rows: list[Row]) -> None:
        """Make sure that ids are all texts, or all whole numbers: a column has one type."""
        for row in rows:
            if row.index == 0 and type(row.row_id) in ID_TYPES:
                self.id_type = type(row.row_id)
            is_large = isinstance(row.row_id, int) and not -(1 << 63) <= row.row_id < 1 << 63
            if type(row.row_id) is not self.id_type or is_large:
                kind = "texts" if self.id_type is str else "whole numbers of 64 bits"
                raise Failure(
                    f"row {row.index + 1} has the id {row.row_id!r:.40}; ids of one Parquet file are all {kind}"
                )

    def write_group(self) -> None:
        """Write the pending rows."""
        import numpy as np
        import pyarrow
        import pyarrow.parquet

        rows = [row for group, _ in self.pending for row in group]
        results = [result for _, result in self.pending]
        vectors = np.concatenate([np.empty((0, self.dim), np.float32), *(result.vectors for result in results)])
        columns = {"index": pyarrow.array([row.index for row in rows], "int64")}
        if self.has_ids:
            columns["id"] = pyarrow.array([row.row_id for row in rows], ID_TYPES[self.id_type])
        columns["vector"] = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.ravel()), self.dim)
        columns["tokens"] = pyarrow.array([int(n) for result in results for n in result.token_counts], "int64")
        columns["truncated"] = pyarrow.array([bool(cut) for result in results for cut in result.truncated], "bool")
        table = pyarrow.table(columns)
        with self.file.naming():
            if self.writer is None:
                self.writer = pyarrow.parquet.ParquetWriter(self.file.stream, table.schema)
            self.writer.write_table(table)
        self.pending, self.num_pending = [], 0

    def finish(self) -> None:
        """Write the last rows, and the end of the file."""
        if self.pending or self.writer is None:
            self.write_group()
        with self.file.naming():
            self.writer.close()

    def release(self) -> None:
        """Close a file that is not complete; nobody will see it."""
        if self.writer is not None:
            with contextlib.suppress(Exception):
                self.writer.close()
