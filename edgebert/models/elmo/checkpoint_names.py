"""The names of ELMo checkpoints, which are published under those they have here but for one. Data only."""

from __future__ import annotations

from edgebert.models.checkpoint_tables import ModelType

TENSORS: dict[str, tuple[str, ...]] = {
    "token_embedding": ("token",),
    "layers.{}.forwards": ("layers.{}.forwards",),
    "layers.{}.backwards": ("layers.{}.backwards",),
    "mix": ("mix",),
}

FIELDS: dict[str, str] = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_hidden_layers",
    "max_tokens": "max_tokens",
}

MODEL_TYPES: dict[str, ModelType] = {"elmo": ModelType(family="elmo", prefix="elmo.", tensors=TENSORS, keys=FIELDS)}
