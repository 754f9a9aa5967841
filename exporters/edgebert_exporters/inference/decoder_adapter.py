"""Run the graph of a decoder on columns: one column of the KV cache for each column of the mask.

The reference and the target ``portable`` have such a cache. For ``cpu`` the past is packed into buffers without gaps,
the graph writes into the same buffers, and the present is spread out again. This is for checking and measuring; an
engine keeps its buffers from one call to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgebert_exporters.graphs.signatures import past_of
from edgebert_runtime.bundle.manifest import TensorSpec
from edgebert_runtime.decoders.causal_signature import LOGITS, PAST, PRESENT, TOP
from edgebert_runtime.session.error_messages import explain_run
from edgebert_runtime.session.session import Runnable, import_onnxruntime

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]
ONE = np.ones(1, np.int64)


def adapt_decoder(session: Runnable, inputs: Sequence[TensorSpec]) -> ColumnCacheAdapter:
    """Return a session on columns for a graph with ``inputs``."""
    return ColumnCacheAdapter(session, past_of(inputs))


class ColumnCacheAdapter:
    """A session of a decoder on columns. Without a past it is empty."""

    def __init__(self, session: Runnable, past: Sequence[TensorSpec]) -> None:
        self.session = session
        self.past = past
        self.in_place = past[0].shape[2] == "max_sequence"

    def run(self, output_names: Sequence[str] | None, feeds: Feeds) -> list[Any]:
        """Compute outputs, all if None; the cache of padding is 0."""
        feeds = self.complete(feeds)
        if not self.in_place:
            return list(self.session.run(output_names, feeds))
        binding, others, caches = self.bind(feeds, output_names)
        self.run_bound(binding)
        outputs = {name: value.numpy() for name, value in zip(others, binding.get_outputs(), strict=False)}
        for name, value in caches.items():
            outputs[name] = spread(value.numpy(), feeds["attention_mask"])
        return [outputs[name] for name in output_names or [*others, *caches]]

    def prepared(self, feeds: Feeds) -> Callable[[], object]:
        """Return a function that runs the graph and does nothing else."""
        feeds = self.complete(feeds)
        if not self.in_place:
            return lambda: self.session.run(None, feeds)
        binding, _, _ = self.bind(feeds, None)
        return lambda: self.run_bound(binding)

    def run_bound(self, binding: Any) -> None:
        """Run the graph on bound arrays.

        Raises:
            EdgebertError: if ONNX Runtime fails.
        """
        try:
            self.inner.run_with_iobinding(binding)
        except Exception as error:  # its exceptions share no base class but this
            raise explain_run(error) from error

    @property
    def inner(self) -> Any:
        """Return the session of ONNX Runtime itself."""
        return getattr(self.session, "inner", self.session)

    def complete(self, feeds: Feeds) -> Feeds:
        """Add an empty past and ``top_k`` where they are missing.

        The past gets the dtype of the graph.
        """
        batch = len(feeds["input_ids"])
        shapes = {spec.name: (batch, int(spec.shape[1]), 0, int(spec.shape[3])) for spec in self.past}
        complete = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()} | {"top_k": ONE} | dict(feeds)
        return complete | {spec.name: complete[spec.name].astype(spec.dtype, copy=False) for spec in self.past}

    def bind(self, feeds: Feeds, output_names: Sequence[str] | None) -> tuple[Any, list[str], dict[str, Any]]:
        """Bind inputs and outputs; past and present share a buffer."""
        make, mask = import_onnxruntime().OrtValue.ortvalue_from_numpy, feeds["attention_mask"]
        binding, columns = self.inner.io_binding(), mask.shape[1]
        others = [name for name in output_names or [*LOGITS, *TOP] if not name.startswith(f"{PRESENT}.")]
        for name in others:
            binding.bind_output(name)
        caches = {}
        for spec in self.past:
            value = make(packed(feeds[spec.name], mask, columns))
            output = spec.name.replace(PAST, PRESENT, 1)
            binding.bind_ortvalue_input(spec.name, value)
            binding.bind_ortvalue_output(output, value)
            caches[output] = value
        new = feeds["input_ids"].shape[1]
        old = np.sort(mask[:, : columns - new], axis=1)[:, ::-1]  # real tokens first
        for name in ("input_ids", "logits_indices", "top_k"):
            binding.bind_ortvalue_input(name, make(np.ascontiguousarray(feeds[name])))
        binding.bind_ortvalue_input("attention_mask", make(np.concatenate([old, mask[:, columns - new :]], 1)))
        return binding, others, caches


def packed(past: Array, mask: Array, length: int) -> Array:
    """Return a cache (batch, heads, length, head_dim) with the real tokens of a past at the start of each row.

    The columns behind them must not matter, so they hold a number that would show.
    """
    batch, heads, columns, dim = past.shape
    cache = np.full((batch, heads, length, dim), 7, past.dtype)
    for row in range(batch):
        real = past[row][:, mask[row, :columns] == 1]
        cache[row, :, : real.shape[1]] = real
    return cache


def spread(cache: Array, mask: Array) -> Array:
    """Return the present (batch, heads, columns, head_dim) of a cache.

    Tokens are at their columns, with 0 elsewhere.
    """
    batch, heads, _, dim = cache.shape
    present = np.zeros((batch, heads, mask.shape[1], dim), cache.dtype)
    for row in range(batch):
        present[row][:, mask[row] == 1] = cache[row, :, : mask[row].sum()]
    return present
