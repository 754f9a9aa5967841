"""The model types of config.json that are understood, and what each computes differently. Data only.

All are the encoder of ``models/bert.py`` with other numbers and under other names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from edgebert.weight_names import (
    ALBERT_TENSORS,
    BERT_FIELDS,
    BERT_TENSORS,
    DISTILBERT_FIELDS,
    DISTILBERT_TENSORS,
    ELECTRA_TENSORS,
    NARROW_FIELDS,
)

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


@dataclass(frozen=True, kw_only=True)
class ModelType:
    """How checkpoints of one model type are read.

    ``prefix`` stands before the encoder's names where the model has a head. ``keys`` take keys of config.json to
    fields of BertConfig; ``defaults`` hold, by key, where the key is absent, and ``fixed``, by field, always. Where
    ``pads`` is a token's id, positions count from the one after the id of padding, which is ``pads`` if not given.
    """

    prefix: str
    tensors: dict[str, tuple[str, ...]]
    keys: dict[str, str] = field(default_factory=lambda: BERT_FIELDS)
    defaults: dict[str, Any] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    required: dict[str, tuple[Any, ...]] = field(default_factory=lambda: REQUIRED)
    pads: int | None = None


ROBERTA = ModelType(prefix="roberta.", tensors=BERT_TENSORS, pads=1)

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
}

# The types without a linear layer between embeddings and encoder where both have the same width.
PROJECT_IF_NARROWER = ("electra",)
