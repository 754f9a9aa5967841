"""The KV cache of a decoder: a batch of rows, which may have different lengths.

Two kinds with the same methods, one for each way in which graphs keep keys and values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from edgebert_runtime.decoders.causal_signature import LOGITS, CausalSignature
from edgebert_runtime.decoders.kv_cache import BoundStep, ConcatPast, Floats, Ints, Outputs
from edgebert_runtime.session.session import Runnable, Session


class KVCache(Protocol):
    """Keys and values of rows of tokens. ``lengths`` (rows,) counts the tokens of each."""

    lengths: Ints

    def run(
        self, ids: Ints, counts: Ints, logits_indices: Ints, outputs: Sequence[str] = LOGITS, top_k: int = 1
    ) -> Outputs:
        """Append the first ``counts`` (rows,) of the tokens ``ids`` (rows, seq), and return the ``outputs`` named.

        They are logits (n, vocab), or ids and log-probabilities (n, top_k) of the next tokens. ``logits_indices``
        (n,) say after which tokens: row * seq + position. The arrays hold until the next call.
        """

    def reorder(self, beam_indices: Ints) -> None:
        """Let row i be what row ``beam_indices[i]`` was."""

    def crop(self, length: int) -> None:
        """Forget all but the first ``length`` tokens of the only row."""

    def prefix(self) -> list[Floats]:
        """Return copies of the keys and values (1, heads, length, head_dim) of the only row."""

    def load_prefix(self, prefix: Sequence[Floats], rows: int) -> None:
        """Start ``rows`` rows with the keys and values of a prefix."""


class ConcatKVCache(ConcatPast):
    """For graphs that return the past with the new tokens appended. Rows are padded on the right."""

    def __init__(self, signature: CausalSignature, session: Runnable) -> None:
        super().__init__(signature, session)
        self.lengths = np.zeros(0, np.int64)
        self.mask = np.zeros((0, 0), np.int64)

    def load_prefix(self, prefix: Sequence[Floats], rows: int) -> None:
        """Start rows with a prefix; see :class:`KVCache`."""
        self.past = [np.repeat(part, rows, 0) for part in prefix]
        self.mask = np.ones((rows, self.past[0].shape[2]), np.int64)
        self.lengths = self.mask.sum(1)

    def run(
        self, ids: Ints, counts: Ints, logits_indices: Ints, outputs: Sequence[str] = LOGITS, top_k: int = 1
    ) -> Outputs:
        """Append tokens; see :class:`KVCache`."""
        rows, seq = ids.shape
        if not len(self.lengths):
            self.start(rows)
            self.mask, self.lengths = np.zeros((rows, 0), np.int64), np.zeros(rows, np.int64)
        new = (np.arange(seq) < counts[:, None]).astype(np.int64)
        self.mask = np.concatenate([self.mask, new], 1)
        feeds = {
            "input_ids": ids,
            "attention_mask": self.mask,
            "logits_indices": logits_indices,
            "top_k": np.array([top_k]),
        }
        results = self.append(feeds, outputs)
        self.lengths = self.lengths + counts
        return results

    def reorder(self, beam_indices: Ints) -> None:
        """Reorder rows; see :class:`KVCache`."""
        if not np.array_equal(beam_indices, np.arange(len(self.lengths))):
            self.past = [part[beam_indices] for part in self.past]
            self.mask, self.lengths = self.mask[beam_indices], self.lengths[beam_indices]

    def crop(self, length: int) -> None:
        """Shorten the only row; see :class:`KVCache`."""
        columns = int(np.searchsorted(np.cumsum(self.mask[0]), length)) + 1
        self.past = [part[:, :, :columns] for part in self.past]
        self.mask = self.mask[:, :columns]
        self.lengths[:] = length

    def prefix(self) -> list[Floats]:
        """Return copies of the only row; see :class:`KVCache`."""
        return [part[:, :, self.mask[0] == 1] for part in self.past]


class InPlaceKVCache:
    """For graphs that write keys and values into the buffers that they read.

    There are ``rows`` rows of ``capacity`` tokens. The most frequent step appends one token to each row. Its arrays
    stay bound from one step to the next, and only their contents change.
    """

    def __init__(self, signature: CausalSignature, session: Session, rows: int, capacity: int) -> None:
        self.signature, self.session = signature, session
        # (keys and values of all layers, rows, heads, capacity, head_dim); pages are touched as they are used
        shape = (len(signature.past_names), rows, signature.num_heads, capacity, signature.head_dim)
        self.buffers = np.empty(shape, signature.dtype)
        self.lengths = np.zeros(0, np.int64)
        # (rows, capacity) the number of the write that filled each position: equal numbers, equal contents
        self.write_ids = np.full((rows, capacity), -1, np.int64)
        self.writes = 0
        self.step: BoundStep | None = None
        self.step_key = (0, 0, 0)  # rows, number of outputs, top_k
        self.mask = np.zeros((0, capacity), np.int64)

    def load_prefix(self, prefix: Sequence[Floats], rows: int) -> None:
        """Start rows with a prefix; see :class:`KVCache`."""
        length = prefix[0].shape[2]
        for buffer, part in zip(self.buffers, prefix, strict=True):
            buffer[:rows, :, :length] = part
        self.lengths = np.full(rows, length, np.int64)
        self.write_ids[:rows, :length] = -2

    def run(
        self, ids: Ints, counts: Ints, logits_indices: Ints, outputs: Sequence[str] = LOGITS, top_k: int = 1
    ) -> Outputs:
        """Append tokens; see :class:`KVCache`."""
        rows, seq = ids.shape
        if not len(self.lengths):
            self.lengths = np.zeros(rows, np.int64)
        if seq == 1 and self.lengths.all():
            return self.run_step(ids, outputs, top_k)
        self.step = None
        for row, (length, count) in enumerate(zip(self.lengths.tolist(), counts.tolist(), strict=True)):
            self.mark_written(slice(row, row + 1), slice(length, length + count))
        if rows == 1 or not self.lengths.any():
            results = self.append(slice(0, rows), ids, counts, logits_indices, outputs, top_k)
        else:  # the kernel appends several tokens to a past for one row at a time only
            parts = []
            for row, count in enumerate(counts):
                only, indices = slice(row, row + 1), logits_indices[logits_indices // seq == row] % seq
                parts.append(self.append(only, ids[only, :count], counts[only], indices, outputs, top_k))
            results = [np.concatenate(part) for part in zip(*parts, strict=True)]
        self.lengths = self.lengths + counts
        return results

    def mark_written(self, rows: slice | Ints, columns: slice | Ints) -> None:
        """Give positions that are written a number that no other has."""
        positions = self.write_ids[rows, columns]
        self.write_ids[rows, columns] = self.writes + np.arange(positions.size).reshape(positions.shape)
        self.writes += positions.size

    def append(
        self, rows: slice, ids: Ints, counts: Ints, logits_indices: Ints, outputs: Sequence[str], top_k: int
    ) -> Outputs:
        """Append tokens to some of the rows, which are equally long."""
        past, seq = int(self.lengths[rows.start]), ids.shape[1]
        mask = np.ones((len(ids), past + seq), np.int64)
        mask[:, past:] = np.arange(seq) < counts[:, None]
        step = self.bind(rows, np.ascontiguousarray(ids), mask, logits_indices, outputs, top_k)
        step.binding.run()
        return step.outputs

    def run_step(self, ids: Ints, outputs: Sequence[str], top_k: int) -> Outputs:
        """Append one token to each row."""
        rows, key = len(ids), (len(ids), len(outputs), top_k)
        self.mark_written(np.arange(rows), self.lengths)
        if self.step is None or self.step_key != key:
            self.step_key, self.mask = key, np.zeros((rows, self.buffers.shape[3]), np.int64)
            self.step = self.bind(
                slice(0, rows), np.zeros((rows, 1), np.int64), self.mask, np.arange(rows), outputs, top_k
            )
        step = self.step
        step.input_ids[:] = ids
        self.mask[:] = np.arange(self.mask.shape[1]) <= self.lengths[:, None]
        step.binding.run()
        self.lengths = self.lengths + 1
        return step.outputs

    def bind(
        self, rows: slice, ids: Ints, mask: Ints, logits_indices: Ints, outputs: Sequence[str], top_k: int
    ) -> BoundStep:
        """Bind the graph to some of the rows."""
        inputs = {"input_ids": ids, "attention_mask": mask, "logits_indices": logits_indices}
        buffers = [buffer[rows] for buffer in self.buffers]
        return BoundStep(self.session, self.signature, inputs, buffers, outputs, (len(logits_indices), top_k))

    def reorder(self, beam_indices: Ints) -> None:
        """Reorder rows, copying what differs; see :class:`KVCache`.

        Beams of one prompt share most of their past, so often only the last tokens are copied.
        """
        copies = []
        for row in np.flatnonzero(beam_indices != np.arange(len(beam_indices))).tolist():
            source = beam_indices[row]
            length = int(self.lengths[source])
            differs = self.write_ids[row, :length] != self.write_ids[source, :length]
            columns = slice(int(differs.argmax()) if differs.any() else length, length)
            copies.append((row, columns, self.buffers[:, source, :, columns].copy()))
        for row, columns, contents in copies:  # only now: a row may be both read and written
            self.buffers[:, row, :, columns] = contents
        self.lengths = self.lengths[beam_indices]
        self.write_ids[: len(beam_indices)] = self.write_ids[beam_indices]

    def crop(self, length: int) -> None:
        """Shorten the only row; see :class:`KVCache`."""
        self.lengths[:] = length

    def prefix(self) -> list[Floats]:
        """Return copies of the only row; see :class:`KVCache`."""
        return [buffer[:1, :, : int(self.lengths[0])].copy() for buffer in self.buffers]
