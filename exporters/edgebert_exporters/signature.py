"""What goes into each graph and what comes out: data, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from edgebert_runtime.manifest import TensorSpec


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs of one graph. A dimension given by name is dynamic; the same name is the same size."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


TOKENS = ("batch", "sequence")
ENCODER_INPUTS = (
    TensorSpec("input_ids", "int64", TOKENS),
    TensorSpec("attention_mask", "int64", TOKENS),
    TensorSpec("token_type_ids", "int64", TOKENS),
)


def embed_signature(dim: int) -> Signature:
    """Return the signature of the ``embed`` task for vectors of ``dim`` numbers."""
    return Signature(ENCODER_INPUTS, (TensorSpec("sentence_embedding", "float32", ("batch", dim)),))
