"""BERT (Devlin et al., 2019) and the encoders of its architecture.

RoBERTa (Liu et al., 2019), XLM-R (Conneau et al., 2020), CamemBERT (Martin et al., 2020), DistilBERT (Sanh et al.,
2019), ELECTRA (Clark et al., 2020) and ALBERT (Lan et al., 2020) differ in :class:`BertConfig` only.

Read from top to bottom: configuration, embeddings, one encoder layer, the encoder. Heads are in ``heads.py``.
Activations are (tokens, dim), the rows of the batch one after the other: every linear layer is one matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from edgebert.models.activations import ACTIVATIONS
from edgebert.models.config_validation import field_problems
from edgebert.models.mask_positions import real_positions
from edgebert.models.operators import self_attention


@dataclass(frozen=True, kw_only=True)
class BertConfig:
    """The configuration of an encoder, in the names of BERT's config.json.

    ``type_vocab_size`` 0 is no segment embedding (DistilBERT). Positions count from ``position_offset``: RoBERTa
    reserves the first rows of its position embedding. ``embedding_size`` is the width of the embeddings where a
    projection takes them to ``hidden_size`` (ELECTRA, ALBERT). ``shared_layers`` applies one layer repeatedly (ALBERT).

    Raises:
        ValueError: naming every impossible field with its value.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    hidden_act: str = "gelu"
    embedding_size: int | None = None
    position_offset: int = 0
    shared_layers: bool = False

    def __post_init__(self) -> None:
        problems = field_problems(self)
        if not problems and self.max_tokens < 1:
            problems.append(
                f"max_position_embeddings={self.max_position_embeddings} leaves no position after the first "
                f"{self.position_offset}"
            )
        if problems:
            raise ValueError("; ".join(problems))

    @property
    def max_tokens(self) -> int:
        """The longest input in tokens, special tokens included."""
        return self.max_position_embeddings - self.position_offset


class Embeddings(nn.Module):
    """Sum of token, position and segment embeddings, normalized, and projected where narrower."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        dim = config.embedding_size or config.hidden_size
        self.token_embedding = nn.Embedding(config.vocab_size, dim)
        self.position_embedding = nn.Embedding(config.max_position_embeddings, dim)
        self.segment_embedding = nn.Embedding(config.type_vocab_size, dim) if config.type_vocab_size else None
        self.norm = nn.LayerNorm(dim, eps=config.layer_norm_eps)
        self.embedding_projection = nn.Linear(dim, config.hidden_size) if config.embedding_size else None

    def forward(self, input_ids: Tensor, positions: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """Map ids (batch, seq) to (tokens, dim); without ``token_type_ids`` all tokens are of segment 0."""
        embedded = self.token_embedding(input_ids) + self.position_embedding(positions)
        if self.segment_embedding is not None:
            embedded = embedded + (
                self.segment_embedding.weight[0] if token_type_ids is None else self.segment_embedding(token_type_ids)
            )
        normed: Tensor = self.norm(embedded.flatten(0, 1))
        return normed if self.embedding_projection is None else self.embedding_projection(normed)


class Layer(nn.Module):
    """Self-attention and feed-forward, each followed by residual and layer norm (post-norm)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        dim, eps = config.hidden_size, config.layer_norm_eps
        self.num_heads = config.num_attention_heads
        self.activation = ACTIVATIONS[config.hidden_act]
        self.qkv = nn.Linear(dim, 3 * dim)
        self.attention_output = nn.Linear(dim, dim)
        self.attention_norm = nn.LayerNorm(dim, eps=eps)
        self.ffn_up = nn.Linear(dim, config.intermediate_size)
        self.ffn_down = nn.Linear(config.intermediate_size, dim)
        self.ffn_norm = nn.LayerNorm(dim, eps=eps)

    def forward(self, x: Tensor, mask: Tensor, rows: Tensor | None = None) -> Tensor:
        """Map (tokens, dim) to (tokens, dim), or to the outputs (rows, dim) of ``rows``; ``mask`` is (batch, seq)."""
        context = self_attention(x, self.qkv, mask, self.num_heads)
        if rows is not None:
            context, x = context[rows], x[rows]
        x = self.attention_norm(self.attention_output(context) + x)
        x = self.ffn_norm(self.ffn_down(self.activation(self.ffn_up(x))) + x)
        return x


class Bert(nn.Module):
    """The encoder: token ids in, hidden states out."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        layers = 1 if config.shared_layers else config.num_hidden_layers
        self.layers = nn.ModuleList(Layer(config) for _ in range(layers))

    def encode(
        self, input_ids: Tensor, mask: Tensor, token_type_ids: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Map ids and a boolean mask, (batch, seq), to hidden states (tokens, dim).

        Positions count real tokens, so padding may stand anywhere; its hidden states are finite and meaningless.
        ``rows`` (n,), row * seq + position, selects tokens: the result is (n, dim), and the last layer computes no
        others.
        """
        positions = real_positions(mask) + self.config.position_offset  # (batch, seq)
        x: Tensor = self.embeddings(input_ids, positions, token_type_ids)  # (tokens, dim)
        last = self.config.num_hidden_layers - 1
        for number in range(last + 1):
            x = self.layers[number % len(self.layers)](x, mask, rows if number == last else None)
        return x

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Map integer tensors (batch, seq) to hidden states (batch, seq, dim), zero at padding."""
        mask = attention_mask != 0
        hidden = self.encode(input_ids, mask, token_type_ids)
        return hidden.reshape(*mask.shape, hidden.shape[-1]) * mask[..., None]
