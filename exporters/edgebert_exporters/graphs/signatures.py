"""Signatures: the inputs and outputs of each graph. Data only."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from edgebert.models.kernel_limits import padded_head_dim
from edgebert_runtime.bundle.manifest import TensorSpec
from edgebert_runtime.decoders.causal_signature import PAST, PRESENT
from edgebert_runtime.decoders.seq2seq_signature import CROSS, TABLE
from edgebert_runtime.task_specs import TASKS, WIDTH

if TYPE_CHECKING:
    from edgebert.models.seq2seq.config import Seq2SeqConfig  # which imports torch

log = logging.getLogger("edgebert")
T = TypeVar("T")


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs of one graph. Named dimensions are dynamic; the same name is the same size."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def input_names(self) -> tuple[str, ...]:
        """Return the names of the inputs, in their order."""
        return tuple(spec.name for spec in self.inputs)


TEXTS = ("batch",)
TOKENS = ("batch", "sequence")
CHOSEN = ("rows",)

ENCODER_INPUTS = (TensorSpec("input_ids", "int64", TOKENS), TensorSpec("attention_mask", "int64", TOKENS))
# Models with at least two kinds of segments have these.
SEGMENT_INPUTS = (TensorSpec("token_type_ids", "int64", TOKENS),)
# Models that leave prompts out of the pooling: 0 at tokens that are read and not pooled.
POOLING_INPUTS = (TensorSpec("pooling_mask", "int64", TOKENS),)
# Indices are row * sequence + position: rows with any number of chosen tokens share a batch.
CHOSEN_INPUTS = (TensorSpec("logits_indices", "int64", CHOSEN),)
# The number of most likely tokens to return, and their ids and log-probabilities, best first.
BEST_INPUTS = (TensorSpec("top_k", "int64", (1,)),)
BEST = ("rows", "best")
BEST_OUTPUTS = (TensorSpec("top_ids", "int64", BEST), TensorSpec("top_logprobs", "float32", BEST))

ENCODER_TASKS = tuple(name for name, spec in TASKS.items() if spec.kind == "encoder")
# Inputs that are pairs of key and value per layer, and the arguments of a module that take all of them.
PAIRS = {PAST: "past", CROSS: "cross"}


def encoder_signature(task: str, width: int, type_vocab_size: int, pools_prompts: bool = True) -> Signature:
    """Return the signature of an encoder for ``task`` with outputs of ``width``."""
    inputs = ENCODER_INPUTS + (SEGMENT_INPUTS if type_vocab_size > 1 else ())
    inputs += () if pools_prompts else POOLING_INPUTS
    outputs = tuple(
        TensorSpec(name, "float32", tuple(width if d == WIDTH else d for d in dimensions))
        for name, dimensions in TASKS[task].outputs.items()
    )
    return Signature(inputs + (CHOSEN_INPUTS if TASKS[task].reads_chosen_tokens else ()), outputs)


def decoder_signature(target: str, vocab_size: int, layers: int, heads: int, head_dim: int) -> Signature:
    """Return the signature of a decoder: one graph for prefill and for every token after it.

    ``attention_mask`` covers the past and the new tokens; 0 is padding. The last ``sequence`` columns are new. Keys and
    values are (batch, heads, columns, head_dim). The targets pass the KV cache on in two ways:

    ``portable``
        A column of the cache is a column of the mask, padding included, which may stand anywhere. ``present`` is the
        past with the new columns behind it. The past may have length 0.
    ``cpu``
        Past and present have the same length ``max_sequence``, at least ``total_sequence``, so that both can be one
        buffer. The tokens of a row lie in it without gaps from the start: a new token goes behind the last one,
        whatever its column. Three kinds of calls are possible: prompts without a past, padded on the right, each with
        one token at least; one new token per row after pasts of any lengths; several new tokens, none of them padding,
        for a batch of one row. Heads have the width that the kernel takes, zeros behind their own.
    """
    total, old, new = "total_sequence", "past_sequence", "total_sequence"
    if target == "cpu":
        old = new = "max_sequence"
        if (padded := padded_head_dim(head_dim)) != head_dim:
            log.info("heads %d wide are padded to %d with zeros, as GroupQueryAttention wants", head_dim, padded)
        head_dim = padded
    names = [f"{layer}.{part}" for layer in range(layers) for part in ("key", "value")]
    shape: tuple[tuple[int | str, ...], ...] = ((*TEXTS, heads, old, head_dim), (*TEXTS, heads, new, head_dim))
    inputs = (ENCODER_INPUTS[0], TensorSpec("attention_mask", "int64", (*TEXTS, total)), *CHOSEN_INPUTS, *BEST_INPUTS)
    outputs = (TensorSpec("logits", "float32", (*CHOSEN, vocab_size)), *BEST_OUTPUTS)
    return Signature(
        inputs + tuple(TensorSpec(f"{PAST}.{name}", "float32", shape[0]) for name in names),
        outputs + tuple(TensorSpec(f"{PRESENT}.{name}", "float32", shape[1]) for name in names),
    )


def seq2seq_signatures(target: str, config: Seq2SeqConfig) -> dict[str, Signature]:
    """Return the signatures of an encoder and its decoder.

    The encoder returns cross-attention keys and values (batch, heads, sequence, head_dim) for each decoder layer. The
    decoder takes one token of each row, all at ``position``. Every source has the same number of rows, in sequence. The
    KV cache is passed on as by :func:`decoder_signature`. For ``cpu``, ``cache_indirection`` maps each earlier token
    of a row to its row of the buffers: reordering beams changes this table only.
    """
    heads, dim, layers = config.decoder_attention_heads, config.head_dim, range(config.decoder_layers)
    names = [f"{layer}.{part}" for layer in layers for part in ("key", "value")]
    old, new = ("max_sequence", "max_sequence") if target == "cpu" else ("past_sequence", "total_sequence")

    def each(prefix: str, *shape: int | str) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(f"{prefix}.{name}", "float32", shape) for name in names)

    table = (TensorSpec(TABLE, "int32", (1, "rows", old)),) if target == "cpu" else ()
    steps = (
        TensorSpec("input_ids", "int64", ("rows", 1)),
        TensorSpec("position", "int64", (1,)),
        TensorSpec("encoder_attention_mask", "int64", ("prompts", "source")),
        *BEST_INPUTS,
    )
    logits = TensorSpec("logits", "float32", (*CHOSEN, config.target_vocab_size))
    return {
        "encoder": Signature(ENCODER_INPUTS, each(CROSS, *TEXTS, heads, "sequence", dim)),
        "decoder": Signature(
            (*steps, *each(CROSS, "prompts", heads, "source", dim), *each(PAST, "rows", heads, old, dim), *table),
            (logits, *BEST_OUTPUTS, *each(PRESENT, "rows", heads, new, dim)),
        ),
    }


def forced_signature(vocab_size: int) -> Signature:
    """Return the signature of encoder and decoder together under teacher forcing.

    ``logits_indices`` count the tokens of ``decoder_input_ids``, row * target + position.
    """
    target = TensorSpec("decoder_input_ids", "int64", (*TEXTS, "target"))
    logits = TensorSpec("logits", "float32", (*CHOSEN, vocab_size))
    return Signature((*ENCODER_INPUTS, target, *CHOSEN_INPUTS, *BEST_INPUTS), (logits, *BEST_OUTPUTS))


def arguments(values: Mapping[str, T]) -> dict[str, T | list[tuple[T, T]]]:
    """Return the arguments of a module for the inputs of its graph.

    Keys and values become pairs.
    """
    grouped: dict[str, T | list[tuple[T, T]]] = {}
    for name, value in values.items():
        if (prefix := name.partition(".")[0]) not in PAIRS:
            grouped[name] = value
        elif name.endswith(".key"):
            pair = (value, values[name.removesuffix("key") + "value"])
            grouped[PAIRS[prefix]] = [*grouped.get(PAIRS[prefix], []), pair]  # type: ignore[misc]
    return grouped


def past_of(specs: Iterable[TensorSpec]) -> list[TensorSpec]:
    """Return the past among the inputs: key and value of each layer."""
    return [spec for spec in specs if spec.name.startswith(f"{PAST}.")]
