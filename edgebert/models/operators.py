"""The operators that each target renders in its own way.

A reference model calls these functions as plain PyTorch. Inside :func:`rendering`, while a graph is being
exported, the same calls emit the kernels that the target is best at. What differs between targets is here and
nowhere else:

==============  ===============================  ==============================================
                ``cpu``                          ``portable``, and eager PyTorch
==============  ===============================  ==============================================
self-attention  com.microsoft Attention, which   a linear layer and the scaled dot product in
                takes in the linear layer too    standard operators
==============  ===============================  ==============================================

Padding is computed along with the rest. Taking it out of the graph was tried: it costs two copies of the activations
in every layer, more than the 3 % of padding that is left once texts are batched by length.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn
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


def self_attention(x: Tensor, qkv: nn.Linear, mask: Tensor, num_heads: int) -> Tensor:
    """Multi-head attention among the real tokens of each row (Vaswani et al., 2017, section 3.2).

    ``x`` and the result are (batch * seq, dim); ``qkv`` makes queries, keys and values, side by side; ``mask``
    (batch, seq) is true at real tokens.
    """
    batch, seq = mask.shape
    dim = x.shape[-1]
    if _target.get() == "cpu":
        padded = x.reshape(batch, seq, dim)
        # The kernel wants the weight as (in, out); the exporter turns it around once the graph is made.
        mixed = torch.onnx.ops.symbolic(
            "com.microsoft::Attention",
            (padded, qkv.weight, qkv.bias, mask.to(torch.int32)),
            attrs={"num_heads": num_heads, "mask_filter_value": MASKED},
            dtype=x.dtype,
            shape=padded.shape,
            version=1,
        )
        return mixed.reshape(batch * seq, dim)
    parts = qkv(x).reshape(batch, seq, 3 * dim).chunk(3, dim=-1)
    query, key, value = (part.reshape(batch, seq, num_heads, dim // num_heads).transpose(1, 2) for part in parts)
    bias = torch.where(mask[:, None, None, :], 0.0, MASKED)  # (batch, 1, 1, seq)
    mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)  # (batch, heads, seq, head_dim)
    return mixed.transpose(1, 2).reshape(batch * seq, dim)
