"""The two ways in which graphs keep a KV cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.decoders.causal_signature import CausalSignature
from edgebert_runtime.session.io_binding import bind
from edgebert_runtime.session.session import Runnable

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Outputs = list[NDArray[Any]]


class ConcatPast:
    """The KV cache of a graph that returns it with new tokens appended."""

    def __init__(self, signature: CausalSignature, session: Runnable) -> None:
        self.signature, self.session = signature, session
        self.past: list[Floats] = []

    def start(self, rows: int) -> None:
        """Start with ``rows`` rows of no tokens."""
        shape = (rows, self.signature.num_heads, 0, self.signature.head_dim)
        self.past = [np.zeros(shape, self.signature.dtype)] * len(self.signature.past_names)

    def append(self, feeds: Mapping[str, NDArray[Any]], outputs: Sequence[str]) -> Outputs:
        """Run the graph over new tokens, keep the longer past, and return the ``outputs`` named."""
        past = dict(zip(self.signature.past_names, self.past, strict=True))
        results = self.session.run([*outputs, *self.signature.present_names], {**feeds, **past})
        self.past = list(results[len(outputs) :])
        return list(results[: len(outputs)])


class BoundStep:
    """A step of a graph that writes its KV cache in place, bound once.

    ``inputs`` change by their contents only. ``buffers`` are keys and values, one array for each name of the past.
    ``outputs`` hold until the next run.
    """

    def __init__(
        self,
        session: Runnable,
        signature: CausalSignature,
        inputs: Mapping[str, NDArray[Any]],
        buffers: Sequence[Floats],
        outputs: Sequence[str],
        size: tuple[int, int],
    ) -> None:
        rows, top_k = size
        self.input_ids = inputs["input_ids"]
        self.outputs: Outputs = signature.allocate_outputs(outputs, rows, top_k)
        self.binding = bind(
            session,
            {**inputs, "top_k": np.array([top_k]), **dict(zip(signature.past_names, buffers, strict=True))},
            {
                **dict(zip(signature.present_names, buffers, strict=True)),
                **dict(zip(outputs, self.outputs, strict=True)),
            },
        )
