"""The weights that a model starts from."""

from __future__ import annotations

import torch
from torch import nn

# The linear layers whose results are added to the residual stream, as the reference models call them.
RESIDUAL = ("attention_output", "cross_attention_output", "ffn_down")


def initialize(model: nn.Module, *, seed: int = 0, deviation: float = 0.02, residual_layers: int = 0) -> None:
    """Draw the weights of ``model`` as BERT and GPT-2 do: normal around 0, biases 0, normalisations 1.

    With ``residual_layers``, the number of layers of a pre-norm model, what is added to the residual stream starts
    smaller, so that their sum, two for each layer, keeps its size (Radford et al., 2019, section 2.3).
    """
    generator = torch.Generator().manual_seed(seed)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            scaled = residual_layers and name.rpartition(".")[2] in RESIDUAL
            width = deviation / (2 * residual_layers) ** 0.5 if scaled else deviation
            nn.init.normal_(module.weight, std=width, generator=generator)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.LayerNorm):
            module.reset_parameters()
