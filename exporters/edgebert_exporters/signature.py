"""What goes into each graph and what comes out: data, in one place."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgebert_runtime.manifest import TensorSpec


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs of one graph. A dimension given by name is dynamic; the same name is the same size."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def input_names(self) -> tuple[str, ...]:
        """Return the names of the inputs, in their order."""
        return tuple(spec.name for spec in self.inputs)


TEXTS = ("batch",)
TOKENS = ("batch", "sequence")
CHOSEN = ("rows",)
# Stands in OUTPUTS for the width of an output: numbers in a vector, labels, words of the vocabulary.
WIDTH = "width"

ENCODER_INPUTS = (TensorSpec("input_ids", "int64", TOKENS), TensorSpec("attention_mask", "int64", TOKENS))
# Models with at least two kinds of segments have these.
SEGMENT_INPUTS = (TensorSpec("token_type_ids", "int64", TOKENS),)
# Each number is row * sequence + position, so that rows with any number of tokens to read share a batch.
CHOSEN_INPUTS = (TensorSpec("logits_indices", "int64", CHOSEN),)

LOGITS = (TensorSpec("logits", "float32", (*TEXTS, WIDTH)),)
OUTPUTS = {
    "embed": (TensorSpec("sentence_embedding", "float32", (*TEXTS, WIDTH)),),
    "classify": LOGITS,
    "next-sentence": LOGITS,
    "rerank": LOGITS,
    "multiple-choice": LOGITS,
    "tag": (TensorSpec("logits", "float32", (*TOKENS, WIDTH)),),
    "answer": (TensorSpec("start_logits", "float32", TOKENS), TensorSpec("end_logits", "float32", TOKENS)),
    "fill-mask": (TensorSpec("logits", "float32", (*CHOSEN, WIDTH)),),
}
TASKS = tuple(OUTPUTS)


def encoder_signature(task: str, width: int, type_vocab_size: int) -> Signature:
    """Return the signature of an encoder for ``task`` whose outputs are ``width`` numbers wide."""
    inputs = ENCODER_INPUTS + (SEGMENT_INPUTS if type_vocab_size > 1 else ())
    outputs = tuple(
        replace(spec, shape=tuple(width if d == WIDTH else d for d in spec.shape)) for spec in OUTPUTS[task]
    )
    reads_chosen = any(CHOSEN[0] in spec.shape for spec in outputs)
    return Signature(inputs + (CHOSEN_INPUTS if reads_chosen else ()), outputs)
