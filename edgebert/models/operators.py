"""Operators with an implementation for each target.

A reference model calls these functions as plain PyTorch. Inside :func:`rendering`, during export, the same calls emit
the kernels of the target. All differences between targets are here:

================  ==================================  ==============================================
                  ``cpu``                             ``portable``, and eager PyTorch
================  ==================================  ==============================================
self-attention    com.microsoft Attention, which      a linear layer and the scaled dot product in
                  takes in the linear layer too       standard operators
cached attention  com.microsoft GroupQueryAttention;  the KV cache concatenated with the new keys
                  the KV cache is a buffer of fixed   and values, and the scaled dot product in
                  length, written in place            standard operators
padding of the    right only                          anywhere
cached attention
================  ==================================  ==============================================

An LSTM is the standard operator of that name for both targets.

Padding is computed too. Removing it costs two copies of the activations per layer, more than the 3 % of padding that
is left once texts are batched by length.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

# The KV cache of a layer: keys and values, each (batch, heads, columns, head_dim).
Cache: TypeAlias = "tuple[Tensor, Tensor]"

_target: ContextVar[str | None] = ContextVar("edgebert_target", default=None)

# Added to the scores of masked keys. It stays finite in float32 with a score added, so that a row without real keys
# gives uniform weights and not NaN. Later keys are masked by -inf: a token always sees itself.
MASKED = -1e38


@contextmanager
def rendering(target: str) -> Iterator[None]:
    """Emit the operators of ``target`` (``cpu`` or ``portable``) instead of plain PyTorch while exporting."""
    token = _target.set(target)
    try:
        yield
    finally:
        _target.reset(token)


def self_attention(
    x: Tensor, qkv: nn.Linear, mask: Tensor, num_heads: int, *, causal: bool = False, scale: float | None = None
) -> Tensor:
    """Compute multi-head self-attention (Vaswani et al., 2017, section 3.2).

    ``x`` and the result are (batch * seq, dim). ``qkv`` projects to queries, keys and values, side by side. ``mask``
    (batch, seq) is true at real tokens. With ``causal`` no token sees a later one. ``scale`` of the scores defaults to
    1 / sqrt(head_dim).
    """
    batch, seq = mask.shape
    dim = x.shape[-1]
    if _target.get() == "cpu":
        padded = x.reshape(batch, seq, dim)
        attrs: dict[str, Any] = {"num_heads": num_heads, "mask_filter_value": MASKED}
        attrs |= {"unidirectional": 1} if causal else {}
        attrs |= {"scale": scale} if scale is not None else {}
        # The kernel wants the weight as (in, out); the exporter turns it around once the graph is made.
        context = torch.onnx.ops.symbolic(
            "com.microsoft::Attention",
            (padded, qkv.weight, qkv.bias, mask.to(torch.int32)),
            attrs=attrs,
            dtype=x.dtype,
            shape=padded.shape,
            version=1,
        )
        return context.reshape(batch * seq, dim)
    query, key, value = split_heads(qkv(x), batch, num_heads)
    return scaled_dot_product(query, key, value, mask, causal, scale)


def cached_attention(qkv: Tensor, mask: Tensor, past: Cache, num_heads: int, scale: float) -> tuple[Tensor, Cache]:
    """Compute causal self-attention of new tokens over a KV cache; return it with the longer cache.

    ``qkv`` (batch * seq, 3 * dim) holds queries, keys and values of the new tokens, side by side; the result is
    (batch * seq, dim). ``mask`` (batch, total) is true at real tokens; its last seq columns are the new ones. ``past``
    has total - seq columns, the returned cache total.

    For ``cpu`` the cache is one buffer of total columns or more. It holds the tokens of each row from the left, without
    gaps, and the kernel writes the new ones behind them, where the number of true columns says. New tokens may thus be
    padded on the right, and only while the cache is empty.

    A cache may be wider than a head: the numbers behind that of its own are zeros.
    """
    batch, head_dim = mask.shape[0], qkv.shape[-1] // 3 // num_heads
    padding = past[0].shape[-1] - head_dim
    qkv = pad_heads(qkv, head_dim, padding)
    if _target.get() == "cpu":
        packed = qkv.reshape(batch, -1, qkv.shape[-1])
        lengths = mask.sum(1).to(torch.int32)  # (batch,)
        total = torch.scalar_tensor(mask.shape[1], dtype=torch.int32)
        context, keys, values = torch.onnx.ops.symbolic_multi_out(
            "com.microsoft::GroupQueryAttention",
            (packed, None, None, *past, lengths - 1, total),
            attrs={"num_heads": num_heads, "kv_num_heads": num_heads, "do_rotary": 0, "scale": scale},
            dtypes=(qkv.dtype,) * 3,
            shapes=((*packed.shape[:2], packed.shape[-1] // 3), past[0].shape, past[1].shape),
            version=1,
        )
        context = context.flatten(0, 1)
    else:
        query, key, value = split_heads(qkv, batch, num_heads)
        keys, values = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        context = scaled_dot_product(query, keys, values, mask, True, scale)
    return pad_heads(context, head_dim + padding, -padding), (keys, values)


def pad_heads(x: Tensor, head_dim: int, padding: int) -> Tensor:
    """Widen each head of ``x`` (tokens, heads * ``head_dim``) by ``padding`` zeros; a negative one takes them away.

    Zeros add nothing to a product of queries and keys, and give values of zero.
    """
    if not padding:
        return x
    heads = x.reshape(-1, x.shape[-1] // head_dim, head_dim)
    return functional.pad(heads, (0, padding)).flatten(1) if padding > 0 else heads[..., :padding].flatten(1)


def step_attention(
    qkv: Tensor, position: Tensor, past: Cache, table: Tensor | None, num_heads: int
) -> tuple[Tensor, Cache]:
    """Compute self-attention of one new token per row over a KV cache; return it with the longer cache.

    All rows are at one position. ``qkv`` (rows, 3 * dim) holds query, key and value of the new tokens, side by side;
    the result is (rows, dim). ``past`` has ``position`` (1,) columns, the returned cache one more.

    For ``cpu`` the cache is one buffer of fixed length, (rows, heads, max_sequence, head_dim). ``table``
    (1, rows, max_sequence), int32, is its indirection: it maps each earlier token of a row to the row of the buffer
    that holds it. Reordering beams changes the table alone.
    """
    if _target.get() == "cpu":
        assert table is not None
        rows = qkv.shape[0]
        query, key, value = (part.unsqueeze(1) for part in qkv.chunk(3, dim=-1))  # (rows, 1, dim)
        # To the kernel, all rows are the beams of one text.
        width = torch.scalar_tensor(rows, dtype=torch.int32).reshape(1)
        context, keys, values = torch.onnx.ops.symbolic_multi_out(
            "com.microsoft::DecoderMaskedMultiHeadAttention",
            (query, key, value, None, None, *past, position.to(torch.int32), width, table),
            attrs={"num_heads": num_heads, "past_present_share_buffer": 1},
            dtypes=(qkv.dtype,) * 3,
            shapes=(query.shape, past[0].shape, past[1].shape),
            version=1,
        )
        return context.reshape(rows, -1), (keys, values)
    query, key, value = split_heads(qkv, qkv.shape[0], num_heads)
    key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
    context = functional.scaled_dot_product_attention(query, key, value)  # (rows, heads, 1, head_dim)
    return context.flatten(1), (key, value)


def cross_attention(query: Tensor, cross: Cache, mask: Tensor, num_heads: int) -> Tensor:
    """Compute cross-attention of target tokens to the source (Vaswani et al., 2017, section 3.2.3).

    ``cross`` holds keys and values of the source, (prompts, heads, source, head_dim); ``mask`` (prompts, source) is
    true at real tokens. ``query`` and the result are (tokens, dim), the same number of tokens for each prompt, beams
    and positions alike: the source is neither repeated nor reordered for them.
    """
    prompts, dim = mask.shape[0], query.shape[-1]
    if _target.get() == "cpu":
        context = torch.onnx.ops.symbolic(
            "com.microsoft::MultiHeadAttention",
            (query.reshape(prompts, -1, dim), *cross, None, mask.to(torch.int32)),
            attrs={"num_heads": num_heads, "mask_filter_value": MASKED},
            dtype=query.dtype,
            shape=query.reshape(prompts, -1, dim).shape,
            version=1,
        )
        return context.reshape(-1, dim)
    split = query.reshape(prompts, -1, num_heads, dim // num_heads).transpose(1, 2)
    return scaled_dot_product(split, *cross, mask, False, None)


def lstm(x: Tensor, lengths: Tensor, module: nn.LSTM, *, reverse: bool) -> Tensor:
    """Run an LSTM of one layer over a batch (Hochreiter and Schmidhuber, 1997).

    ``x`` is (seq, batch, dim), the result (seq, batch, hidden). The first ``lengths`` (batch,), int32, tokens of each
    row are read, at least one; ``reverse`` reads them backwards. Outputs at padding are finite and meaningless.
    """
    seq, batch, _ = x.shape
    if _target.get() is not None:
        # The exporter replaces it by the standard LSTM, which orders the weights differently.
        output = torch.onnx.ops.symbolic(
            "edgebert::LSTM",
            (x, *module.all_weights[0], lengths),
            attrs={"hidden_size": module.hidden_size, "direction": "reverse" if reverse else "forward"},
            dtype=x.dtype,
            shape=(seq, 1, batch, module.hidden_size),
            version=1,
        )
        return output.squeeze(1)
    if not reverse:
        return module(x)[0]  # type: ignore[no-any-return]
    steps = torch.arange(seq, device=x.device)[:, None]  # (seq, 1)
    mirrored = torch.where(steps < lengths, lengths - 1 - steps, steps)[..., None]  # (seq, batch, 1), its own inverse
    reversed_output: Tensor = module(x.take_along_dim(mirrored, 0))[0]
    return reversed_output.take_along_dim(mirrored, 0)


def top_k_logprobs(logits: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ids and log-probabilities of the top ``count`` (1,) tokens of ``logits`` (rows, vocab).

    Both are (rows, count), most likely first; ties go to the lower id.
    """
    logprobs = functional.log_softmax(logits, dim=-1)
    if _target.get() is not None:
        values, ids = torch.onnx.ops.symbolic_multi_out(
            "TopK",
            (logprobs, count),
            attrs={"axis": -1},
            dtypes=(logits.dtype, torch.int64),
            shapes=(logits.shape, logits.shape),  # of at most the whole vocabulary; the exporter cannot say it better
        )
        return ids, values
    values, ids = logprobs.sort(dim=-1, descending=True, stable=True)
    return ids[:, : int(count)], values[:, : int(count)]


def split_heads(qkv: Tensor, batch: int, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Split (batch * seq, 3 * dim) into queries, keys and values, each (batch, heads, seq, head_dim)."""
    dim = qkv.shape[-1] // 3
    parts = qkv.reshape(batch, -1, 3 * dim).chunk(3, dim=-1)
    query, key, value = (part.reshape(batch, -1, num_heads, dim // num_heads).transpose(1, 2) for part in parts)
    return query, key, value


def scaled_dot_product(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, causal: bool, scale: float | None
) -> Tensor:
    """Compute attention of queries (batch, heads, seq, head_dim) to seq columns or more; return (batch * seq, dim).

    Queries belong to the last columns of ``mask`` (batch, columns); with ``causal`` they see no later column.
    """
    batch, _, seq, _ = query.shape
    bias = torch.where(mask[:, None, None, :], 0.0, MASKED)  # (batch, 1, 1, columns)
    if causal:
        columns = torch.arange(key.shape[2], device=mask.device)
        visible = columns <= columns[key.shape[2] - seq :, None]  # (seq, columns)
        bias = torch.where(visible, bias, -torch.inf)  # (batch, 1, seq, columns)
    context = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scale)
    return context.transpose(1, 2).reshape(batch * seq, -1)  # from (batch, heads, seq, head_dim)
