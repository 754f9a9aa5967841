"""Sentence embeddings: pooling over the hidden states of an encoder."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgebert.models.bert.model import Bert
from edgebert.models.elmo.model import Elmo
from edgebert.models.mask_positions import first_rows, last_rows, masked_mean

POOLINGS = ("cls", "mean", "max", "last")


class SentenceEncoder(nn.Module):
    """An encoder with pooling to one vector per text (Reimers and Gurevych, 2019).

    ``cls`` and ``last`` take the first and the last real token, ``mean`` and ``max`` pool over all real tokens.
    ``normalize`` scales each vector to length 1. A row without real tokens gives the zero vector.
    """

    def __init__(self, encoder: Bert | Elmo, pooling: str, normalize: bool) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise ValueError(f"pooling={pooling!r} is not one of {', '.join(POOLINGS)}")
        self.add_module(type(encoder).__name__.lower(), encoder)  # under the name of its family
        self.encode = encoder.encode
        self.pooling = pooling
        self.normalize = normalize

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Map integer tensors (batch, seq) to sentence embeddings (batch, dim)."""
        vectors = self.pool(input_ids, attention_mask != 0, token_type_ids)
        if self.normalize:
            squared = (vectors[:, None] @ vectors[..., None]).squeeze(2)  # (batch, 1), each row's by itself
            vectors = vectors / squared.sqrt().clamp(min=1e-12)
        return vectors

    def pool(self, input_ids: Tensor, mask: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """Map (batch, seq) tensors, with a boolean mask, to vectors (batch, dim)."""
        if self.pooling in ("cls", "last"):
            rows = first_rows(mask) if self.pooling == "cls" else last_rows(mask)
            return self.encode(input_ids, mask, token_type_ids, rows) * mask.any(1, keepdim=True)
        hidden = self.encode(input_ids, mask, token_type_ids)
        if self.pooling == "mean":
            return masked_mean(hidden, mask)
        hidden = torch.where(mask[..., None], hidden.reshape(*mask.shape, -1), -torch.inf)  # (batch, seq, dim)
        return torch.where(mask.any(1, keepdim=True), hidden.amax(1), 0.0)
