"""The operators that each target renders in its own way.

A reference model calls these functions as plain PyTorch. Inside :func:`rendering`, while a graph is being
exported, the same calls emit the kernels that the target is best at. What differs between targets is here and
nowhere else:

=============  ======================================  =======================================
               ``cpu``                                 ``portable``, and eager PyTorch
=============  ======================================  =======================================
padding        removed: linears see (tokens, dim)      eager: removed; portable: kept, so that
                                                       every shape follows from the inputs
attention      com.microsoft MultiHeadAttention        scaled dot product in standard operators
=============  ======================================  =======================================
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

_target: ContextVar[str | None] = ContextVar("edgebert_target", default=None)

# Added to the scores of masked keys. Finite in float32 and still finite with a score added, so that a row
# without any real key gives finite numbers (uniform weights) and not NaN.
MASKED = -1e38


@contextmanager
def rendering(target: str) -> Iterator[None]:
    """Emit the operators of ``target`` (``cpu`` or ``portable``) instead of plain PyTorch while exporting."""
    token = _target.set(target)
    try:
        yield
    finally:
        _target.reset(token)


@dataclass(frozen=True)
class Layout:
    """Where the tokens of a padded batch are computed.

    ``mask`` (batch, seq) is true at real tokens. ``kept`` (tokens, 2) holds row and column of each computed token,
    None if all are; ``place`` (batch, seq) says which computed token stands at each position (any at padding).
    """

    mask: Tensor
    kept: Tensor | None
    place: Tensor | None

    def pack(self, padded: Tensor) -> Tensor:
        """Take (batch, seq, ...) to (tokens, ...)."""
        if self.kept is None:
            return padded.flatten(0, 1)
        if _target.get() == "cpu":
            shape = [self.kept.shape[0], *padded.shape[2:]]
            return torch.onnx.ops.symbolic("GatherND", (padded, self.kept), dtype=padded.dtype, shape=shape)
        return padded[self.kept[:, 0], self.kept[:, 1]]

    def unpack(self, packed: Tensor) -> Tensor:
        """Take (tokens, dim) to (batch, seq, dim); positions of padding hold finite but meaningless numbers."""
        if self.place is None:
            return packed.reshape(*self.mask.shape, packed.shape[-1])
        return functional.embedding(self.place, packed)

    def unpack_parts(self, packed: Tensor, parts: int) -> list[Tensor]:
        """Take (tokens, parts * dim) to ``parts`` tensors (batch, seq, dim), in one copy each."""
        dim = packed.shape[-1] // parts
        if self.place is None:
            return list(packed.reshape(*self.mask.shape, parts * dim).chunk(parts, dim=-1))
        rows = packed.reshape(-1, dim)  # (tokens * parts, dim)
        return [functional.embedding(self.place * parts + part, rows) for part in range(parts)]


def lay_out(attention_mask: Tensor) -> Layout:
    """Find the tokens to compute from an attention mask (batch, seq) of 0 and 1.

    The first position of each row is always computed, so that a batch of nothing but padding is no special case.
    """
    mask = attention_mask != 0
    if _target.get() == "portable":
        return Layout(mask, None, None)
    first = torch.arange(mask.shape[1], device=mask.device) == 0
    keep = mask | first
    place = (keep.reshape(-1).to(torch.int64).cumsum(0) - 1).reshape(mask.shape)
    return Layout(mask, keep.nonzero(), place)


def attention(qkv: Tensor, layout: Layout, num_heads: int) -> Tensor:
    """Multi-head self-attention over the real tokens of each row (Vaswani et al., 2017, section 3.2).

    ``qkv`` is (tokens, 3 * dim), queries, keys and values side by side; the result is (tokens, dim).
    """
    query, key, value = layout.unpack_parts(qkv, 3)  # (batch, seq, dim) each
    if _target.get() == "cpu":
        mixed = torch.onnx.ops.symbolic(
            "com.microsoft::MultiHeadAttention",
            (query, key, value, None, layout.mask.to(torch.int32)),
            attrs={"num_heads": num_heads, "mask_filter_value": MASKED},
            dtype=query.dtype,
            shape=query.shape,
            version=1,
        )
        return layout.pack(mixed)
    batch, seq, dim = query.shape
    q, k, v = (x.reshape(batch, seq, num_heads, dim // num_heads).transpose(1, 2) for x in (query, key, value))
    bias = torch.where(layout.mask[:, None, None, :], 0.0, MASKED)  # (batch, 1, 1, seq)
    mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)  # (batch, heads, seq, head_dim)
    return layout.pack(mixed.transpose(1, 2).reshape(batch, seq, dim))
