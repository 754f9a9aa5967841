"""Sentence embeddings: pooling over the hidden states of an encoder."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgebert.models.bert.heads import HeadedBert
from edgebert.models.bert.model import Bert
from edgebert.models.elmo.model import Elmo
from edgebert.models.mask_positions import first_rows, last_rows, masked_mean, real_positions, weighted_mean

# Poolings of token vectors; the pooler is a layer of the model itself.
TOKEN_POOLINGS = ("cls", "mean", "max", "last", "mean_sqrt_len_tokens", "weightedmean")
POOLER = "pooler"
POOLINGS = (*TOKEN_POOLINGS, POOLER)


class SentenceEncoder(nn.Module):
    """An encoder with pooling to one vector per text (Reimers and Gurevych, 2019).

    ``cls`` and ``last`` take the first and the last real token, ``mean`` and ``max`` pool over all real tokens.
    ``mean_sqrt_len_tokens`` is their sum over the root of their number. ``weightedmean`` weighs token n by n
    (Muennighoff, 2022). ``normalize`` scales each vector to length 1. A row without real tokens gives the zero vector.
    """

    def __init__(self, encoder: Bert | Elmo, pooling: str, normalize: bool) -> None:
        super().__init__()
        if pooling not in TOKEN_POOLINGS:
            raise ValueError(f"pooling={pooling!r} is not one of {', '.join(TOKEN_POOLINGS)}")
        self.add_module(type(encoder).__name__.lower(), encoder)  # under the name of its family
        self.encode = encoder.encode
        self.pooling = pooling
        self.normalize = normalize

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        pooling_mask: Tensor | None = None,
    ) -> Tensor:
        """Map integer tensors (batch, seq) to sentence embeddings (batch, dim).

        ``pooling_mask`` is 0 at real tokens that are read and not pooled, those of a prompt.
        """
        mask = attention_mask != 0
        pooled = None if pooling_mask is None else mask & (pooling_mask != 0)
        vectors = self.pool(input_ids, mask, token_type_ids, pooled)
        return scaled(vectors) if self.normalize else vectors

    def pool(
        self, input_ids: Tensor, mask: Tensor, token_type_ids: Tensor | None, pooled: Tensor | None = None
    ) -> Tensor:
        """Map (batch, seq) tensors, with boolean masks, to vectors (batch, dim).

        ``pooled`` are the tokens of ``mask`` that are pooled, None for all. ``cls`` of a row without any takes its
        first real token, as sentence-transformers does.
        """
        real = mask
        if pooled is not None:
            mask = pooled
        if self.pooling in ("cls", "last"):
            if self.pooling == "cls" and pooled is not None:
                mask = torch.where(pooled.any(1, keepdim=True), pooled, real)
            rows = first_rows(mask) if self.pooling == "cls" else last_rows(mask)
            return self.encode(input_ids, real, token_type_ids, rows) * mask.any(1, keepdim=True)
        hidden = self.encode(input_ids, real, token_type_ids)
        if self.pooling == "mean":
            return masked_mean(hidden, mask)
        if self.pooling == "mean_sqrt_len_tokens":
            return masked_mean(hidden, mask) * mask.sum(1, keepdim=True).to(hidden.dtype).sqrt()
        if self.pooling == "weightedmean":
            return weighted_mean(hidden, (real_positions(real) + 1) * mask)
        hidden = torch.where(mask[..., None], hidden.reshape(*mask.shape, -1), -torch.inf)  # (batch, seq, dim)
        return torch.where(mask.any(1, keepdim=True), hidden.amax(1), 0.0)


class PoolerEncoder(nn.Module):
    """An encoder whose vector is its pooler's: a dense layer and tanh over the first token.

    So are the vectors of SimCSE (Gao et al., 2021). The dense layer is the head of ``model``.
    """

    def __init__(self, model: HeadedBert, normalize: bool) -> None:
        super().__init__()
        self.model = model
        self.normalize = normalize

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Map integer tensors (batch, seq) to sentence embeddings (batch, dim)."""
        dense = self.model(input_ids, attention_mask, token_type_ids)
        vectors = dense.tanh() * (attention_mask != 0).any(1, keepdim=True)
        return scaled(vectors) if self.normalize else vectors


def scaled(vectors: Tensor) -> Tensor:
    """Scale vectors (batch, dim) to length 1."""
    squared = (vectors[:, None] @ vectors[..., None]).squeeze(2)  # (batch, 1), each row's by itself
    return vectors / squared.sqrt().clamp(min=1e-12)
