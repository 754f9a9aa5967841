"""Tiny GPT-2s of transformers to compare with; no two of their sizes are equal, so none can pass for another."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

SIZES: dict[str, Any] = {
    "vocab_size": 53,
    "n_embd": 24,
    "n_layer": 2,
    "n_head": 3,
    "n_inner": 40,
    "n_positions": 19,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


@lru_cache
def randomized(ending: str = "LMHeadModel", **config: Any) -> Any:
    """Return a GPT-2 of transformers with random weights, large enough for all of its parts to matter."""
    settings = transformers.GPT2Config(**{**SIZES, **config})
    model = getattr(transformers, f"GPT2{ending}")(settings).eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator) * 0.3
            parameter.copy_(noise + 1 if "ln_" in name and name.endswith("weight") else noise)
    return model


def random_ids(mask: Tensor, seed: int = 3) -> Tensor:
    """Return ids (batch, seq) that are those of padding exactly where ``mask`` is 0."""
    ids = np.random.default_rng(seed).integers(3, SIZES["vocab_size"], mask.shape)
    return torch.from_numpy(ids) * mask


def positions(mask: Tensor) -> Tensor:
    """Return the number (batch, seq) of each real token in its row, by counting one after the other."""
    counted = torch.zeros_like(mask)
    for row, real in enumerate(mask.tolist()):
        for place in range(len(real)):
            counted[row, place] = max(sum(real[: place + 1]) - 1, 0)
    return counted
