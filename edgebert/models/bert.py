"""BERT (Devlin et al., 2019), as published in bert-base-uncased and all-MiniLM-L6-v2.

Read from top to bottom: configuration, embeddings, one encoder layer, the encoder, sentence vectors. Activations
are (tokens, dim), the rows of the batch below each other, so that every linear layer is one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgebert.models.operators import self_attention

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_new": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
    "swish": functional.silu,
    "tanh": torch.tanh,
}
POOLINGS = ("cls", "mean", "max", "last")


@dataclass(frozen=True, kw_only=True)
class BertConfig:
    """The sizes of a BERT, in the names of its published config.json.

    Raises:
        ValueError: naming every field that makes no sense, with its value.
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
    with_pooler: bool = True

    def __post_init__(self) -> None:
        problems = []
        for field in fields(self):
            value, limit = getattr(self, field.name), LIMITS.get(field.name, 1 << 24)
            if field.type == "int" and (type(value) is not int or not 1 <= value <= limit):
                problems.append(f"{field.name}={value!r:.60} is not a whole number from 1 to {limit}")
        if not problems and self.hidden_size % self.num_attention_heads:
            problems.append(
                f"hidden_size={self.hidden_size} is not divisible by num_attention_heads={self.num_attention_heads}"
            )
        if not isinstance(self.layer_norm_eps, float) or not 0 < self.layer_norm_eps < 1:
            problems.append(f"layer_norm_eps={self.layer_norm_eps!r:.60} is not a number between 0 and 1")
        if not isinstance(self.hidden_act, str) or self.hidden_act not in ACTIVATIONS:
            problems.append(f"hidden_act={self.hidden_act!r:.60} is not one of {', '.join(ACTIVATIONS)}")
        if problems:
            raise ValueError("; ".join(problems))


LIMITS = {"num_hidden_layers": 1000, "hidden_size": 65536, "intermediate_size": 1 << 20}


class Embeddings(nn.Module):
    """Sum of token, position and segment embeddings, normalised."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.segment = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, input_ids: Tensor, positions: Tensor, token_type_ids: Tensor) -> Tensor:
        """Take three (batch, seq) index tensors to (tokens, dim)."""
        embedded = self.token(input_ids) + self.position(positions) + self.segment(token_type_ids)
        normed: Tensor = self.norm(embedded.flatten(0, 1))
        return normed


class Layer(nn.Module):
    """Self-attention and feed-forward, each followed by residual and normalisation (post-norm)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        dim, eps = config.hidden_size, config.layer_norm_eps
        self.num_heads = config.num_attention_heads
        self.activation = ACTIVATIONS[config.hidden_act]
        self.qkv = nn.Linear(dim, 3 * dim)
        self.attention_out = nn.Linear(dim, dim)
        self.attention_norm = nn.LayerNorm(dim, eps=eps)
        self.expand = nn.Linear(dim, config.intermediate_size)
        self.contract = nn.Linear(config.intermediate_size, dim)
        self.output_norm = nn.LayerNorm(dim, eps=eps)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Take (tokens, dim) to (tokens, dim); ``mask`` is (batch, seq)."""
        mixed = self_attention(x, self.qkv, mask, self.num_heads)
        x = self.attention_norm(self.attention_out(mixed) + x)
        x = self.output_norm(self.contract(self.activation(self.expand(x))) + x)
        return x


class Bert(nn.Module):
    """The encoder with its pooler: token ids in, hidden states out."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if config.with_pooler else None

    def encode(self, input_ids: Tensor, mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Take (batch, seq) tensors, the mask of booleans, to hidden states (batch, seq, dim).

        Positions count the real tokens of a row, so that a row gives the same wherever its padding stands. Hidden
        states of padding are finite but mean nothing.
        """
        positions = (mask.to(torch.int64).cumsum(1) - 1).clamp(min=0)  # (batch, seq)
        x: Tensor = self.embeddings(input_ids, positions, token_type_ids)  # (batch * seq, dim)
        for layer in self.layers:
            x = layer(x, mask)
        return x.reshape(*mask.shape, x.shape[-1])

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Take (batch, seq) integer tensors to the last hidden states (batch, seq, dim), zero at padding."""
        mask = attention_mask != 0
        return self.encode(input_ids, mask, token_type_ids) * mask[..., None]

    def pool(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """Take hidden states (batch, seq, dim) to the pooler's output (batch, dim), which NSP and classifiers read.

        Raises:
            ValueError: if the checkpoint has no pooler.
        """
        if self.pooler is None:
            raise ValueError("this model has no pooler")
        first = attention_mask.argmax(1)  # the first real token, wherever the padding stands
        pooled: Tensor = self.pooler(hidden[torch.arange(len(hidden)), first]).tanh()
        return pooled


class SentenceEncoder(nn.Module):
    """A BERT with the pooling that makes one vector of a text (Reimers and Gurevych, 2019).

    ``cls`` and ``last`` take the first and last real token, ``mean`` and ``max`` all real tokens; ``normalize``
    brings each vector to length 1. A row without any real token gives the zero vector.
    """

    def __init__(self, bert: Bert, pooling: str, normalize: bool) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise ValueError(f"pooling={pooling!r} is not one of {', '.join(POOLINGS)}")
        self.bert = bert
        self.pooling = pooling
        self.normalize = normalize

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Take (batch, seq) integer tensors to sentence vectors (batch, dim)."""
        mask = attention_mask != 0
        vectors = self.pooled(self.bert.encode(input_ids, mask, token_type_ids), mask)
        if self.normalize:
            vectors = vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1e-12)
        return vectors

    def pooled(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Pool (batch, seq, dim) over the true positions of ``mask`` (batch, seq) to (batch, dim)."""
        real = mask[..., None]  # (batch, seq, 1)
        if self.pooling == "mean":
            return torch.where(real, hidden, 0.0).sum(1) / real.sum(1).clamp(min=1)
        if self.pooling == "max":
            return torch.where(mask.any(1, keepdim=True), torch.where(real, hidden, -torch.inf).amax(1), 0.0)
        places = torch.arange(mask.shape[1], device=mask.device)  # (seq,)
        if self.pooling == "cls":
            chosen = torch.where(mask, places, mask.shape[1]).amin(1, keepdim=True)  # (batch, 1)
        else:
            chosen = torch.where(mask, places, -1).amax(1, keepdim=True)
        return torch.where((places == chosen)[..., None], hidden, 0.0).sum(1)
