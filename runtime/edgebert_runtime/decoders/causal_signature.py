"""What the graph of a decoder is like, read from the manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.bundle.manifest import GraphSpec
from edgebert_runtime.errors import BundleError

PAST, PRESENT = "past_key_values", "present"
# Outputs that a step asks for: the logits of all tokens, or the best tokens that the graph chooses itself.
LOGITS, TOP = ("logits",), ("top_ids", "top_logprobs")


@dataclass(frozen=True)
class CausalGraph:
    """The sizes of a decoder's graph, and the names of the keys and values that it remembers, in one order.

    With ``shared`` buffers the graph writes the keys and values of new tokens into the arrays that it reads those of
    the old ones from; otherwise it returns both together. ``dtype`` is what they are, float32 or float16.
    """

    num_heads: int
    head_dim: int
    vocab_size: int
    pasts: tuple[str, ...]
    presents: tuple[str, ...]
    shared: bool
    dtype: str

    @classmethod
    def of(cls, spec: GraphSpec) -> CausalGraph:
        """Read the signature of a graph.

        Raises:
            BundleError: if it is not that of a decoder.
        """
        pasts = [value for value in spec.inputs if value.name.startswith(f"{PAST}.")]
        outputs = {value.name: value.shape for value in spec.outputs}
        presents = [value.name.replace(PAST, PRESENT, 1) for value in pasts]
        others = {value.name for value in spec.inputs} - {value.name for value in pasts}
        wanted = {"input_ids", "attention_mask", "logits_indices", "top_k"}
        if not pasts or others != wanted or outputs.keys() != {*LOGITS, *TOP, *presents}:
            raise BundleError(f"{spec.file} has not the inputs and outputs of a decoder; export again")
        (_, heads, length, dim), vocab_size = pasts[0].shape, outputs["logits"][-1]
        sizes = [size for size in (heads, dim, vocab_size) if isinstance(size, int)]
        if len(sizes) != 3 or any(value.shape != pasts[0].shape for value in pasts):
            raise BundleError(f"{spec.file} has keys and values of the shape {pasts[0].shape}; export again")
        names, shared = tuple(value.name for value in pasts), outputs[presents[0]][2] == length
        return cls(sizes[0], sizes[1], sizes[2], names, tuple(presents), shared, pasts[0].dtype)

    def empty(self, output: str, rows: int, best: int) -> NDArray[Any]:
        """Return an array for an output of so many rows, where the ``best`` tokens are asked for."""
        width = self.vocab_size if output == "logits" else best
        return np.empty((rows, width), np.int64 if output == "top_ids" else np.float32)
