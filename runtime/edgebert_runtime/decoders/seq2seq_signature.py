"""The signature of the graphs of an encoder and its decoder, read from the manifest."""

from __future__ import annotations

from dataclasses import dataclass

from edgebert_runtime.bundle.manifest import GraphSpec
from edgebert_runtime.decoders.causal_signature import LOGITS, PAST, PRESENT, TOP, CausalSignature
from edgebert_runtime.errors import BundleError

CROSS = "cross_key_values"
TABLE = "cache_indirection"
INPUTS = {"input_ids", "position", "encoder_attention_mask", "top_k"}


@dataclass(frozen=True)
class Seq2SeqSignature(CausalSignature):
    """A decoder with cross-attention.

    ``cross_names`` are the keys and values that the encoder computes. With ``in_place`` a cache-indirection table maps
    each token of a row to the row of the buffers that holds it.
    """

    cross_names: tuple[str, ...]

    @classmethod
    def from_specs(cls, encoder: GraphSpec, decoder: GraphSpec) -> Seq2SeqSignature:
        """Read the signatures of both graphs.

        Raises:
            BundleError: if they are not those of an encoder and its decoder.
        """
        crosses = [value for value in decoder.inputs if value.name.startswith(f"{CROSS}.")]
        pasts = [value for value in decoder.inputs if value.name.startswith(f"{PAST}.")]
        names = [value.name for value in (*crosses, *pasts)]
        inputs = {value.name for value in decoder.inputs} - set(names)
        presents = tuple(value.name.replace(PAST, PRESENT, 1) for value in pasts)
        outputs = {value.name: value.shape for value in decoder.outputs}
        in_place = TABLE in inputs
        if {value.name for value in encoder.inputs} != {"input_ids", "attention_mask"} or (
            {value.name for value in encoder.outputs} != {value.name for value in crosses}
        ):
            raise BundleError(f"{encoder.file} has not the inputs and outputs of an encoder; export again")
        if not pasts or inputs - {TABLE} != INPUTS or outputs.keys() != {*LOGITS, *TOP, *presents}:
            raise BundleError(f"{decoder.file} has not the inputs and outputs of its decoder; export again")
        (_, heads, length, dim), vocab_size = pasts[0].shape, outputs["logits"][-1]
        fixed = isinstance(heads, int) and isinstance(dim, int) and isinstance(vocab_size, int)
        shapes = {(value.shape[1], value.shape[3]) for value in (*crosses, *pasts)}
        if not fixed or len(shapes) != 1 or (outputs[presents[0]][2] == length) != in_place:
            raise BundleError(f"{decoder.file} has keys and values of the shape {pasts[0].shape}; export again")
        sizes = int(heads), int(dim), int(vocab_size)
        split = len(crosses)
        return cls(*sizes, tuple(names[split:]), presents, in_place, pasts[0].dtype, tuple(names[:split]))
