"""The keys and values of a batch of sources and of their targets, and the steps of a decoder over them.

Rows are targets, beams of one source among them. All rows are at the same position. The graph takes as many rows of
each source, standing together, and reads the keys and values of the source once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.decoders.causal_kv_cache import Floats, Ints, Outputs
from edgebert_runtime.decoders.seq2seq_signature import TABLE, Seq2SeqGraph
from edgebert_runtime.inputs.batching import pad
from edgebert_runtime.session.io_binding import bind_to
from edgebert_runtime.session.session import Runnable


@dataclass
class SourceCache:
    """What the encoder makes of the sources of a batch.

    ``cross`` are keys and values (sources, heads, source, head_dim) of all layers, ``mask`` (sources, source) is 1 at
    real tokens. The first ``count`` are those whose targets are not complete.
    """

    cross: Sequence[Floats]
    mask: Ints
    count: int

    @classmethod
    def read(cls, graph: Seq2SeqGraph, encoder: Runnable, rows: Sequence[Sequence[int]]) -> SourceCache:
        """Run the encoder over rows of token ids. What it writes is what the decoder reads, and copied nowhere."""
        ids, mask = pad(rows)
        cross = np.empty((len(graph.crosses), len(ids), graph.num_heads, ids.shape[1], graph.head_dim), graph.dtype)
        binding = bind_to(encoder)
        binding.bind(ids, read="input_ids")
        binding.bind(mask, read="attention_mask")
        for part, name in zip(cross, graph.crosses, strict=True):
            binding.bind(part, written=name)
        binding.run()
        return cls(list(cross), mask, len(ids))

    def keep(self, numbers: Ints) -> Ints:
        """Forget all sources but ``numbers`` (n,), in rising order, and return the numbers that these have now.

        The last of them move to the places of those that go.
        """
        self.count = len(numbers)
        moved = np.flatnonzero(numbers >= self.count)
        places, movers = np.setdiff1d(np.arange(self.count), numbers), numbers[moved]
        for part in self.cross:
            part[places] = part[movers]
        self.mask[places] = self.mask[movers]
        result: Ints = numbers.copy()
        result[moved] = places
        return result


class Past(Protocol):
    """Rows of target tokens, as many in each: ``length``."""

    graph: Seq2SeqGraph
    length: int

    def run(self, ids: Ints, sources: SourceCache, outputs: Sequence[str], best: int = 1) -> Outputs:
        """Append a token to each row (rows,), and return the ``outputs`` named; see :meth:`Continuing.step`."""

    def take(self, parents: Ints) -> None:
        """Let row i be what row ``parents[i]`` was."""


class GrowingPast:
    """For graphs that return the past with the new tokens appended."""

    def __init__(self, graph: Seq2SeqGraph, session: Runnable, rows: int) -> None:
        self.graph, self.session = graph, session
        self.length = 0
        empty = np.zeros((rows, graph.num_heads, 0, graph.head_dim), graph.dtype)
        self.past: list[Floats] = [empty] * len(graph.pasts)

    def run(self, ids: Ints, sources: SourceCache, outputs: Sequence[str], best: int = 1) -> Outputs:
        """Append tokens; see :class:`Past`."""
        feeds = {
            "input_ids": ids[:, None],
            "position": np.array([self.length]),
            "encoder_attention_mask": sources.mask[: sources.count],
            "top_k": np.array([best]),
            **{name: part[: sources.count] for name, part in zip(self.graph.crosses, sources.cross, strict=True)},
            **dict(zip(self.graph.pasts, self.past, strict=True)),
        }
        found = self.session.run([*outputs, *self.graph.presents], feeds)
        self.past = list(found[len(outputs) :])
        self.length += 1
        return list(found[: len(outputs)])

    def take(self, parents: Ints) -> None:
        """Reorder rows; see :class:`Past`."""
        if not np.array_equal(parents, np.arange(len(self.past[0]))):
            self.past = [part[parents] for part in self.past]


class SharedPast:
    """For graphs that write into the buffers that they read from: ``rows`` of them, for ``most`` tokens at most.

    ``table`` says in which row of them each token of a row is, and is all that changes when rows are reordered or
    repeated. When rows are dropped, the graph gets the first ones of the buffers only, and what others still hold moves
    there. Room for tokens is doubled whenever it is used up.
    """

    def __init__(self, graph: Seq2SeqGraph, session: Runnable, rows: int, capacity: int, most: int) -> None:
        self.graph, self.session, self.most = graph, session, most
        self.length = self.rows = 0  # the rows that the graph got last
        self.position = np.zeros(1, np.int64)
        self.numbers = np.arange(rows)
        self.make(min(capacity, most))

    def make(self, capacity: int) -> None:
        """Make room for so many tokens."""
        shape = (len(self.graph.pasts), len(self.numbers), self.graph.num_heads, capacity, self.graph.head_dim)
        self.buffers = np.empty(shape, self.graph.dtype)  # touched as far as it is used
        self.table = np.zeros((1, len(self.numbers), capacity), np.int32)
        self.steps: dict[tuple[int, ...], Step] = {}

    def grow(self) -> None:
        """Make more room."""
        buffers, table = self.buffers, self.table
        self.make(min(2 * self.length, self.most))
        self.buffers[:, :, :, : self.length], self.table[:, :, : self.length] = buffers, table

    def run(self, ids: Ints, sources: SourceCache, outputs: Sequence[str], best: int = 1) -> Outputs:
        """Append tokens; see :class:`Past`."""
        if self.length == self.table.shape[2]:
            self.grow()
        rows = len(ids)
        key = (rows, sources.count, len(outputs), best)
        if key not in self.steps:
            self.steps[key] = Step(self, rows, sources, outputs, best)
        step = self.steps[key]
        step.ids[:, 0] = ids
        self.position[0] = self.length
        step.binding.run()
        self.table[0, :rows, self.length] = self.numbers[:rows]
        self.length, self.rows = self.length + 1, rows
        return step.outputs

    def take(self, parents: Ints) -> None:
        """Reorder rows; see :class:`Past`."""
        rows = len(parents)
        if not np.array_equal(parents, self.numbers[:rows]):
            self.table[0, :rows, : self.length] = self.table[0, parents, : self.length]
        if rows < self.rows:
            self.move(self.table[0, :rows, : self.length])

    def move(self, table: NDArray[np.int32]) -> None:
        """Move tokens that are in other rows than the first ones (rows, length), which have room for all of them."""
        rows = len(table)
        moves: list[tuple[int, int, int]] = []  # from a row to another, at a position
        for position in np.flatnonzero((table >= rows).any(0)).tolist():
            used, places = np.unique(table[:, position], return_inverse=True)
            far = used[used >= rows]
            free = np.setdiff1d(self.numbers[:rows], used)[: len(far)]
            moves += zip(far.tolist(), free.tolist(), [position] * len(far), strict=True)
            used[used >= rows] = free
            table[:, position] = used[places]
        if moves:
            old, new, positions = np.array(moves).T
            self.buffers[:, new, :, positions] = self.buffers[:, old, :, positions]


class Step:
    """The arrays of a step over the first ``rows`` rows, bound once."""

    def __init__(self, past: SharedPast, rows: int, sources: SourceCache, outputs: Sequence[str], best: int) -> None:
        graph = past.graph
        self.ids = np.zeros((rows, 1), np.int64)
        self.outputs = [graph.empty(name, rows, best) for name in outputs]
        self.binding = bind_to(past.session)
        read = {
            "input_ids": self.ids,
            "position": past.position,
            "encoder_attention_mask": sources.mask[: sources.count],
            "top_k": np.array([best]),
            TABLE: past.table[:, :rows],
            **{name: part[: sources.count] for name, part in zip(graph.crosses, sources.cross, strict=True)},
        }
        for name, array in read.items():
            self.binding.bind(array, read=name)
        for buffer, name, written in zip(past.buffers, graph.pasts, graph.presents, strict=True):
            self.binding.bind(buffer[:rows], read=name, written=written)
        for array, name in zip(self.outputs, outputs, strict=True):
            self.binding.bind(array, written=name)
