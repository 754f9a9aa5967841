"""The operators that each target renders in its own way.

A reference model calls these functions as plain PyTorch. Inside :func:`rendering`, while a graph is being
exported, the same calls emit the kernels that the target is best at. What differs between targets is here and
nowhere else:

================  ==================================  ==============================================
                  ``cpu``                             ``portable``, and eager PyTorch
================  ==================================  ==============================================
self-attention    com.microsoft Attention, which      a linear layer and the scaled dot product in
                  takes in the linear layer too       standard operators
cached attention  com.microsoft GroupQueryAttention;  the new keys and values appended to those of
                  past and present are one buffer of  the past, and the scaled dot product in
                  a fixed length, written in place    standard operators
padding of the    behind the tokens of each row only  anywhere
cached attention
================  ==================================  ==============================================

An LSTM is the standard operator of that name for both targets.

Padding is computed along with the rest. Taking it out of the graph was tried: it costs two copies of the activations
in every layer, more than the 3 % of padding that is left once texts are batched by length.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

# Keys and values (batch, heads, columns, head_dim) of the tokens that a layer has seen.
Cache: TypeAlias = "tuple[Tensor, Tensor]"

_target: ContextVar[str | None] = ContextVar("edgebert_target", default=None)

# Added to the scores of masked keys. Finite in float32 and still finite with a score added, so that a row
# without any real key gives finite numbers (uniform weights) and not NaN. Later keys, which a token always has its
# own besides, are left out altogether.
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
    """Multi-head attention among the real tokens of each row (Vaswani et al., 2017, section 3.2).

    ``x`` and the result are (batch * seq, dim); ``qkv`` makes queries, keys and values, side by side; ``mask``
    (batch, seq) is true at real tokens. With ``causal`` no token sees a later one. Scores are multiplied by
    ``scale``, which is one by the root of the width of a head if not given.
    """
    batch, seq = mask.shape
    dim = x.shape[-1]
    if _target.get() == "cpu":
        padded = x.reshape(batch, seq, dim)
        attrs: dict[str, Any] = {"num_heads": num_heads, "mask_filter_value": MASKED}
        attrs |= {"unidirectional": 1} if causal else {}
        attrs |= {"scale": scale} if scale is not None else {}
        # The kernel wants the weight as (in, out); the exporter turns it around once the graph is made.
        mixed = torch.onnx.ops.symbolic(
            "com.microsoft::Attention",
            (padded, qkv.weight, qkv.bias, mask.to(torch.int32)),
            attrs=attrs,
            dtype=x.dtype,
            shape=padded.shape,
            version=1,
        )
        return mixed.reshape(batch * seq, dim)
    query, key, value = split_heads(qkv(x), batch, num_heads)
    return scaled_dot_product(query, key, value, mask, causal, scale)


def cached_attention(qkv: Tensor, mask: Tensor, past: Cache, num_heads: int, scale: float) -> tuple[Tensor, Cache]:
    """Causal attention of new tokens among the real tokens of their rows, those of the past included.

    ``qkv`` (batch * seq, 3 * dim) are queries, keys and values of the new tokens, side by side; the result is
    (batch * seq, dim). ``mask`` (batch, total) is true at real tokens, of which the last seq columns are the new
    ones. ``past`` and the second result are keys and values, of total - seq and of total columns.

    Rendered for ``cpu``, past and present have one and the same length, of total or more: a buffer with the tokens of
    each row at its beginning and without gaps, behind which the kernel writes the new ones. It is told where by the
    number of true columns of a row. So new tokens may be padded on the right, and only where there is no past yet.
    """
    batch = mask.shape[0]
    if _target.get() == "cpu":
        packed = qkv.reshape(batch, -1, qkv.shape[-1])
        lengths = mask.sum(1).to(torch.int32)  # (batch,)
        total = torch.scalar_tensor(mask.shape[1], dtype=torch.int32)
        mixed, keys, values = torch.onnx.ops.symbolic_multi_out(
            "com.microsoft::GroupQueryAttention",
            (packed, None, None, *past, lengths - 1, total),
            attrs={"num_heads": num_heads, "kv_num_heads": num_heads, "do_rotary": 0, "scale": scale},
            dtypes=(qkv.dtype,) * 3,
            shapes=((*packed.shape[:2], packed.shape[-1] // 3), past[0].shape, past[1].shape),
            version=1,
        )
        return mixed.flatten(0, 1), (keys, values)
    query, key, value = split_heads(qkv, batch, num_heads)
    key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
    return scaled_dot_product(query, key, value, mask, True, scale), (key, value)


def step_attention(
    qkv: Tensor, position: Tensor, past: Cache, table: Tensor | None, num_heads: int
) -> tuple[Tensor, Cache]:
    """Attention of one new token a row among the earlier ones of the row; every row is at the same position.

    ``qkv`` (rows, 3 * dim) are query, key and value of the new tokens, side by side; the result is (rows, dim).
    ``past`` and the second result are keys and values of ``position`` (1,) tokens and of one more.

    Rendered for ``cpu``, past and present are one buffer of a fixed length, (rows, heads, max_sequence, head_dim), and
    ``table`` (1, rows, max_sequence), int32, names the row of the buffer that holds each earlier token of a row. So
    that rows can be reordered, repeated and dropped by doing that to the table alone.
    """
    if _target.get() == "cpu":
        assert table is not None
        rows = qkv.shape[0]
        query, key, value = (part.unsqueeze(1) for part in qkv.chunk(3, dim=-1))  # (rows, 1, dim)
        # To the kernel, all rows are the beams of one text.
        width = torch.scalar_tensor(rows, dtype=torch.int32).reshape(1)
        mixed, keys, values = torch.onnx.ops.symbolic_multi_out(
            "com.microsoft::DecoderMaskedMultiHeadAttention",
            (query, key, value, None, None, *past, position.to(torch.int32), width, table),
            attrs={"num_heads": num_heads, "past_present_share_buffer": 1},
            dtypes=(qkv.dtype,) * 3,
            shapes=(query.shape, past[0].shape, past[1].shape),
            version=1,
        )
        return mixed.reshape(rows, -1), (keys, values)
    query, key, value = split_heads(qkv, qkv.shape[0], num_heads)
    key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
    mixed = functional.scaled_dot_product_attention(query, key, value)  # (rows, heads, 1, head_dim)
    return mixed.flatten(1), (key, value)


def cross_attention(query: Tensor, cross: Cache, mask: Tensor, num_heads: int) -> Tensor:
    """Attention of target tokens to the real tokens of the source (Vaswani et al., 2017, section 3.2.3).

    ``cross`` are keys and values (prompts, heads, source, head_dim) and ``mask`` (prompts, source) is true at real
    tokens. ``query`` and the result are (tokens, dim), as many tokens in a row for each prompt, beams and positions
    alike: what is the same for them is neither repeated nor reordered.
    """
    prompts, dim = mask.shape[0], query.shape[-1]
    if _target.get() == "cpu":
        mixed = torch.onnx.ops.symbolic(
            "com.microsoft::MultiHeadAttention",
            (query.reshape(prompts, -1, dim), *cross, None, mask.to(torch.int32)),
            attrs={"num_heads": num_heads, "mask_filter_value": MASKED},
            dtype=query.dtype,
            shape=query.reshape(prompts, -1, dim).shape,
            version=1,
        )
        return mixed.reshape(-1, dim)
    split = query.reshape(prompts, -1, num_heads, dim // num_heads).transpose(1, 2)
    return scaled_dot_product(split, *cross, mask, False, None)


def recurrence(x: Tensor, lengths: Tensor, lstm: nn.LSTM, *, reverse: bool) -> Tensor:
    """Read the rows of a batch with an LSTM of one layer (Hochreiter and Schmidhuber, 1997), from end to end.

    ``x`` is (seq, batch, dim) and the result (seq, batch, hidden); of each row the first ``lengths`` (batch,), int32,
    tokens are read, at least one. With ``reverse`` a row is read from the last of those to the first. What stands
    behind them is finite but means nothing.
    """
    seq, batch, _ = x.shape
    if _target.get() is not None:
        # The exporter makes the standard LSTM of it, which wants the weights in another order.
        read = torch.onnx.ops.symbolic(
            "edgebert::LSTM",
            (x, *lstm.all_weights[0], lengths),
            attrs={"hidden_size": lstm.hidden_size, "direction": "reverse" if reverse else "forward"},
            dtype=x.dtype,
            shape=(seq, 1, batch, lstm.hidden_size),
            version=1,
        )
        return read.squeeze(1)
    if not reverse:
        return lstm(x)[0]  # type: ignore[no-any-return]
    steps = torch.arange(seq, device=x.device)[:, None]  # (seq, 1)
    mirrored = torch.where(steps < lengths, lengths - 1 - steps, steps)[..., None]  # (seq, batch, 1), its own inverse
    turned: Tensor = lstm(x.take_along_dim(mirrored, 0))[0]
    return turned.take_along_dim(mirrored, 0)


def best_tokens(logits: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ``count`` (1,) likeliest tokens of each row of ``logits`` (rows, vocab), and their log-probabilities.

    Both are (rows, count), best first, of equally likely tokens the one with the lowest id first.
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
    """Take (batch * seq, 3 * dim) to queries, keys and values, each (batch, heads, seq, head_dim)."""
    dim = qkv.shape[-1] // 3
    parts = qkv.reshape(batch, -1, 3 * dim).chunk(3, dim=-1)
    query, key, value = (part.reshape(batch, -1, num_heads, dim // num_heads).transpose(1, 2) for part in parts)
    return query, key, value


def scaled_dot_product(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, causal: bool, scale: float | None
) -> Tensor:
    """Take queries (batch, heads, seq, head_dim) to (batch * seq, dim) by keys and values of as many columns or more.

    Queries belong to the last columns of ``mask`` (batch, columns), and with ``causal`` see those up to their own.
    """
    batch, _, seq, _ = query.shape
    bias = torch.where(mask[:, None, None, :], 0.0, MASKED)  # (batch, 1, 1, columns)
    if causal:
        columns = torch.arange(key.shape[2], device=mask.device)
        seen = columns <= columns[key.shape[2] - seq :, None]  # (seq, columns)
        bias = torch.where(seen, bias, -torch.inf)  # (batch, 1, seq, columns)
    mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scale)
    return mixed.transpose(1, 2).reshape(batch * seq, -1)  # from (batch, heads, seq, head_dim)
