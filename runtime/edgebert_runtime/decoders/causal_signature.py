"""The signature of a decoder's graph, read from the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.bundle.manifest import GraphSpec
from edgebert_runtime.errors import BundleError

PAST, PRESENT = "past_key_values", "present"
# Outputs of a step: the logits of all tokens, or the top-k tokens that the graph finds itself.
LOGITS, TOP = ("logits",), ("top_ids", "top_logprobs")
INPUTS = {"input_ids", "attention_mask", "logits_indices", "top_k"}


@dataclass(frozen=True)
class CausalSignature:
    """The sizes of a decoder's graph, and the names of its KV cache.

    With ``in_place`` the graph writes new keys and values into the buffers that it reads. Without, it returns past
    and new ones together. ``dtype`` of the KV cache is float32 or float16.
    """

    num_heads: int
    head_dim: int
    vocab_size: int
    past_names: tuple[str, ...]
    present_names: tuple[str, ...]
    in_place: bool
    dtype: str

    @classmethod
    def from_spec(cls, spec: GraphSpec) -> CausalSignature:
        """Read the signature of a graph.

        Raises:
            BundleError: if it is not that of a decoder.
        """
        pasts = [value for value in spec.inputs if value.name.startswith(f"{PAST}.")]
        outputs = {value.name: value.shape for value in spec.outputs}
        presents = [value.name.replace(PAST, PRESENT, 1) for value in pasts]
        inputs = {value.name for value in spec.inputs} - {value.name for value in pasts}
        if not pasts or inputs != INPUTS or outputs.keys() != {*LOGITS, *TOP, *presents}:
            raise BundleError(f"{spec.file} has not the inputs and outputs of a decoder; export again")
        (_, heads, length, dim), vocab_size = pasts[0].shape, outputs["logits"][-1]
        sizes = [size for size in (heads, dim, vocab_size) if isinstance(size, int)]
        if len(sizes) != 3 or any(value.shape != pasts[0].shape for value in pasts):
            raise BundleError(f"{spec.file} has keys and values of the shape {pasts[0].shape}; export again")
        names, in_place = tuple(value.name for value in pasts), outputs[presents[0]][2] == length
        return cls(sizes[0], sizes[1], sizes[2], names, tuple(presents), in_place, pasts[0].dtype)

    def allocate_outputs(self, names: Sequence[str], rows: int, top_k: int) -> list[NDArray[Any]]:
        """Return an array for each output named: logits (rows, vocab), or the top-k tokens (rows, top_k)."""
        return [
            np.empty(
                (rows, self.vocab_size if name == "logits" else top_k), np.int64 if name == "top_ids" else np.float32
            )
            for name in names
        ]
