"""GPT-2 (Radford et al., 2019): a pre-norm decoder with learned positions.

Read from top to bottom: configuration, one layer, the decoder. Its heads are in ``heads.py``. Activations are
(tokens, dim), the rows of the batch one after the other.

A mask (batch, total) has a column for each token of the KV cache and each new token. It is false at padding, which may
stand anywhere: positions count the real tokens of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from edgebert.models.activations import ACTIVATIONS
from edgebert.models.config_validation import field_problems
from edgebert.models.mask_positions import real_positions
from edgebert.models.operators import Cache, cached_attention, self_attention


@dataclass(frozen=True, kw_only=True)
class Gpt2Config:
    """The configuration of a decoder, in the names of BERT's config.json where GPT-2's differ.

    ``scale_attn_weights`` divides attention scores by sqrt(head_dim), ``scale_attn_by_inverse_layer_idx`` also by the
    number of the layer, from 1.

    Raises:
        ValueError: naming every impossible field with its value.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    layer_norm_eps: float = 1e-5
    hidden_act: str = "gelu_new"
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False

    def __post_init__(self) -> None:
        if problems := field_problems(self):
            raise ValueError("; ".join(problems))

    @property
    def max_tokens(self) -> int:
        """The longest text in tokens, generated tokens included."""
        return self.max_position_embeddings

    @property
    def head_dim(self) -> int:
        """The width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    def attention_scale(self, number: int) -> float:
        """Return the factor of the attention scores in layer ``number``, from 0."""
        scale = self.head_dim**-0.5 if self.scale_attn_weights else 1.0
        return scale / (number + 1) if self.scale_attn_by_inverse_layer_idx else scale


class Layer(nn.Module):
    """Causal self-attention and feed-forward, each after a layer norm and with a residual (pre-norm)."""

    def __init__(self, config: Gpt2Config, number: int) -> None:
        super().__init__()
        dim, eps = config.hidden_size, config.layer_norm_eps
        self.num_heads = config.num_attention_heads
        self.scale = config.attention_scale(number)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.attention_norm = nn.LayerNorm(dim, eps=eps)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.attention_output = nn.Linear(dim, dim)
        self.ffn_norm = nn.LayerNorm(dim, eps=eps)
        self.ffn_up = nn.Linear(dim, config.intermediate_size)
        self.ffn_down = nn.Linear(config.intermediate_size, dim)

    def forward(
        self, x: Tensor, mask: Tensor, past: Cache | None, rows: Tensor | None = None
    ) -> tuple[Tensor, Cache | None]:
        """Map (tokens, dim) to (tokens, dim), or to the outputs (rows, dim) of ``rows``, and return the longer cache.

        Without ``past`` there is no cache, before or after.
        """
        normed = self.attention_norm(x)
        if past is None:
            context, present = (
                self_attention(normed, self.qkv, mask, self.num_heads, causal=True, scale=self.scale),
                None,
            )
        else:
            context, present = cached_attention(self.qkv(normed), mask, past, self.num_heads, self.scale)
        if rows is not None:
            context, x = context[rows], x[rows]
        x = x + self.attention_output(context)
        x = x + self.ffn_down(self.activation(self.ffn_up(self.ffn_norm(x))))
        return x, present


class Gpt2(nn.Module):
    """The decoder: token ids in, hidden states out."""

    def __init__(self, config: Gpt2Config) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embedding = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, number) for number in range(config.num_hidden_layers))
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def encode(self, input_ids: Tensor, mask: Tensor, rows: Tensor | None = None) -> Tensor:
        """Map ids and a boolean mask, (batch, seq), to hidden states (tokens, dim), without a KV cache.

        Hidden states of padding are finite and meaningless. ``rows`` (n,), row * seq + position, selects tokens: the
        result is (n, dim), and the last layer computes no others.
        """
        return self.run(input_ids, mask, None, rows)[0]

    def extend(
        self, input_ids: Tensor, mask: Tensor, past: Sequence[Cache], rows: Tensor | None = None
    ) -> tuple[Tensor, list[Cache]]:
        """Map new ids (batch, seq) to hidden states as ``encode`` does, after a KV cache; return the longer cache too.

        ``mask`` (batch, total) covers the cache and the new tokens. ``past`` is the cache of each layer.
        """
        hidden, present = self.run(input_ids, mask, past, rows)
        return hidden, [cache for cache in present if cache is not None]

    def run(
        self, input_ids: Tensor, mask: Tensor, past: Sequence[Cache] | None, rows: Tensor | None
    ) -> tuple[Tensor, list[Cache | None]]:
        """Run new ids through all layers, with or without a KV cache."""
        new = mask.shape[1] - input_ids.shape[1]
        positions = real_positions(mask)[:, new:]  # (batch, seq)
        x: Tensor = (self.token_embedding(input_ids) + self.position_embedding(positions)).flatten(
            0, 1
        )  # (tokens, dim)
        present = []
        last = len(self.layers) - 1
        for number, layer in enumerate(self.layers):
            x, cache = layer(x, mask, past[number] if past is not None else None, rows if number == last else None)
            present.append(cache)
        return self.norm(x), present

    def empty_past(self, batch: int) -> list[Cache]:
        """Return an empty KV cache (batch, heads, 0, head_dim)."""
        config = self.config
        empty = self.token_embedding.weight.new_zeros(batch, config.num_attention_heads, 0, config.head_dim)
        return [(empty, empty)] * config.num_hidden_layers
