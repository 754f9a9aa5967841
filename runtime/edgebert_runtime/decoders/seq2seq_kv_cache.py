"""The KV caches of an encoder-decoder model: cross-attention over sources, self-attention over targets.

Rows are targets, several beams of one source among them. All rows are at the same position. The rows of a source
stand together, as many for each source, and share its keys and values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.decoders.kv_cache import BoundStep, ConcatPast, Floats, Ints, Outputs
from edgebert_runtime.decoders.seq2seq_signature import TABLE, Seq2SeqSignature
from edgebert_runtime.inputs.batching import pad
from edgebert_runtime.session.io_binding import bind
from edgebert_runtime.session.session import Runnable


@dataclass
class CrossAttentionCache:
    """Keys and values of the sources of a batch, computed once by the encoder.

    ``keys_values`` (sources, heads, source, head_dim) are those of all layers. ``mask`` (sources, source) is 1 at
    real tokens. The first ``count`` sources are those whose targets go on.
    """

    keys_values: Sequence[Floats]
    mask: Ints
    count: int

    @classmethod
    def encode(
        cls, signature: Seq2SeqSignature, encoder: Runnable, sources: Sequence[Sequence[int]]
    ) -> CrossAttentionCache:
        """Run the encoder over token ids. The decoder reads the arrays that the encoder writes."""
        ids, mask = pad(sources)
        shape = (len(signature.cross_names), len(ids), signature.num_heads, ids.shape[1], signature.head_dim)
        keys_values = list(np.empty(shape, signature.dtype))
        outputs = dict(zip(signature.cross_names, keys_values, strict=True))
        bind(encoder, {"input_ids": ids, "attention_mask": mask}, outputs).run()
        return cls(keys_values, mask, len(ids))

    def select(self, sources: Ints) -> Ints:
        """Drop all sources but ``sources`` (n,), in rising order.

        The last of them move into the gaps. The numbers returned (n,) are their new ones.
        """
        self.count = len(sources)
        moved = np.flatnonzero(sources >= self.count)
        free, movers = np.setdiff1d(np.arange(self.count), sources), sources[moved]
        for part in self.keys_values:
            part[free] = part[movers]
        self.mask[free] = self.mask[movers]
        numbers: Ints = sources.copy()
        numbers[moved] = free
        return numbers

    def inputs(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return the decoder's inputs of the sources that go on.

        ``names`` are those of keys and values.
        """
        parts = (part[: self.count] for part in self.keys_values)
        return {"encoder_attention_mask": self.mask[: self.count], **dict(zip(names, parts, strict=True))}


class Seq2SeqKVCache(Protocol):
    """Keys and values of rows of target tokens, all of the same ``length``."""

    signature: Seq2SeqSignature
    length: int

    def run(self, ids: Ints, sources: CrossAttentionCache, outputs: Sequence[str], top_k: int = 1) -> Outputs:
        """Append a token to each row (rows,), and return the ``outputs`` named: logits, or the top-k tokens."""

    def reorder(self, beam_indices: Ints) -> None:
        """Let row i be what row ``beam_indices[i]`` was."""


class Seq2SeqConcatKVCache(ConcatPast):
    """For graphs that return the past with the new tokens appended."""

    signature: Seq2SeqSignature

    def __init__(self, signature: Seq2SeqSignature, session: Runnable, rows: int) -> None:
        super().__init__(signature, session)
        self.length = 0
        self.start(rows)

    def run(self, ids: Ints, sources: CrossAttentionCache, outputs: Sequence[str], top_k: int = 1) -> Outputs:
        """Append tokens; see :class:`Seq2SeqKVCache`."""
        feeds = {
            "input_ids": ids[:, None],
            "position": np.array([self.length]),
            "top_k": np.array([top_k]),
            **sources.inputs(self.signature.cross_names),
        }
        results = self.append(feeds, outputs)
        self.length += 1
        return results

    def reorder(self, beam_indices: Ints) -> None:
        """Reorder rows; see :class:`Seq2SeqKVCache`."""
        if not np.array_equal(beam_indices, np.arange(len(self.past[0]))):
            self.past = [part[beam_indices] for part in self.past]


class Seq2SeqInPlaceKVCache:
    """For graphs that write keys and values into the buffers that they read.

    There are ``rows`` rows of at most ``most`` tokens. Reordering beams copies nothing: ``table``, the cache
    indirection, maps each token of a row to the row of the buffers that holds it. When rows are dropped, the graph gets
    the first rows of the buffers only, and tokens that are elsewhere move there. The capacity doubles whenever it is
    used up.
    """

    def __init__(self, signature: Seq2SeqSignature, session: Runnable, rows: int, capacity: int, most: int) -> None:
        self.signature, self.session, self.most = signature, session, most
        self.length = self.rows = 0  # the rows that the graph got last
        self.position = np.zeros(1, np.int64)
        self.numbers = np.arange(rows)
        self.allocate(min(capacity, most))

    def allocate(self, capacity: int) -> None:
        """Make empty buffers for ``capacity`` tokens a row."""
        sizes = self.signature.num_heads, capacity, self.signature.head_dim
        shape = (len(self.signature.past_names), len(self.numbers), *sizes)
        self.buffers = np.empty(shape, self.signature.dtype)  # pages are touched as they are used
        self.table = np.zeros((1, len(self.numbers), capacity), np.int32)
        self.steps: dict[tuple[int, ...], BoundStep] = {}

    def run(self, ids: Ints, sources: CrossAttentionCache, outputs: Sequence[str], top_k: int = 1) -> Outputs:
        """Append tokens; see :class:`Seq2SeqKVCache`."""
        if self.length == self.table.shape[2]:
            shorter, table = self.buffers, self.table
            self.allocate(min(2 * self.length, self.most))
            self.buffers[:, :, :, : self.length], self.table[:, :, : self.length] = shorter, table
        rows = len(ids)
        key = (rows, sources.count, len(outputs), top_k)
        if key not in self.steps:
            inputs: dict[str, NDArray[Any]] = {
                "input_ids": np.zeros((rows, 1), np.int64),
                "position": self.position,
                TABLE: self.table[:, :rows],
                **sources.inputs(self.signature.cross_names),
            }
            buffers = [buffer[:rows] for buffer in self.buffers]
            self.steps[key] = BoundStep(self.session, self.signature, inputs, buffers, outputs, (rows, top_k))
        step = self.steps[key]
        step.input_ids[:, 0] = ids
        self.position[0] = self.length
        step.binding.run()
        self.table[0, :rows, self.length] = self.numbers[:rows]
        self.length, self.rows = self.length + 1, rows
        return step.outputs

    def reorder(self, beam_indices: Ints) -> None:
        """Reorder rows; see :class:`Seq2SeqKVCache`."""
        rows = len(beam_indices)
        if not np.array_equal(beam_indices, self.numbers[:rows]):
            self.table[0, :rows, : self.length] = self.table[0, beam_indices, : self.length]
        if rows < self.rows:
            self.compact(self.table[0, :rows, : self.length])

    def compact(self, table: NDArray[np.int32]) -> None:
        """Move the tokens of ``table`` (rows, length) into the first rows."""
        rows = len(table)
        moves: list[tuple[int, int, int]] = []  # from a row to another, at a position
        for position in np.flatnonzero((table >= rows).any(0)).tolist():
            used, indices = np.unique(table[:, position], return_inverse=True)
            far = used[used >= rows]
            free = np.setdiff1d(self.numbers[:rows], used)[: len(far)]
            moves += zip(far.tolist(), free.tolist(), [position] * len(far), strict=True)
            used[used >= rows] = free
            table[:, position] = used[indices]
        if moves:
            sources, targets, positions = np.array(moves).T
            self.buffers[:, targets, :, positions] = self.buffers[:, sources, :, positions]
