"""Where the real tokens of a batch stand, and which of them a head reads.

Tokens are numbered through the whole batch, row * seq + position.
"""

from __future__ import annotations

import torch
from torch import Tensor


def real_positions(mask: Tensor) -> Tensor:
    """Return the position of each token of ``mask`` (batch, seq) among the real ones of its row, from 0."""
    return (mask.to(torch.int64).cumsum(1) - 1).clamp(min=0)


def first_rows(mask: Tensor) -> Tensor:
    """Return the number (batch,) of the first real token of each row of ``mask`` (batch, seq).

    A row without real tokens gives its first position.
    """
    batch, seq = mask.shape
    places = torch.arange(seq, device=mask.device)  # (seq,)
    first = torch.where(mask, places, seq).amin(1).clamp(max=seq - 1)  # (batch,)
    return first + torch.arange(batch, device=mask.device) * seq


def last_rows(mask: Tensor) -> Tensor:
    """Return the number (batch,) of the last real token of each row of ``mask`` (batch, seq)."""
    batch, seq = mask.shape
    places = torch.arange(seq, device=mask.device)
    return torch.where(mask, places, 0).amax(1) + torch.arange(batch, device=mask.device) * seq


def mean_of(hidden: Tensor, mask: Tensor) -> Tensor:
    """Take hidden states (batch * seq, dim) to their mean (batch, dim) over the true positions of ``mask``."""
    real = mask[..., None]  # (batch, seq, 1)
    return torch.where(real, hidden.reshape(*mask.shape, -1), 0.0).sum(1) / real.sum(1).clamp(min=1)
