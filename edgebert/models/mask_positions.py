"""Positions of real tokens in a padded batch, and the rows that heads read.

Tokens are numbered through the whole batch, row * seq + position.
"""

from __future__ import annotations

import torch
from torch import Tensor


def real_positions(mask: Tensor) -> Tensor:
    """Return the position of each token of ``mask`` (batch, seq), counting real tokens from 0."""
    return (mask.to(torch.int64).cumsum(1) - 1).clamp(min=0)


def front_positions(mask: Tensor) -> Tensor:
    """Return the column of each token of ``mask`` (batch, seq) after moving the padding of its row to the right.

    Real tokens and padding keep their order.
    """
    real = mask.to(torch.int64).cumsum(1)  # (batch, seq)
    padding = (~mask).to(torch.int64).cumsum(1)
    return torch.where(mask, real, real[:, -1:] + padding) - 1


def first_rows(mask: Tensor) -> Tensor:
    """Return the index (batch,) of the first real token of each row of ``mask`` (batch, seq).

    A row without real tokens gives its first column.
    """
    batch, seq = mask.shape
    places = torch.arange(seq, device=mask.device)  # (seq,)
    first = torch.where(mask, places, seq).amin(1).clamp(max=seq - 1)  # (batch,)
    return first + torch.arange(batch, device=mask.device) * seq


def last_rows(mask: Tensor) -> Tensor:
    """Return the index (batch,) of the last real token of each row of ``mask`` (batch, seq)."""
    batch, seq = mask.shape
    places = torch.arange(seq, device=mask.device)
    return torch.where(mask, places, 0).amax(1) + torch.arange(batch, device=mask.device) * seq


def masked_mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """Average hidden states (batch * seq, dim), all finite, over the true positions of ``mask``, to (batch, dim).

    A matrix product of at least two rows sums tokens in one order, whatever the batch and its padding.
    """
    real = mask[:, None].to(hidden.dtype)  # (batch, 1, seq)
    total = (real.expand(-1, 2, -1) @ hidden.reshape(*mask.shape, -1))[:, 0]  # (batch, dim)
    return total / real.sum(2).clamp(min=1)


def weighted_mean(hidden: Tensor, weights: Tensor) -> Tensor:
    """Average hidden states (batch * seq, dim), all finite, by whole ``weights`` (batch, seq), to (batch, dim).

    The sum is that of :func:`masked_mean`.
    """
    rows = weights[:, None].to(hidden.dtype)  # (batch, 1, seq)
    total = (rows.expand(-1, 2, -1) @ hidden.reshape(*weights.shape, -1))[:, 0]  # (batch, dim)
    return total / rows.sum(2).clamp(min=1)
