"""The Transformer (Vaswani et al., 2017): an encoder, and a decoder that attends to what it has read.

Its pre-norm form, Marian (Junczys-Dowmunt et al., 2018), BART (Lewis et al., 2020) and mBART (Liu et al., 2020) differ
from it in :class:`Seq2SeqConfig` only.

Read from top to bottom: configuration, embeddings, one layer of the encoder, one of the decoder, the model, and the
loss that it is trained with. Activations are (tokens, dim), the rows of the batch below each other. Masks are true at
real tokens; positions count the real tokens of a row, so that a row gives the same wherever its padding stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgebert.models.activations import ACTIVATIONS
from edgebert.models.config_validation import field_problems
from edgebert.models.mask_positions import real_positions
from edgebert.models.operators import Cache, cross_attention, self_attention, step_attention

POSITIONS = ("sinusoidal", "learned")
NORMS = ("post", "pre")
# The most numbers that a table of sinusoids may have, which is made before any weight is read.
MAX_SINUSOIDS = 1 << 26


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig:
    """The sizes of an encoder and a decoder, in the names of BART's published config.json or of BERT's.

    ``vocab_size`` is that of the source. Without ``decoder_vocab_size`` one table of embeddings serves both sides;
    with it the target has a table of its own. Each side takes ``max_position_embeddings`` tokens; BART's tables of
    learned positions have ``position_offset`` more rows before those. ``norm`` stands after each part and its residual
    (``post``) or before each part (``pre``). With ``scale_embedding`` embeddings are multiplied by the root of their
    width; ``embedding_norm`` normalises what enters the layers, ``final_norm`` what leaves the last one. A
    ``tied_head`` multiplies by the table of the target; ``output_bias`` is added to the logits.

    Raises:
        ValueError: naming every field that makes no sense, with its value.
    """

    vocab_size: int
    decoder_vocab_size: int | None = None
    hidden_size: int
    encoder_layers: int
    decoder_layers: int
    encoder_attention_heads: int
    decoder_attention_heads: int
    encoder_intermediate_size: int
    decoder_intermediate_size: int
    max_position_embeddings: int
    layer_norm_eps: float = 1e-5
    hidden_act: str = "relu"
    positions: str = "sinusoidal"
    position_offset: int = 0
    norm: str = "post"
    scale_embedding: bool = False
    embedding_norm: bool = False
    final_norm: bool = False
    tied_head: bool = True
    output_bias: bool = True

    def __post_init__(self) -> None:
        problems = field_problems(self)
        for name, allowed in (("positions", POSITIONS), ("norm", NORMS)):
            if (value := getattr(self, name)) not in allowed:
                problems.append(f"{name}={value!r:.60} is not one of {', '.join(allowed)}")
        if not problems and self.positions == "sinusoidal":
            most = MAX_SINUSOIDS // self.hidden_size - self.position_offset
            if self.max_position_embeddings > most:
                problems.append(f"max_position_embeddings={self.max_position_embeddings} is more than {most}")
        if problems:
            raise ValueError("; ".join(problems))

    @property
    def target_vocab_size(self) -> int:
        """The size of the vocabulary of the target."""
        return self.vocab_size if self.decoder_vocab_size is None else self.decoder_vocab_size

    @property
    def max_tokens(self) -> int:
        """The longest source, and the longest target, that the positions reach, in tokens, special ones included."""
        return self.max_position_embeddings

    @property
    def head_dim(self) -> int:
        """The width of one head of the decoder, whose keys and values are kept."""
        return self.hidden_size // self.decoder_attention_heads


def sinusoids(rows: int, dim: int) -> Tensor:
    """Return the constant positions (rows, dim) of Vaswani et al. (2017), section 3.5.

    All sines stand before all cosines, as Marian has them; in the paper the two take turns.
    """
    periods = 10000.0 ** (torch.arange(0, dim, 2, dtype=torch.float64, device="cpu") / dim)  # (dim / 2,)
    angles = torch.arange(rows, dtype=torch.float64, device="cpu")[:, None] / periods  # (rows, dim / 2)
    return torch.cat([angles.sin(), angles.cos()[:, : dim // 2]], dim=1).float()


class Embeddings(nn.Module):
    """Sum of token and position embeddings of one side, scaled and normalised where the configuration says so.

    The table of tokens comes with the call, since both sides may have the same.
    """

    def __init__(self, config: Seq2SeqConfig, dropout: float) -> None:
        super().__init__()
        rows, dim = config.max_position_embeddings + config.position_offset, config.hidden_size
        learned = config.positions == "learned"
        self.sinusoids: Tensor
        self.scale = dim**0.5 if config.scale_embedding else None
        self.offset = config.position_offset
        self.position_embedding = nn.Embedding(rows, dim) if learned else None
        # Constants are no weights: they are in no state dict, and there even where a model is made without memory.
        self.register_buffer("sinusoids", None if learned else sinusoids(rows, dim), persistent=False)
        self.norm = nn.LayerNorm(dim, eps=config.layer_norm_eps) if config.embedding_norm else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, token: nn.Embedding, input_ids: Tensor, positions: Tensor) -> Tensor:
        """Take ids (batch, seq), and their positions or one for all, to (tokens, dim)."""
        table = self.position_embedding.weight if self.position_embedding is not None else self.sinusoids
        embedded: Tensor = token(input_ids)  # (batch, seq, dim)
        if self.scale is not None:
            embedded = embedded * self.scale
        x = (embedded + functional.embedding(positions + self.offset, table)).flatten(0, 1)
        dropped: Tensor = self.dropout(x if self.norm is None else self.norm(x))
        return dropped


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each with its residual and its normalisation, after or before it."""

    def __init__(self, config: Seq2SeqConfig, num_heads: int, intermediate_size: int, dropout: float) -> None:
        super().__init__()
        dim, eps = config.hidden_size, config.layer_norm_eps
        self.num_heads = num_heads
        self.pre = config.norm == "pre"
        self.activation = ACTIVATIONS[config.hidden_act]
        self.dropout = nn.Dropout(dropout)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.attention_output = nn.Linear(dim, dim)
        self.attention_norm = nn.LayerNorm(dim, eps=eps)
        self.ffn_up = nn.Linear(dim, intermediate_size)
        self.ffn_down = nn.Linear(intermediate_size, dim)
        self.ffn_norm = nn.LayerNorm(dim, eps=eps)

    def enter(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        """Return what a part reads."""
        return norm(x) if self.pre else x

    def leave(self, x: Tensor, part: Tensor, norm: nn.LayerNorm) -> Tensor:
        """Add the result of a part to what it was before."""
        x = x + self.dropout(part)
        return x if self.pre else norm(x)

    def feed_forward(self, x: Tensor) -> Tensor:
        """Take each token by itself, (tokens, dim) to (tokens, dim)."""
        part = self.ffn_down(self.activation(self.ffn_up(self.enter(x, self.ffn_norm))))
        return self.leave(x, part, self.ffn_norm)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Take (tokens, dim) to (tokens, dim); ``mask`` is (batch, seq)."""
        mixed = self_attention(self.enter(x, self.attention_norm), self.qkv, mask, self.num_heads)
        return self.feed_forward(self.leave(x, self.attention_output(mixed), self.attention_norm))


class DecoderLayer(EncoderLayer):
    """Causal self-attention, attention to the source, and feed-forward, each with residual and normalisation."""

    def __init__(self, config: Seq2SeqConfig, num_heads: int, intermediate_size: int, dropout: float) -> None:
        super().__init__(config, num_heads, intermediate_size, dropout)
        dim = config.hidden_size
        self.cross_attention_query = nn.Linear(dim, dim)
        self.cross_attention_key_value = nn.Linear(dim, 2 * dim)
        self.cross_attention_output = nn.Linear(dim, dim)
        self.cross_attention_norm = nn.LayerNorm(dim, eps=config.layer_norm_eps)

    def cross(self, hidden: Tensor, batch: int) -> Cache:
        """Take the source (batch * seq, dim) to its keys and values, each (batch, heads, seq, head_dim)."""
        parts = self.cross_attention_key_value(hidden).reshape(
            batch, -1, 2 * self.num_heads, hidden.shape[-1] // self.num_heads
        )
        key, value = parts.transpose(1, 2).chunk(2, dim=1)
        return key, value

    def attend(self, x: Tensor, cross: Cache, source_mask: Tensor) -> Tensor:
        """Take (tokens, dim) to (tokens, dim) by what the source says to each."""
        query = self.cross_attention_query(self.enter(x, self.cross_attention_norm))
        mixed = cross_attention(query, cross, source_mask, self.num_heads)
        return self.leave(x, self.cross_attention_output(mixed), self.cross_attention_norm)

    def decode(self, x: Tensor, mask: Tensor, cross: Cache, source_mask: Tensor) -> Tensor:
        """Take all tokens of the targets at once, (tokens, dim); ``mask`` is (batch, target)."""
        mixed = self_attention(self.enter(x, self.attention_norm), self.qkv, mask, self.num_heads, causal=True)
        x = self.leave(x, self.attention_output(mixed), self.attention_norm)
        return self.feed_forward(self.attend(x, cross, source_mask))

    def step(
        self, x: Tensor, position: Tensor, past: Cache, cross: Cache, source_mask: Tensor, table: Tensor | None
    ) -> tuple[Tensor, Cache]:
        """Take one token of each row, (rows, dim), and the cache to the one that is a token longer."""
        qkv = self.qkv(self.enter(x, self.attention_norm))
        mixed, present = step_attention(qkv, position, past, table, self.num_heads)
        x = self.leave(x, self.attention_output(mixed), self.attention_norm)
        return self.feed_forward(self.attend(x, cross, source_mask)), present


class Side(nn.Module):
    """What the encoder and the decoder consist of."""

    def __init__(self, config: Seq2SeqConfig, layers: Sequence[nn.Module], dropout: float) -> None:
        super().__init__()
        self.embeddings = Embeddings(config, dropout)
        self.layers: Any = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) if config.final_norm else None

    def final(self, x: Tensor) -> Tensor:
        """Take what leaves the last layer to the hidden states."""
        return x if self.norm is None else self.norm(x)


class Seq2Seq(nn.Module):
    """Encoder, decoder, and the logits of the next token.

    ``dropout`` is the share of what enters the layers, and of what each part adds, that is left out in training
    (Vaswani et al., 2017, section 5.4).
    """

    def __init__(self, config: Seq2SeqConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        dim, own = config.hidden_size, config.decoder_vocab_size
        source = (config.encoder_attention_heads, config.encoder_intermediate_size, dropout)
        target = (config.decoder_attention_heads, config.decoder_intermediate_size, dropout)
        self.token_embedding = nn.Embedding(config.vocab_size, dim)
        self.target_token_embedding = nn.Embedding(own, dim) if own is not None else None
        self.encoder = Side(config, [EncoderLayer(config, *source) for _ in range(config.encoder_layers)], dropout)
        self.decoder = Side(config, [DecoderLayer(config, *target) for _ in range(config.decoder_layers)], dropout)
        self.head = None if config.tied_head else nn.Linear(dim, config.target_vocab_size, bias=False)
        # Of two dimensions, as it is published.
        self.output_bias = nn.Parameter(torch.zeros(1, config.target_vocab_size)) if config.output_bias else None

    @property
    def target_table(self) -> nn.Embedding:
        """The embeddings of the tokens of the target."""
        return self.token_embedding if self.target_token_embedding is None else self.target_token_embedding

    def encode(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        """Take the source, (batch, source) tensors, the mask of booleans, to hidden states (tokens, dim).

        Hidden states of padding are finite but mean nothing.
        """
        x: Tensor = self.encoder.embeddings(self.token_embedding, input_ids, real_positions(mask))
        for layer in self.encoder.layers:
            x = layer(x, mask)
        return self.encoder.final(x)

    def cross(self, hidden: Tensor, batch: int) -> list[Cache]:
        """Take the source (batch * source, dim) to keys and values for each layer of the decoder.

        Each is (batch, heads, source, head_dim); they stay the same for all tokens of the target.
        """
        return [layer.cross(hidden, batch) for layer in self.decoder.layers]

    def decode(self, target_ids: Tensor, target_mask: Tensor, cross: Sequence[Cache], source_mask: Tensor) -> Tensor:
        """Take whole targets (batch, target), padded on the right, to hidden states (tokens, dim).

        No token sees a later one (teacher forcing). ``source_mask`` is (batch, source).
        """
        x: Tensor = self.decoder.embeddings(self.target_table, target_ids, real_positions(target_mask))
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
        """Take one token of each row, (rows, 1), to hidden states (rows, dim), and the past to the present.

        All rows are at ``position`` (1,). Each prompt of ``cross`` and of ``source_mask`` (prompts, source) has as many
        rows, which follow one another. ``past`` and ``table`` are those of
        :func:`~edgebert.models.operators.step_attention`.
        """
        x: Tensor = self.decoder.embeddings(self.target_table, tokens, position)
        present = []
        for layer, before, keys_values in zip(self.decoder.layers, past, cross, strict=True):
            x, cache = layer.step(x, position, before, keys_values, source_mask, table)
            present.append(cache)
        return self.decoder.final(x), present

    def empty_past(self, rows: int) -> list[Cache]:
        """Return the past (rows, heads, 0, head_dim) of rows that have none yet."""
        config = self.config
        empty = self.token_embedding.weight.new_zeros(rows, config.decoder_attention_heads, 0, config.head_dim)
        return [(empty, empty)] * config.decoder_layers

    def logits(self, hidden: Tensor) -> Tensor:
        """Take hidden states of the decoder (n, dim) to logits (n, vocab)."""
        weight = self.target_table.weight if self.head is None else self.head.weight
        return functional.linear(hidden, weight, None if self.output_bias is None else self.output_bias[0])

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor, decoder_attention_mask: Tensor
    ) -> Tensor:
        """Take sources (batch, source) and targets (batch, target), integers, to logits (batch, target, vocab)."""
        hidden = self.hidden(input_ids, attention_mask != 0, decoder_input_ids, decoder_attention_mask != 0)
        return self.logits(hidden).reshape(*decoder_input_ids.shape, -1)

    def hidden(self, input_ids: Tensor, mask: Tensor, target_ids: Tensor, target_mask: Tensor) -> Tensor:
        """Take sources and targets, with masks of booleans, to the hidden states (tokens, dim) of the targets."""
        cross = self.cross(self.encode(input_ids, mask), len(input_ids))
        return self.decode(target_ids, target_mask, cross, mask)


def shift_right(labels: Tensor, start: int) -> Tensor:
    """Return what the decoder reads to say ``labels`` (batch, target): ``start``, and each label but the last."""
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

    The share ``smoothing`` of what a label should have is spread evenly over the vocabulary (Vaswani et al., 2017,
    section 5.4). ``start`` is the token that every target begins with, before its first label.
    """
    real = label_mask != 0
    hidden = model.hidden(input_ids, attention_mask != 0, shift_right(labels, start), real)
    said = real.flatten()  # (tokens,)
    return functional.cross_entropy(model.logits(hidden[said]), labels.flatten()[said], label_smoothing=smoothing)
