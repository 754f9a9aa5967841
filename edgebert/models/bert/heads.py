"""The task heads of BERT.

Every head of the BERT paper and of its descendants has one form: an optional hidden layer with activation and layer
norm, then a linear layer. They differ in the hidden states they read and in their sizes, which are data:

===============  ===========================  ======================================================
task             reads                        output
===============  ===========================  ======================================================
classify         the first token (``[CLS]``)  ``logits`` (batch, labels)
                 or the mean of all
next-sentence    the first token              ``logits`` (batch, 2)
rerank,          the first token              ``logits`` (batch, 1), one for each pair of texts
multiple-choice
tag              every token                  ``logits`` (batch, seq, labels)
answer           every token                  ``start_logits`` and ``end_logits`` (batch, seq)
fill-mask        chosen tokens                ``logits`` (rows, vocab)
===============  ===========================  ======================================================
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgebert.models.activations import ACTIVATIONS
from edgebert.models.bert.model import Bert
from edgebert.models.mask_positions import first_rows, last_rows, masked_mean

ROWS = {"first": first_rows, "last": last_rows}
READS = (*ROWS, "mean", "every", "chosen")


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """The configuration of a head.

    Attributes:
        reads: ``first`` or ``last`` (real token of each row), ``mean`` (of the row's real tokens), ``every`` (token)
            or ``chosen`` (tokens, by ``logits_indices``).
        num_outputs: The width of the logits.
        activation: The activation of the hidden layer; None is no hidden layer.
        hidden_size: The width of the hidden layer.
        norm: Whether the hidden layer has a layer norm.
        bias: Whether the last layer has a bias.
        tied: Whether the last layer is the token embedding.
        binary: Whether one number x stands for the two outputs 0 and x (the discriminator of ELECTRA).
        spans: Whether the two outputs are start and end, returned apart.

    Raises:
        ValueError: naming an impossible field with its value.
    """

    reads: str
    num_outputs: int
    activation: str | None = None
    hidden_size: int | None = None
    norm: bool = False
    bias: bool = True
    tied: bool = False
    binary: bool = False
    spans: bool = False

    def __post_init__(self) -> None:
        if self.reads not in READS:
            raise ValueError(f"reads={self.reads!r} is not one of {', '.join(READS)}")
        if self.activation is not None and self.activation not in ACTIVATIONS:
            raise ValueError(f"activation={self.activation!r} is not one of {', '.join(ACTIVATIONS)}")
        if (self.activation is None) != (self.hidden_size is None):
            raise ValueError(f"activation={self.activation!r} goes with hidden_size={self.hidden_size!r} only")
        if (self.binary or self.spans) and self.num_outputs != 2:
            raise ValueError(f"num_outputs={self.num_outputs} where there are two")


class Head(nn.Module):
    """An optional hidden layer and a linear layer, from (n, dim) to (n, outputs)."""

    def __init__(self, bert: Bert, config: HeadConfig) -> None:
        super().__init__()
        dim = config.hidden_size or bert.config.hidden_size
        self.config = config
        self.dense = nn.Linear(bert.config.hidden_size, dim) if config.activation else None
        self.activation = ACTIVATIONS[config.activation] if config.activation else None
        self.norm = nn.LayerNorm(dim, eps=bert.config.layer_norm_eps) if config.norm else None
        self.out = None if config.tied else nn.Linear(dim, 1 if config.binary else config.num_outputs, bias=config.bias)
        self.bias = nn.Parameter(torch.zeros(config.num_outputs)) if config.tied and config.bias else None

    def forward(self, hidden: Tensor, embedding: Tensor) -> Tensor:
        """Map hidden states (n, dim) to logits (n, outputs); ``embedding`` (outputs, dim) is for a tied head."""
        if self.dense is not None and self.activation is not None:
            hidden = self.activation(self.dense(hidden))
        if self.norm is not None:
            hidden = self.norm(hidden)
        logits: Tensor = functional.linear(hidden, embedding, self.bias) if self.out is None else self.out(hidden)
        return torch.cat([torch.zeros_like(logits), logits], dim=-1) if self.config.binary else logits


class HeadedBert(nn.Module):
    """An encoder with a task head."""

    def __init__(self, bert: Bert, config: HeadConfig) -> None:
        super().__init__()
        self.bert = bert
        self.head = Head(bert, config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        logits_indices: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, ...]:
        """Map integer tensors (batch, seq) to the outputs in the table of this module.

        ``logits_indices`` (rows,), row * seq + position, are the tokens that a head for chosen tokens reads.
        """
        mask, config = attention_mask != 0, self.head.config
        rows = ROWS[config.reads](mask) if config.reads in ROWS else logits_indices
        hidden = self.bert.encode(input_ids, mask, token_type_ids, rows)
        if config.reads == "mean":
            hidden = masked_mean(hidden, mask)
        logits: Tensor = self.head(hidden, self.bert.embeddings.token_embedding.weight)
        if config.reads == "every":
            logits = logits.reshape(*mask.shape, config.num_outputs)
        return logits.unbind(-1) if config.spans else logits
