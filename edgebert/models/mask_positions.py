"""Where the real tokens of a batch stand, and which of them a head reads.

Tokens are numbered through the whole batch, row * seq + position.
"""

from __future__ import annotations

import torch
from torch import Tensor


def real_positions(mask: Tensor) -> Tensor:
    """Return the position of each token of ``mask`` (batch, seq) among the real ones of its row, from 0."""
    return (mask.to(torch.int64).cumsum(1) - 1).clamp(min=0)


def front_positions(mask: Tensor) -> Tensor:
    """Return where each token of ``mask`` (batch, seq) stands in its row once the real ones are brought to the front.

    Real tokens keep their order, and padding keeps its own behind them.
    """
    real = mask.to(torch.int64).cumsum(1)  # (batch, seq)
    padding = (~mask).to(torch.int64).cumsum(1)
    return torch.where(mask, real, real[:, -1:] + padding) - 1


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


def masked_mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """Take hidden states (batch * seq, dim) to their mean (batch, dim) over the true positions of ``mask``.

    All have to be finite. A product of at least two rows adds up tokens one by one, whatever the batch is and however
    far it is padded.
    """
    real = mask[:, None].to(hidden.dtype)  # (batch, 1, seq)
    total = (real.expand(-1, 2, -1) @ hidden.reshape(*mask.shape, -1))[:, 0]  # (batch, dim)
    return total / real.sum(2).clamp(min=1)
