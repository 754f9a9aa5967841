"""Weight initialization."""

from __future__ import annotations

import torch
from torch import nn

# The linear layers whose outputs are added to the residual stream.
RESIDUAL_PROJECTIONS = ("attention_output", "cross_attention_output", "ffn_down")


def initialize(model: nn.Module, *, seed: int = 0, std: float = 0.02, residual_layers: int = 0) -> None:
    """Initialize ``model`` in place as BERT and GPT-2 are: weights normal, biases 0, norms 1.

    ``residual_layers`` is the depth of a pre-norm model. It divides the ``std`` of residual projections by
    sqrt(2 * depth), which keeps the variance of the residual stream (Radford et al., 2019, section 2.3).
    """
    generator = torch.Generator().manual_seed(seed)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            scaled = residual_layers and name.rpartition(".")[2] in RESIDUAL_PROJECTIONS
            width = std / (2 * residual_layers) ** 0.5 if scaled else std
            nn.init.normal_(module.weight, std=width, generator=generator)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.LayerNorm):
            module.reset_parameters()
