"""The keys and values of a batch of rows, and the steps of a decoder over them.

Two kinds, after the two ways in which graphs handle the past, with the same methods. Rows may have different lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.binding import Binding
from edgebert_runtime.causal_graph import CausalGraph
from edgebert_runtime.session import Runnable, Session

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Cache(Protocol):
    """Rows of tokens; ``lengths`` (rows,) counts those of each."""

    lengths: Ints

    def run(self, ids: Ints, counts: Ints, wanted: Ints) -> Floats:
        """Append the first ``counts`` (rows,) of the tokens ``ids`` (rows, seq), and return logits (n, vocab).

        ``wanted`` (n,) are the tokens whose logits are asked for: row * seq + position.
        """

    def take(self, parents: Ints) -> None:
        """Let row i be what row ``parents[i]`` was."""

    def keep(self, length: int) -> None:
        """Forget what comes after the first ``length`` tokens of the only row."""

    def prefix(self) -> list[Floats]:
        """Return copies of the keys and values (1, heads, length, head_dim) of the only row."""

    def start(self, prefix: Sequence[Floats], rows: int) -> None:
        """Let so many rows begin with the keys and values of a prefix."""


class GrowingCache:
    """For graphs that return the past with the new tokens appended."""

    def __init__(self, graph: CausalGraph, session: Runnable) -> None:
        self.graph, self.session = graph, session
        self.lengths = np.zeros(0, np.int64)
        self.mask = np.zeros((0, 0), np.int64)
        self.past: list[Floats] = []

    def start(self, prefix: Sequence[Floats], rows: int) -> None:
        """Let so many rows begin with the keys and values of a prefix."""
        self.past = [np.repeat(part, rows, 0) for part in prefix]
        self.mask = np.ones((rows, self.past[0].shape[2]), np.int64)
        self.lengths = self.mask.sum(1)

    def run(self, ids: Ints, counts: Ints, wanted: Ints) -> Floats:
        """Append tokens; see :class:`Cache`."""
        rows, seq = ids.shape
        if not self.past:
            empty = np.zeros((rows, self.graph.num_heads, 0, self.graph.head_dim), np.float32)
            self.past, self.mask = [empty] * len(self.graph.pasts), np.zeros((rows, 0), np.int64)
            self.lengths = np.zeros(rows, np.int64)
        new = (np.arange(seq) < counts[:, None]).astype(np.int64)
        self.mask = np.concatenate([self.mask, new], 1)
        feeds = {"input_ids": ids, "attention_mask": self.mask, "logits_indices": wanted}
        outputs = self.session.run(
            ["logits", *self.graph.presents], {**feeds, **dict(zip(self.graph.pasts, self.past, strict=True))}
        )
        self.past = list(outputs[1:])
        self.lengths = self.lengths + counts
        return outputs[0]

    def take(self, parents: Ints) -> None:
        """Reorder rows; see :class:`Cache`."""
        if not np.array_equal(parents, np.arange(len(self.lengths))):
            self.past = [part[parents] for part in self.past]
            self.mask, self.lengths = self.mask[parents], self.lengths[parents]

    def keep(self, length: int) -> None:
        """Shorten the only row; see :class:`Cache`."""
        columns = int(np.searchsorted(np.cumsum(self.mask[0]), length)) + 1
        self.past = [part[:, :, :columns] for part in self.past]
        self.mask = self.mask[:, :columns]
        self.lengths[:] = length

    def prefix(self) -> list[Floats]:
        """Return copies of the only row."""
        return [part[:, :, self.mask[0] == 1] for part in self.past]


class SharedCache:
    """For graphs that write into the buffers that they read from: ``rows`` of them with room for ``capacity`` tokens.

    Rows that go on with one token each, by far the most frequent step, stay bound to the same arrays from one step
    to the next; only numbers in them change.
    """

    def __init__(self, graph: CausalGraph, session: Session, rows: int, capacity: int) -> None:
        self.graph, self.session = graph, session
        # (keys and values of all layers, rows, heads, capacity, head_dim), touched as far as it is used
        self.buffers = np.empty((len(graph.pasts), rows, graph.num_heads, capacity, graph.head_dim), np.float32)
        self.lengths = np.zeros(0, np.int64)
        self.origins = np.zeros(0, np.int64)  # rows with the same origin have the same first tokens, so many:
        self.common = np.zeros(0, np.int64)
        self.step: Step | None = None

    def start(self, prefix: Sequence[Floats], rows: int) -> None:
        """Let so many rows begin with the keys and values of a prefix."""
        length = prefix[0].shape[2]
        for buffer, part in zip(self.buffers, prefix, strict=True):
            buffer[:rows, :, :length] = part
        self.lengths, self.common = np.full(rows, length, np.int64), np.full(rows, length, np.int64)
        self.origins = np.arange(rows)

    def run(self, ids: Ints, counts: Ints, wanted: Ints) -> Floats:
        """Append tokens; see :class:`Cache`."""
        rows, seq = ids.shape
        if not len(self.lengths):
            self.lengths = np.zeros(rows, np.int64)
        if seq == 1 and self.lengths.all():
            return self.advance(ids)
        self.step = None
        if rows == 1 or not self.lengths.any():
            logits = self.append(0, ids, counts, wanted)
        else:  # with a past, the kernel takes several new tokens of one row at a time
            parts = [wanted[wanted // seq == row] % seq for row in range(rows)]
            logits = np.concatenate(
                [
                    self.append(row, ids[row : row + 1, :n], counts[row : row + 1], parts[row])
                    for row, n in enumerate(counts)
                ]
            )
        self.lengths = self.lengths + counts
        self.origins, self.common = np.arange(rows), self.lengths.copy()
        return logits

    def append(self, first: int, ids: Ints, counts: Ints, wanted: Ints) -> Floats:
        """Append to the rows from ``first`` on, and return the logits that are ``wanted`` of them."""
        rows, seq = ids.shape
        past = int(self.lengths[first])
        mask = np.ones((rows, past + seq), np.int64)
        mask[:, past:] = np.arange(seq) < counts[:, None]
        logits = np.empty((len(wanted), self.graph.vocab_size), np.float32)
        self.bind(slice(first, first + rows), np.ascontiguousarray(ids), mask, wanted, logits).run()
        return logits

    def advance(self, ids: Ints) -> Floats:
        """Append one token to every row, and return the logits (rows, vocab) that follow."""
        rows = len(ids)
        if self.step is None or len(self.step.ids) != rows:
            self.step = Step(self, rows)
        step = self.step
        step.ids[:] = ids
        step.mask[:] = np.arange(step.mask.shape[1]) <= self.lengths[:, None]
        step.binding.run()
        self.lengths = self.lengths + 1
        return step.logits

    def bind(self, rows: slice, ids: Ints, mask: Ints, wanted: Ints, logits: Floats) -> Binding:
        """Bind the graph to some of the rows."""
        binding = Binding(self.session)
        for array, name in ((ids, "input_ids"), (mask, "attention_mask"), (wanted, "logits_indices")):
            binding.bind(array, read=name)
        for buffer, past, present in zip(self.buffers, self.graph.pasts, self.graph.presents, strict=True):
            binding.bind(buffer[rows], read=past, written=present)
        binding.bind(logits, written="logits")
        return binding

    def take(self, parents: Ints) -> None:
        """Reorder rows, copying those that move; see :class:`Cache`."""
        moved = np.flatnonzero(parents != np.arange(len(parents)))
        known = moved[moved < len(self.lengths)]
        alike = known[self.origins[known] == self.origins[parents[known]]]
        # Rows of one prompt, such as its beams, have the prompt in common and differ behind it.
        start = int(self.common[self.origins[parents[alike]]].min(initial=1 << 62))
        copies = [self.copied(alike, parents[alike], start)]
        strange = np.setdiff1d(moved, alike)
        copies.append(self.copied(strange, parents[strange], 0))
        for rows, columns, contents in copies:  # only now: a row may be both read and written
            self.buffers[:, rows, :, columns] = contents
        self.lengths, self.origins = self.lengths[parents], self.origins[parents]

    def copied(self, rows: Ints, sources: Ints, start: int) -> tuple[Ints, slice, Floats]:
        """Return what ``rows`` are to hold from the token ``start`` on, which ``sources`` hold now."""
        columns = slice(start, int(self.lengths[sources].max(initial=0)))
        return rows, columns, self.buffers[:, sources, :, columns]

    def keep(self, length: int) -> None:
        """Shorten the only row; see :class:`Cache`."""
        self.lengths[:] = length

    def prefix(self) -> list[Floats]:
        """Return copies of the only row."""
        return [buffer[:1, :, : int(self.lengths[0])].copy() for buffer in self.buffers]


class Step:
    """The arrays of a step in which every row gets one token, bound once."""

    def __init__(self, cache: SharedCache, rows: int) -> None:
        capacity = cache.buffers.shape[3]
        self.ids = np.zeros((rows, 1), np.int64)
        self.mask = np.zeros((rows, capacity), np.int64)
        self.logits = np.empty((rows, cache.graph.vocab_size), np.float32)
        self.binding = cache.bind(slice(0, rows), self.ids, self.mask, np.arange(rows), self.logits)
