"""The form of a family's tables: names of tensors, keys of config.json and heads of published checkpoints.

Each family fills them in its own ``checkpoint_names.py``. Data only.

A row of a tensor table names the published tensors that make one of ours. Several are stacked along the output axis,
in the order given. A row holds for the ``weight`` and the ``bias`` of a module; ``{}`` is the number of a layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# The activation of config.json, in the place of a name.
HIDDEN_ACT = "hidden_act"

# Keys that change the result of an encoder, with the values that our models compute.
REQUIRED: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
    "is_encoder_decoder": (False, None),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
    "classifier_pooling": ("cls", "mean", None),
}


@dataclass(frozen=True)
class HeadNames:
    """The modules of a published head, without the prefix of the model.

    Attributes:
        reads: The hidden states that it reads (see :class:`~edgebert.models.bert.heads.HeadConfig`).
        out: The last linear layer.
        dense: The linear layer before it.
        activation: The activation after ``dense``.
        norm: The layer norm after ``activation``.
        bias: Whether ``out`` has a bias.
        vocabulary: Whether ``out`` gives logits of tokens. It is tied to the token embedding unless
            ``tie_word_embeddings`` is false.
        biases: The names that the bias of a vocabulary layer has had.
        binary: Whether one number x stands for the two outputs 0 and x.
        spans: Whether the two outputs are start and end.
        required: Keys of config.json with the values that our head computes.
    """

    reads: str
    out: str
    dense: str | None = None
    activation: str | None = None
    norm: str | None = None
    bias: bool = True
    vocabulary: bool = False
    biases: tuple[str, ...] = ()
    binary: bool = False
    spans: bool = False
    required: dict[str, tuple[Any, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ModelType:
    """How checkpoints of one ``model_type`` are read.

    Attributes:
        family: The folder of ``edgebert.models``.
        headless_task: The task of a checkpoint without a head.
        prefix: The prefix of the model's tensors beside a head.
        tensors: Our modules and their published names.
        separate_tensors: The same where source and target have a token embedding each.
        transposed: Modules whose weights are published as (in, out).
        buffers: Published tensors that are no weights.
        keys: Keys of config.json and the fields of our configuration.
        legacy_keys: Keys and the names they had before.
        defaults: Values of absent keys.
        derived_sizes: Fields that default to so many times another field.
        constants: Fields that are the same in every checkpoint.
        required: Keys that change the result, with the values that our model computes.
        default_pad_id: The usual id of padding; positions count from the id after it. None: they count from 0.
        no_special_tokens: Whether the tokenizer adds no special tokens.
        projects_if_narrower: Whether embeddings of the hidden size have no projection.
        heads: The heads by task, the first that a checkpoint has being taken.
        other_heads: Modules of heads that serve none of our tasks.
        architectures: Tasks of classes whose names do not end like those of other types.
    """

    family: str = "bert"
    headless_task: str = "embed"
    prefix: str
    tensors: dict[str, tuple[str, ...]]
    separate_tensors: dict[str, tuple[str, ...]] = field(default_factory=dict)
    transposed: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    keys: dict[str, str]
    legacy_keys: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    derived_sizes: dict[str, tuple[int, str]] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    required: dict[str, tuple[Any, ...]] = field(default_factory=lambda: REQUIRED)
    default_pad_id: int | None = None
    no_special_tokens: bool = False
    projects_if_narrower: bool = False
    heads: dict[str, tuple[HeadNames, ...]] = field(default_factory=dict)
    other_heads: tuple[str, ...] = ()
    architectures: dict[str, str] = field(default_factory=dict)


def by_task(**heads: HeadNames | tuple[HeadNames, ...]) -> dict[str, tuple[HeadNames, ...]]:
    """Return heads under the names of their tasks, ``fill_mask`` for ``fill-mask``."""
    return {name.replace("_", "-"): names if isinstance(names, tuple) else (names,) for name, names in heads.items()}


def vocabulary_head(out: str, dense: str, activation: str, norm: str, bias: str) -> HeadNames:
    """Return a head over the vocabulary, whose bias may also be that of its last layer."""
    biases = tuple(dict.fromkeys([bias, f"{out}.bias"]))
    return HeadNames("chosen", out, dense, activation, norm, vocabulary=True, biases=biases)
