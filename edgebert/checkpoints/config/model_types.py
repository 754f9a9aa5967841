"""The model types of config.json that are understood, and what each computes differently. Data only.

Each is a model of ``models/``, named by its family, with other numbers and under other names.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from edgebert.checkpoints.config.name_tables import (
    ALBERT_TENSORS,
    BERT_FIELDS,
    BERT_TENSORS,
    BUFFERS,
    DISTILBERT_FIELDS,
    DISTILBERT_TENSORS,
    ELECTRA_TENSORS,
    ELMO_FIELDS,
    ELMO_TENSORS,
    GPT2_BUFFERS,
    GPT2_FIELDS,
    GPT2_TENSORS,
    GPT2_TRANSPOSED,
    NARROW_FIELDS,
    OWN_FIELDS,
    SEQ2SEQ_BUFFERS,
    SEQ2SEQ_FIELDS,
    SEQ2SEQ_TENSORS,
)
from edgebert_runtime.task_specs import TRANSLATE

# Keys of any type that change what is computed, with the values under which it is what our model computes.
REQUIRED: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
    "is_encoder_decoder": (False, None),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
    "classifier_pooling": ("cls", "mean", None),
}

# Those that matter to a decoder.
DECODER_REQUIRED = {
    key: REQUIRED[key] for key in ("add_cross_attention", "is_encoder_decoder", "pruned_heads", "quantization_config")
}
# Those that matter to an encoder and a decoder together. What older files say of norms and positions follows for
# transformers, and for us, from the type alone: it must agree.
SEQ2SEQ_REQUIRED: dict[str, tuple[Any, ...]] = {
    "is_decoder": REQUIRED["is_decoder"],
    "is_encoder_decoder": (True, None),
    "pruned_heads": REQUIRED["pruned_heads"],
    "quantization_config": REQUIRED["quantization_config"],
}

BART_REQUIRED = {
    **SEQ2SEQ_REQUIRED,
    "static_position_embeddings": (False,),
    "normalize_embedding": (True,),
    "share_encoder_decoder_embeddings": (True, None),
}
BART_FIXED: dict[str, Any] = {"positions": "learned", "position_offset": 2, "embedding_norm": True}
BART_DEFAULTS: dict[str, Any] = {
    "activation_function": "gelu",
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "forced_eos_token_id": 2,
}


@dataclass(frozen=True, kw_only=True)
class ModelType:
    """How checkpoints of one model type are read.

    ``family`` names the model, and ``bare`` the task of one without a head of its own. ``prefix`` stands before the
    body's names where the model has a head. The weights of ``transposed`` modules are published as (in, out), and
    ``buffers`` are tensors that are no weights. ``keys`` take keys of config.json to fields of the configuration;
    ``defaults`` hold, by key, where the key is absent, and ``fixed``, by field, always. ``older`` are former names of
    keys, and ``multiples`` fields that are so many times another where they are absent or null. Where ``pads`` is a
    token's id, positions count from the one after the id of padding, which is ``pads`` if not given. A ``plain``
    tokenizer adds no special tokens.
    """

    family: str = "bert"
    bare: str = "embed"
    prefix: str
    tensors: dict[str, tuple[str, ...]]
    transposed: tuple[str, ...] = ()
    buffers: tuple[str, ...] = BUFFERS
    keys: dict[str, str] = field(default_factory=lambda: BERT_FIELDS)
    defaults: dict[str, Any] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    required: dict[str, tuple[Any, ...]] = field(default_factory=lambda: REQUIRED)
    older: dict[str, str] = field(default_factory=dict)
    multiples: dict[str, tuple[int, str]] = field(default_factory=dict)
    pads: int | None = None
    plain: bool = False


ROBERTA = ModelType(prefix="roberta.", tensors=BERT_TENSORS, pads=1)
# Any encoder and decoder, as they are trained here.
SEQ2SEQ = ModelType(
    family="seq2seq",
    bare=TRANSLATE,
    prefix="model.",
    tensors=SEQ2SEQ_TENSORS,
    buffers=SEQ2SEQ_BUFFERS,
    keys=OWN_FIELDS,
    required=SEQ2SEQ_REQUIRED,
)

MODEL_TYPES: dict[str, ModelType] = {
    "bert": ModelType(prefix="bert.", tensors=BERT_TENSORS),
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "distilbert": ModelType(
        prefix="distilbert.",
        tensors=DISTILBERT_TENSORS,
        keys=DISTILBERT_FIELDS,
        fixed={"type_vocab_size": 0, "layer_norm_eps": 1e-12},
    ),
    "electra": ModelType(
        prefix="electra.", tensors=ELECTRA_TENSORS, keys=NARROW_FIELDS, defaults={"embedding_size": 128}
    ),
    "albert": ModelType(
        prefix="albert.",
        tensors=ALBERT_TENSORS,
        keys=NARROW_FIELDS,
        defaults={"embedding_size": 128, "hidden_act": "gelu_new"},
        fixed={"shared_layers": True},
        required={**REQUIRED, "num_hidden_groups": (1,), "inner_group_num": (1,)},
    ),
    "gpt2": ModelType(
        family="gpt2",
        bare="generate",
        prefix="transformer.",
        tensors=GPT2_TENSORS,
        transposed=GPT2_TRANSPOSED,
        buffers=GPT2_BUFFERS,
        keys=GPT2_FIELDS,
        defaults={"bos_token_id": 50256, "eos_token_id": 50256},
        required=DECODER_REQUIRED,
        older={"n_positions": "n_ctx"},
        multiples={"intermediate_size": (4, "hidden_size")},
        plain=True,
    ),
    "marian": replace(
        SEQ2SEQ,
        keys=SEQ2SEQ_FIELDS,
        defaults={"activation_function": "gelu", "eos_token_id": 0, "forced_eos_token_id": 0},
        required={
            **SEQ2SEQ_REQUIRED,
            "static_position_embeddings": (True,),
            "normalize_before": (False,),
            "normalize_embedding": (False,),
            "add_final_layer_norm": (False,),
        },
    ),
    "bart": replace(
        SEQ2SEQ,
        keys=SEQ2SEQ_FIELDS,
        defaults={**BART_DEFAULTS, "decoder_start_token_id": 2},
        fixed=BART_FIXED,
        required={**BART_REQUIRED, "normalize_before": (False,), "add_final_layer_norm": (False,)},
    ),
    "mbart": replace(
        SEQ2SEQ,
        keys=SEQ2SEQ_FIELDS,
        defaults=BART_DEFAULTS,
        fixed={**BART_FIXED, "norm": "pre", "final_norm": True},
        required={**BART_REQUIRED, "normalize_before": (True,), "add_final_layer_norm": (True,)},
    ),
    "seq2seq": SEQ2SEQ,
    "elmo": ModelType(family="elmo", prefix="elmo.", tensors=ELMO_TENSORS, buffers=(), keys=ELMO_FIELDS),
}

# The types without a linear layer between embeddings and encoder where both have the same width.
PROJECT_IF_NARROWER = ("electra",)
