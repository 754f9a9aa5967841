"""Validate the fields of a model configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from edgebert.models.activations import ACTIVATIONS

# Bounds of whole numbers; 1 and 1 << 24 where a field is not listed.
LIMITS = {
    "num_hidden_layers": (1, 1000),
    "hidden_size": (1, 65536),
    "intermediate_size": (1, 1 << 20),
    "encoder_layers": (1, 1000),
    "decoder_layers": (1, 1000),
    "encoder_intermediate_size": (1, 1 << 20),
    "decoder_intermediate_size": (1, 1 << 20),
    "type_vocab_size": (0, 1 << 24),
    "position_offset": (0, 1 << 24),
}


def field_problems(config: Any, limits: Mapping[str, tuple[int, int]] = LIMITS) -> list[str]:
    """Name the impossible fields of the dataclass ``config``, each with its value.

    The annotations say which fields are whole numbers or flags. ``hidden_size`` must be divisible by the heads,
    ``layer_norm_eps`` lie between 0 and 1, and ``hidden_act`` be one of the activations.
    """
    problems, names = [], {field.name for field in fields(config)}
    for field in fields(config):
        value, (low, high) = getattr(config, field.name), limits.get(field.name, (1, 1 << 24))
        whole = field.type == "int" or (field.type == "int | None" and value is not None)
        if whole and (type(value) is not int or not low <= value <= high):
            problems.append(f"{field.name}={value!r:.60} is not a whole number from {low} to {high}")
        if field.type == "bool" and type(value) is not bool:
            problems.append(f"{field.name}={value!r:.60} is neither true nor false")
    heads = [field.name for field in fields(config) if field.name.endswith("attention_heads")] if not problems else []
    problems += [
        f"hidden_size={config.hidden_size} is not divisible by {name}={getattr(config, name)}"
        for name in heads
        if config.hidden_size % getattr(config, name)
    ]
    if "layer_norm_eps" in names and not (isinstance(config.layer_norm_eps, float) and 0 < config.layer_norm_eps < 1):
        problems.append(f"layer_norm_eps={config.layer_norm_eps!r:.60} is not a number between 0 and 1")
    if "hidden_act" in names and not (isinstance(config.hidden_act, str) and config.hidden_act in ACTIVATIONS):
        problems.append(f"hidden_act={config.hidden_act!r:.60} is not one of {', '.join(ACTIVATIONS)}")
    return problems
