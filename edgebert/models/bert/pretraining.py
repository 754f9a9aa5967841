"""BERT with the two heads of its pre-training (Devlin et al., 2019, section 3.1).

They are masked language modelling and next-sentence prediction. Either, with the encoder, is a
:class:`~edgebert.models.bert.heads.HeadedBert`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgebert.models.bert.heads import Head, HeadConfig, HeadedBert
from edgebert.models.bert.model import Bert, BertConfig
from edgebert.models.mask_positions import first_rows

MASKED, NEXT = "fill-mask", "next-sentence"


def pretraining_heads(config: BertConfig) -> dict[str, HeadConfig]:
    """Return the heads of the two tasks by name."""
    return {
        MASKED: HeadConfig(
            reads="chosen",
            num_outputs=config.vocab_size,
            activation=config.hidden_act,
            hidden_size=config.embedding_size or config.hidden_size,
            norm=True,
            tied=True,
        ),
        NEXT: HeadConfig(reads="first", num_outputs=2, activation="tanh", hidden_size=config.hidden_size),
    }


class BertPreTraining(nn.Module):
    """An encoder with both heads of its pre-training."""

    def __init__(self, bert: Bert) -> None:
        super().__init__()
        self.bert = bert
        self.heads = nn.ModuleDict({task: Head(bert, head) for task, head in pretraining_heads(bert.config).items()})

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor,
        logits_indices: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Map integer tensors (batch, seq) to logits of tokens (rows, vocab) and of pairs (batch, 2).

        ``logits_indices`` (rows,), row * seq + position, are the masked tokens. The first logit of a pair is for a
        second text that follows the first.
        """
        mask, embedding = attention_mask != 0, self.bert.embeddings.token_embedding.weight
        rows = torch.cat([logits_indices, first_rows(mask)])  # the last layer computes no others
        hidden = self.bert.encode(input_ids, mask, token_type_ids, rows)
        masked, first = hidden[: len(logits_indices)], hidden[len(logits_indices) :]
        return self.heads[MASKED](masked, embedding), self.heads[NEXT](first, embedding)

    def with_head(self, task: str) -> HeadedBert:
        """Return the encoder with the head of ``task`` alone; the weights are shared, not copied."""
        head = self.heads[task]
        assert isinstance(head, Head)
        headed = HeadedBert(self.bert, head.config)
        headed.head = head
        return headed.train(self.training)
