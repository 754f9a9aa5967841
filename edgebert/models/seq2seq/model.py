"""The encoder-decoder Transformer (Vaswani et al., 2017).

Its pre-norm form, Marian (Junczys-Dowmunt et al., 2018), BART (Lewis et al., 2020) and mBART (Liu et al., 2020) differ
in :class:`~edgebert.models.seq2seq.config.Seq2SeqConfig` only.

Read from top to bottom: embeddings, encoder layer, decoder layer, model, training loss. Activations are
(tokens, dim), the rows of the batch one after the other. Masks are true at real tokens. Positions count real tokens, so
padding may stand anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgebert.models.activations import ACTIVATIONS
from edgebert.models.mask_positions import real_positions
from edgebert.models.operators import Cache, cross_attention, self_attention, step_attention
from edgebert.models.seq2seq.config import Seq2SeqConfig


def sinusoids(rows: int, dim: int) -> Tensor:
    """Return the sinusoidal positions (rows, dim) of Vaswani et al. (2017), section 3.5.

    All sines precede all cosines, as in Marian; in the paper they alternate.
    """
    periods = 10000.0 ** (torch.arange(0, dim, 2, dtype=torch.float64, device="cpu") / dim)  # (dim / 2,)
    angles = torch.arange(rows, dtype=torch.float64, device="cpu")[:, None] / periods  # (rows, dim / 2)
    return torch.cat([angles.sin(), angles.cos()[:, : dim // 2]], dim=1).float()


class Embeddings(nn.Module):
    """Sum of the token and position embeddings of one stack, optionally scaled and normalized.

    The token embedding is an argument: both stacks may share it.
    """

    def __init__(self, config: Seq2SeqConfig, dropout: float) -> None:
        super().__init__()
        rows, dim = config.max_position_embeddings + config.position_offset, config.hidden_size
        learned = config.positions == "learned"
        self.sinusoids: Tensor
        self.scale = dim**0.5 if config.scale_embedding else None
        self.offset = config.position_offset
        self.position_embedding = nn.Embedding(rows, dim) if learned else None
        # Constants are in no state dict, and computed even where a model is built on the meta device.
        self.register_buffer("sinusoids", None if learned else sinusoids(rows, dim), persistent=False)
        self.norm = nn.LayerNorm(dim, eps=config.layer_norm_eps) if config.embedding_norm else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, token: nn.Embedding, input_ids: Tensor, positions: Tensor) -> Tensor:
        """Map ids (batch, seq), and their positions or one for all, to (tokens, dim)."""
        table = self.position_embedding.weight if self.position_embedding is not None else self.sinusoids
        embedded: Tensor = token(input_ids)  # (batch, seq, dim)
        if self.scale is not None:
            embedded = embedded * self.scale
        x = (embedded + functional.embedding(positions + self.offset, table)).flatten(0, 1)
        dropped: Tensor = self.dropout(x if self.norm is None else self.norm(x))
        return dropped


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each with residual and layer norm (post-norm or pre-norm)."""

    def __init__(self, config: Seq2SeqConfig, num_heads: int, intermediate_size: int, dropout: float) -> None:
        super().__init__()
        dim, eps = config.hidden_size, config.layer_norm_eps
        self.num_heads = num_heads
        self.is_pre_norm = config.norm == "pre"
        self.activation = ACTIVATIONS[config.hidden_act]
        self.dropout = nn.Dropout(dropout)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.attention_output = nn.Linear(dim, dim)
        self.attention_norm = nn.LayerNorm(dim, eps=eps)
        self.ffn_up = nn.Linear(dim, intermediate_size)
        self.ffn_down = nn.Linear(intermediate_size, dim)
        self.ffn_norm = nn.LayerNorm(dim, eps=eps)

    def pre_norm(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        """Return the input of a sublayer: normalized in a pre-norm model."""
        return norm(x) if self.is_pre_norm else x

    def post_norm(self, x: Tensor, output: Tensor, norm: nn.LayerNorm) -> Tensor:
        """Add a sublayer's output to the residual, normalized in a post-norm model."""
        x = x + self.dropout(output)
        return x if self.is_pre_norm else norm(x)

    def feed_forward(self, x: Tensor) -> Tensor:
        """Apply the feed-forward sublayer to (tokens, dim)."""
        output = self.ffn_down(self.activation(self.ffn_up(self.pre_norm(x, self.ffn_norm))))
        return self.post_norm(x, output, self.ffn_norm)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Map (tokens, dim) to (tokens, dim); ``mask`` is (batch, seq)."""
        context = self_attention(self.pre_norm(x, self.attention_norm), self.qkv, mask, self.num_heads)
        return self.feed_forward(self.post_norm(x, self.attention_output(context), self.attention_norm))


class DecoderLayer(EncoderLayer):
    """Causal self-attention, cross-attention and feed-forward, each with residual and layer norm."""

    def __init__(self, config: Seq2SeqConfig, num_heads: int, intermediate_size: int, dropout: float) -> None:
        super().__init__(config, num_heads, intermediate_size, dropout)
        dim = config.hidden_size
        self.cross_attention_query = nn.Linear(dim, dim)
        self.cross_attention_key_value = nn.Linear(dim, 2 * dim)
        self.cross_attention_output = nn.Linear(dim, dim)
        self.cross_attention_norm = nn.LayerNorm(dim, eps=config.layer_norm_eps)

    def cross(self, hidden: Tensor, batch: int) -> Cache:
        """Project the source (batch * seq, dim) to keys and values, each (batch, heads, seq, head_dim)."""
        parts = self.cross_attention_key_value(hidden).reshape(
            batch, -1, 2 * self.num_heads, hidden.shape[-1] // self.num_heads
        )
        key, value = parts.transpose(1, 2).chunk(2, dim=1)
        return key, value

    def attend(self, x: Tensor, cross: Cache, source_mask: Tensor) -> Tensor:
        """Apply the cross-attention sublayer to (tokens, dim)."""
        query = self.cross_attention_query(self.pre_norm(x, self.cross_attention_norm))
        context = cross_attention(query, cross, source_mask, self.num_heads)
        return self.post_norm(x, self.cross_attention_output(context), self.cross_attention_norm)

    def decode(self, x: Tensor, mask: Tensor, cross: Cache, source_mask: Tensor) -> Tensor:
        """Map whole targets (tokens, dim) to (tokens, dim); ``mask`` is (batch, target)."""
        context = self_attention(self.pre_norm(x, self.attention_norm), self.qkv, mask, self.num_heads, causal=True)
        x = self.post_norm(x, self.attention_output(context), self.attention_norm)
        return self.feed_forward(self.attend(x, cross, source_mask))

    def step(
        self, x: Tensor, position: Tensor, past: Cache, cross: Cache, source_mask: Tensor, table: Tensor | None
    ) -> tuple[Tensor, Cache]:
        """Map one token of each row, (rows, dim), to (rows, dim); return the longer KV cache too."""
        qkv = self.qkv(self.pre_norm(x, self.attention_norm))
        context, present = step_attention(qkv, position, past, table, self.num_heads)
        x = self.post_norm(x, self.attention_output(context), self.attention_norm)
        return self.feed_forward(self.attend(x, cross, source_mask)), present


class TransformerStack(nn.Module):
    """Embeddings, layers and final norm of the encoder or the decoder."""

    def __init__(self, config: Seq2SeqConfig, layers: Sequence[nn.Module], dropout: float) -> None:
        super().__init__()
        self.embeddings = Embeddings(config, dropout)
        self.layers: Any = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) if config.final_norm else None

    def final(self, x: Tensor) -> Tensor:
        """Map the output of the last layer to hidden states."""
        return x if self.norm is None else self.norm(x)


class Seq2Seq(nn.Module):
    """Encoder, decoder, and language-model head.

    ``dropout`` applies to embeddings and to the output of each sublayer in training (Vaswani et al., 2017,
    section 5.4).
    """

    def __init__(self, config: Seq2SeqConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        dim, own = config.hidden_size, config.decoder_vocab_size
        source = (config.encoder_attention_heads, config.encoder_intermediate_size, dropout)
        target = (config.decoder_attention_heads, config.decoder_intermediate_size, dropout)
        self.token_embedding = nn.Embedding(config.vocab_size, dim)
        self.target_token_embedding = nn.Embedding(own, dim) if own is not None else None
        self.encoder = TransformerStack(
            config, [EncoderLayer(config, *source) for _ in range(config.encoder_layers)], dropout
        )
        self.decoder = TransformerStack(
            config, [DecoderLayer(config, *target) for _ in range(config.decoder_layers)], dropout
        )
        self.head = None if config.tied_head else nn.Linear(dim, config.target_vocab_size, bias=False)
        # Of two dimensions, as it is published.
        self.output_bias = nn.Parameter(torch.zeros(1, config.target_vocab_size)) if config.output_bias else None

    @property
    def target_embedding(self) -> nn.Embedding:
        """The token embedding of the target."""
        return self.token_embedding if self.target_token_embedding is None else self.target_token_embedding

    def encode(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        """Map the source, ids and boolean mask (batch, source), to hidden states (tokens, dim).

        Hidden states of padding are finite and meaningless.
        """
        x: Tensor = self.encoder.embeddings(self.token_embedding, input_ids, real_positions(mask))
        for layer in self.encoder.layers:
            x = layer(x, mask)
        return self.encoder.final(x)

    def cross(self, hidden: Tensor, batch: int) -> list[Cache]:
        """Project the source (batch * source, dim) to the cross-attention cache of each decoder layer.

        Keys and values are (batch, heads, source, head_dim), the same for all tokens of the target.
        """
        return [layer.cross(hidden, batch) for layer in self.decoder.layers]

    def decode(self, target_ids: Tensor, target_mask: Tensor, cross: Sequence[Cache], source_mask: Tensor) -> Tensor:
        """Map whole targets (batch, target), padded on the right, to hidden states (tokens, dim).

        No token sees a later one: this is teacher forcing. ``source_mask`` is (batch, source).
        """
        x: Tensor = self.decoder.embeddings(self.target_embedding, target_ids, real_positions(target_mask))
        for layer, keys_values in zip(self.decoder.layers, cross, strict=True):
            x = layer.decode(x, target_mask, keys_values, source_mask)
        return self.decoder.final(x)

    def step(
        self,
        tokens: Tensor,
        position: Tensor,
        past: Sequence[Cache],
        cross: Sequence[Cache],
        source_mask: Tensor,
        table: Tensor | None = None,
    ) -> tuple[Tensor, list[Cache]]:
        """Map one token of each row, (rows, 1), to hidden states (rows, dim); return the longer KV cache too.

        All rows are at ``position`` (1,). Each prompt of ``cross`` and of ``source_mask`` (prompts, source) has the
        same number of consecutive rows. ``past`` and ``table`` are those of
        :func:`~edgebert.models.operators.step_attention`.
        """
        x: Tensor = self.decoder.embeddings(self.target_embedding, tokens, position)
        present = []
        for layer, before, keys_values in zip(self.decoder.layers, past, cross, strict=True):
            x, cache = layer.step(x, position, before, keys_values, source_mask, table)
            present.append(cache)
        return self.decoder.final(x), present

    def empty_past(self, rows: int) -> list[Cache]:
        """Return an empty KV cache (rows, heads, 0, head_dim)."""
        config = self.config
        empty = self.token_embedding.weight.new_zeros(rows, config.decoder_attention_heads, 0, config.head_dim)
        return [(empty, empty)] * config.decoder_layers

    def logits(self, hidden: Tensor) -> Tensor:
        """Map hidden states of the decoder (n, dim) to logits (n, vocab)."""
        weight = self.target_embedding.weight if self.head is None else self.head.weight
        return functional.linear(hidden, weight, None if self.output_bias is None else self.output_bias[0])

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor, decoder_attention_mask: Tensor
    ) -> Tensor:
        """Map integer sources (batch, source) and targets (batch, target) to logits (batch, target, vocab)."""
        hidden = self.hidden(input_ids, attention_mask != 0, decoder_input_ids, decoder_attention_mask != 0)
        return self.logits(hidden).reshape(*decoder_input_ids.shape, -1)

    def hidden(self, input_ids: Tensor, mask: Tensor, target_ids: Tensor, target_mask: Tensor) -> Tensor:
        """Map sources and targets, with boolean masks, to hidden states (tokens, dim) of the targets."""
        cross = self.cross(self.encode(input_ids, mask), len(input_ids))
        return self.decode(target_ids, target_mask, cross, mask)


def shift_right(labels: Tensor, start: int) -> Tensor:
    """Return the decoder inputs for ``labels`` (batch, target): ``start``, and each label but the last."""
    return functional.pad(labels[:, :-1], (1, 0), value=start)


def translation_loss(
    model: Seq2Seq,
    input_ids: Tensor,
    attention_mask: Tensor,
    labels: Tensor,
    label_mask: Tensor,
    start: int,
    smoothing: float = 0.1,
) -> Tensor:
    """Return the mean cross-entropy of the real ``labels`` (batch, target), which are padded on the right.

    ``smoothing`` is label smoothing (Vaswani et al., 2017, section 5.4). ``start`` is the token before the first
    label.
    """
    real = label_mask != 0
    hidden = model.hidden(input_ids, attention_mask != 0, shift_right(labels, start), real)
    labelled = real.flatten()  # (tokens,)
    return functional.cross_entropy(
        model.logits(hidden[labelled]), labels.flatten()[labelled], label_smoothing=smoothing
    )
