"""The keys and values of a batch of rows, and the steps of a decoder over them.

Two kinds, after the two ways in which graphs handle the past, with the same methods. Rows may have different lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.decoders.causal_signature import LOGITS, CausalGraph
from edgebert_runtime.session.io_binding import Binding
from edgebert_runtime.session.session import Runnable, Session

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Outputs = list[NDArray[Any]]


class Cache(Protocol):
    """Rows of tokens; ``lengths`` (rows,) counts those of each."""

    lengths: Ints

    def run(self, ids: Ints, counts: Ints, wanted: Ints, outputs: Sequence[str] = LOGITS, best: int = 1) -> Outputs:
        """Append the first ``counts`` (rows,) of the tokens ``ids`` (rows, seq), and return the ``outputs`` named.

        These are logits (n, vocab), or ids and log-probabilities (n, best) of the ``best`` next tokens. ``wanted``
        (n,) are the tokens that they are asked for: row * seq + position. The arrays hold until the next call.
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

    def run(self, ids: Ints, counts: Ints, wanted: Ints, outputs: Sequence[str] = LOGITS, best: int = 1) -> Outputs:
        """Append tokens; see :class:`Cache`."""
        rows, seq = ids.shape
        if not self.past:
            empty = np.zeros((rows, self.graph.num_heads, 0, self.graph.head_dim), self.graph.dtype)
            self.past, self.mask = [empty] * len(self.graph.pasts), np.zeros((rows, 0), np.int64)
            self.lengths = np.zeros(rows, np.int64)
        new = (np.arange(seq) < counts[:, None]).astype(np.int64)
        self.mask = np.concatenate([self.mask, new], 1)
        feeds = {
            "input_ids": ids,
            "attention_mask": self.mask,
            "logits_indices": wanted,
            "top_k": np.array([best]),
            **dict(zip(self.graph.pasts, self.past, strict=True)),
        }
        found = self.session.run([*outputs, *self.graph.presents], feeds)
        self.past = list(found[len(outputs) :])
        self.lengths = self.lengths + counts
        return list(found[: len(outputs)])

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
        self.buffers = np.empty((len(graph.pasts), rows, graph.num_heads, capacity, graph.head_dim), graph.dtype)
        self.lengths = np.zeros(0, np.int64)
        # (rows, capacity) what was written to each place: equal numbers, equal contents
        self.written = np.full((rows, capacity), -1, np.int64)
        self.writes = 0
        self.step: Step | None = None

    def start(self, prefix: Sequence[Floats], rows: int) -> None:
        """Let so many rows begin with the keys and values of a prefix."""
        length = prefix[0].shape[2]
        for buffer, part in zip(self.buffers, prefix, strict=True):
            buffer[:rows, :, :length] = part
        self.lengths = np.full(rows, length, np.int64)
        self.written[:rows, :length] = -2

    def run(self, ids: Ints, counts: Ints, wanted: Ints, outputs: Sequence[str] = LOGITS, best: int = 1) -> Outputs:
        """Append tokens; see :class:`Cache`."""
        rows, seq = ids.shape
        if not len(self.lengths):
            self.lengths = np.zeros(rows, np.int64)
        if seq == 1 and self.lengths.all():
            return self.advance(ids, outputs, best)
        self.step = None
        if rows == 1 or not self.lengths.any():
            found = self.append(slice(0, rows), ids, counts, wanted, outputs, best)
        else:  # with a past, the kernel takes several new tokens of one row at a time
            parts = []
            for row, n in enumerate(counts):
                one, own = slice(row, row + 1), wanted[wanted // seq == row] % seq
                parts.append(self.append(one, ids[one, :n], counts[one], own, outputs, best))
            found = [np.concatenate(part) for part in zip(*parts, strict=True)]
        for row, (length, count) in enumerate(zip(self.lengths.tolist(), counts.tolist(), strict=True)):
            self.note(slice(row, row + 1), slice(length, length + count))
        self.lengths = self.lengths + counts
        return found

    def note(self, rows: slice | Ints, columns: slice | Ints) -> None:
        """Note that something new was written to some places."""
        places = self.written[rows, columns]
        self.written[rows, columns] = self.writes + np.arange(places.size).reshape(places.shape)
        self.writes += places.size

    def append(self, rows: slice, ids: Ints, counts: Ints, wanted: Ints, outputs: Sequence[str], best: int) -> Outputs:
        """Append to some of the rows, which are equally long, and return the outputs that are ``wanted`` of them."""
        past, seq = int(self.lengths[rows.start]), ids.shape[1]
        mask = np.ones((len(ids), past + seq), np.int64)
        mask[:, past:] = np.arange(seq) < counts[:, None]
        binding, found = self.bind(rows, np.ascontiguousarray(ids), mask, wanted, outputs, best)
        binding.run()
        return found

    def advance(self, ids: Ints, outputs: Sequence[str], best: int) -> Outputs:
        """Append one token to every row, and return what is asked for of what follows."""
        key = (len(ids), len(outputs), best)
        if self.step is None or self.step.key != key:
            self.step = Step(self, key, outputs)
        step = self.step
        step.ids[:] = ids
        step.mask[:] = np.arange(step.mask.shape[1]) <= self.lengths[:, None]
        step.binding.run()
        self.note(np.arange(len(ids)), self.lengths)
        self.lengths = self.lengths + 1
        return step.found

    def bind(
        self, rows: slice, ids: Ints, mask: Ints, wanted: Ints, outputs: Sequence[str], best: int
    ) -> tuple[Binding, Outputs]:
        """Bind the graph to some of the rows, and to arrays for its outputs."""
        binding = Binding(self.session)
        inputs = {"input_ids": ids, "attention_mask": mask, "logits_indices": wanted, "top_k": np.array([best])}
        for name, array in inputs.items():
            binding.bind(array, read=name)
        for buffer, past, present in zip(self.buffers, self.graph.pasts, self.graph.presents, strict=True):
            binding.bind(buffer[rows], read=past, written=present)
        found = [self.graph.empty(name, len(wanted), best) for name in outputs]
        for name, array in zip(outputs, found, strict=True):
            binding.bind(array, written=name)
        return binding, found

    def take(self, parents: Ints) -> None:
        """Reorder rows, copying what differs; see :class:`Cache`.

        Beams have a past in common, so that it is often only the last tokens.
        """
        copies = []
        for row in np.flatnonzero(parents != np.arange(len(parents))).tolist():
            parent = parents[row]
            length = int(self.lengths[parent])
            differ = self.written[row, :length] != self.written[parent, :length]
            columns = slice(int(differ.argmax()) if differ.any() else length, length)
            copies.append((row, columns, self.buffers[:, parent, :, columns].copy()))
        for row, columns, contents in copies:  # only now: a row may be both read and written
            self.buffers[:, row, :, columns] = contents
        self.lengths = self.lengths[parents]
        self.written[: len(parents)] = self.written[parents]

    def keep(self, length: int) -> None:
        """Shorten the only row; see :class:`Cache`."""
        self.lengths[:] = length

    def prefix(self) -> list[Floats]:
        """Return copies of the only row."""
        return [buffer[:1, :, : int(self.lengths[0])].copy() for buffer in self.buffers]


class Step:
    """The arrays of a step in which every row gets one token, bound once."""

    def __init__(self, cache: SharedCache, key: tuple[int, int, int], outputs: Sequence[str]) -> None:
        self.key = key
        rows, _, best = key
        self.ids = np.zeros((rows, 1), np.int64)
        self.mask = np.zeros((rows, cache.buffers.shape[3]), np.int64)
        self.binding, self.found = cache.bind(slice(0, rows), self.ids, self.mask, np.arange(rows), outputs, best)
