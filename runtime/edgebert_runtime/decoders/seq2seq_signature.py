"""What the graphs of an encoder and its decoder are like, read from the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgebert_runtime.bundle.manifest import GraphSpec, TensorSpec
from edgebert_runtime.decoders.causal_signature import LOGITS, PAST, PRESENT, TOP, CausalGraph
from edgebert_runtime.errors import BundleError

CROSS = "cross_key_values"
TABLE = "cache_indirection"
INPUTS = {"input_ids", "position", "encoder_attention_mask", "top_k"}


@dataclass(frozen=True)
class Seq2SeqGraph(CausalGraph):
    """The same of a decoder that reads a source as well, whose keys and values the encoder computes: ``crosses``.

    With ``shared`` buffers a table says in which row of them the keys and values of each token are.
    """

    crosses: tuple[str, ...]

    @classmethod
    def both(cls, encoder: GraphSpec, decoder: GraphSpec) -> Seq2SeqGraph:
        """Read the signatures of both graphs.

        Raises:
            BundleError: if they are not those of an encoder and its decoder.
        """
        crosses, pasts = starting(decoder.inputs, CROSS), starting(decoder.inputs, PAST)
        names = [value.name for value in (*crosses, *pasts)]
        others = {value.name for value in decoder.inputs} - set(names)
        presents = tuple(value.name.replace(PAST, PRESENT, 1) for value in pasts)
        outputs = {value.name: value.shape for value in decoder.outputs}
        shared = TABLE in others
        if {value.name for value in encoder.inputs} != {"input_ids", "attention_mask"} or (
            {value.name for value in encoder.outputs} != {value.name for value in crosses}
        ):
            raise BundleError(f"{encoder.file} has not the inputs and outputs of an encoder; export again")
        if not pasts or others - {TABLE} != INPUTS or outputs.keys() != {*LOGITS, *TOP, *presents}:
            raise BundleError(f"{decoder.file} has not the inputs and outputs of its decoder; export again")
        (_, heads, length, dim), vocab_size = pasts[0].shape, outputs["logits"][-1]
        fixed = isinstance(heads, int) and isinstance(dim, int) and isinstance(vocab_size, int)
        shapes = {(value.shape[1], value.shape[3]) for value in (*crosses, *pasts)}
        if not fixed or len(shapes) != 1 or (outputs[presents[0]][2] == length) != shared:
            raise BundleError(f"{decoder.file} has keys and values of the shape {pasts[0].shape}; export again")
        sizes = int(heads), int(dim), int(vocab_size)
        split = len(crosses)
        return cls(*sizes, tuple(names[split:]), presents, shared, pasts[0].dtype, tuple(names[:split]))


def starting(values: Sequence[TensorSpec], name: str) -> list[TensorSpec]:
    """Return those whose names begin with ``name`` and a dot."""
    return [value for value in values if value.name.startswith(f"{name}.")]
