"""A KV cache whose rows join and leave between steps: slots over fixed buffers."""

from __future__ import annotations

import mmap
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.decoders.causal_signature import LOGITS, CausalSignature
from edgebert_runtime.decoders.kv_cache import Floats, Ints, Outputs
from edgebert_runtime.session.io_binding import Binding, CopyBinding, bind
from edgebert_runtime.session.session import Runnable

# Steps whose arrays stay bound; they differ in rows, outputs and top-k.
MAX_BOUND_STEPS = 64


class SlotCache:
    """Keys and values of ``slots`` rows of at most ``capacity`` tokens each, for graphs that write them in place.

    ``lengths`` (slots,) counts the tokens in each slot. A step continues the first slots, each at its own length.
    Memory is taken as positions are written, and given back by :meth:`release`.
    """

    def __init__(self, signature: CausalSignature, session: Runnable, slots: int, capacity: int) -> None:
        self.signature, self.session = signature, session
        self.slots, self.capacity = slots, capacity
        # (keys and values of all layers, slots, heads, capacity, head_dim)
        shape = (len(signature.past_names), slots, signature.num_heads, capacity, signature.head_dim)
        dtype = np.dtype(signature.dtype)
        self.pages = mmap.mmap(-1, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        self.buffers: Floats = np.frombuffer(self.pages, dtype).reshape(shape)
        self.lengths = np.zeros(slots, np.int64)
        self.mask = np.zeros((slots, capacity), np.int64)
        # (slots, capacity) the number of the write that filled each position: equal numbers, equal contents
        self.write_ids = np.full((slots, capacity), -1, np.int64)
        self.writes = 0
        self.ids = np.zeros((slots, 1), np.int64)
        self.logits = np.empty((slots, signature.vocab_size), np.float32)
        self.bound: OrderedDict[tuple[int, bool, int], BoundSlots] = OrderedDict()

    def append(self, slot: int, ids: Sequence[int]) -> Floats:
        """Append a chunk of a prompt to a slot, and return the logits (1, vocab) after it.

        Chunks of one token of a longer prompt are rounded differently: the graph multiplies vectors there.
        """
        start = int(self.lengths[slot])
        end = start + len(ids)
        inputs = {
            "input_ids": np.array([ids], np.int64),
            "attention_mask": np.ones((1, end), np.int64),
            "logits_indices": np.array([len(ids) - 1]),
            "top_k": np.array([1]),
        }
        (logits,) = self.signature.allocate_outputs(LOGITS, 1, 1)
        self.bind(slice(slot, slot + 1), inputs, {"logits": logits}).run()
        self.mark_written(slot, start, end)
        return logits

    def step(self, tokens: Ints, logits: bool, top_k: int) -> Outputs:
        """Append ``tokens`` (n,) to slots 0 to n - 1.

        Returns the ids and log-probabilities (n, top_k) of the next tokens if ``top_k`` is not 0, and then the logits
        (n, vocab) if ``logits``. The arrays hold until the next call.
        """
        rows = len(tokens)
        step = self.bound_step(rows, logits, top_k)
        numbers = np.arange(rows)
        self.ids[:rows, 0] = tokens
        self.mask[numbers, self.lengths[:rows]] = 1
        self.write_ids[numbers, self.lengths[:rows]] = self.writes + numbers
        self.writes += rows
        step.binding.run()
        self.lengths[:rows] += 1
        return step.outputs

    def bound_step(self, rows: int, logits: bool, top_k: int) -> BoundSlots:
        """Return the step over the first ``rows`` slots, bound to their arrays."""
        key = (rows, logits, top_k)
        if key in self.bound:
            self.bound.move_to_end(key)
            return self.bound[key]
        inputs = {
            "input_ids": self.ids[:rows],
            "attention_mask": self.mask[:rows],
            "logits_indices": np.arange(rows),
            "top_k": np.array([max(1, top_k)]),
        }
        outputs: dict[str, NDArray[Any]] = {}
        if top_k:
            outputs["top_ids"] = np.empty((rows, top_k), np.int64)
            outputs["top_logprobs"] = np.empty((rows, top_k), np.float32)
        if logits:
            outputs["logits"] = self.logits[:rows]
        self.bound[key] = BoundSlots(self.bind(slice(0, rows), inputs, outputs), list(outputs.values()))
        if len(self.bound) > MAX_BOUND_STEPS:
            self.bound.popitem(last=False)
        return self.bound[key]

    def bind(
        self, slots: slice, inputs: dict[str, NDArray[Any]], outputs: dict[str, NDArray[Any]]
    ) -> Binding | CopyBinding:
        """Bind the graph to the keys and values of some slots."""
        buffers = [buffer[slots] for buffer in self.buffers]
        past = dict(zip(self.signature.past_names, buffers, strict=True))
        present = dict(zip(self.signature.present_names, buffers, strict=True))
        return bind(self.session, {**inputs, **past}, {**present, **outputs})

    def mark_written(self, slot: int, start: int, end: int) -> None:
        """Note that positions ``start`` to ``end`` of a slot were written, and are its last."""
        self.write_ids[slot, start:end] = np.arange(self.writes, self.writes + end - start)
        self.writes += end - start
        self.mask[slot, start:end] = 1
        self.lengths[slot] = end

    def copy(self, source: int, target: int) -> None:
        """Let slot ``target`` be what slot ``source`` is. Only positions that differ are copied."""
        length = int(self.lengths[source])
        differs = self.write_ids[target, :length] != self.write_ids[source, :length]
        first = int(differs.argmax()) if differs.any() else length
        self.buffers[:, target, :, first:length] = self.buffers[:, source, :, first:length]
        self.write_ids[target] = self.write_ids[source]
        self.mask[target] = self.mask[source]
        self.lengths[target] = length

    def release(self, slot: int) -> None:
        """Empty a slot, and give its memory back where the system can."""
        self.lengths[slot] = 0
        self.mask[slot] = 0
        self.write_ids[slot] = -1
        if hasattr(mmap, "MADV_DONTNEED"):
            layers, slots = self.buffers.shape[:2]
            size = self.buffers[0, 0].nbytes
            for layer in range(layers):
                start = (layer * slots + slot) * size
                first, last = -(-start // mmap.PAGESIZE), (start + size) // mmap.PAGESIZE
                if last > first:
                    self.pages.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE)

    def read(self, slot: int, length: int) -> Floats:
        """Return a copy of the keys and values (layers, heads, length, head_dim) of a slot's first tokens."""
        contents: Floats = self.buffers[:, slot, :, :length].copy()
        return contents

    def write(self, slot: int, contents: Floats) -> None:
        """Start an empty slot with keys and values that :meth:`read` returned."""
        length = contents.shape[2]
        self.buffers[:, slot, :, :length] = contents
        self.mark_written(slot, 0, length)


class BoundSlots(NamedTuple):
    """A step over some slots: its binding, and the arrays that it writes."""

    binding: Binding | CopyBinding
    outputs: Outputs


def chunk_size(left: int, most: int) -> int:
    """Return how many of the ``left`` tokens of a prompt to compute now: ``most``, but never leave just one.

    A chunk of one token is a matrix times a vector, which is rounded differently.
    """
    if left <= most:
        return left
    return most - 1 if left - most == 1 else most
