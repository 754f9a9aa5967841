"""BERT as it is pre-trained (Devlin et al., 2019, section 3.1): one encoder under two heads.

One head guesses the tokens that were masked, the other says whether the second of two texts follows the first. Both are
heads of ``heads.py``, and either, with the encoder below it, is a :class:`~edgebert.models.bert.heads.HeadedBert`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgebert.models.bert.heads import Head, HeadConfig, HeadedBert
from edgebert.models.bert.model import Bert, BertConfig
from edgebert.models.mask_positions import first_rows

MASKED, NEXT = "fill-mask", "next-sentence"


def pretraining_heads(config: BertConfig) -> dict[str, HeadConfig]:
    """Return the heads of the two tasks, by their names."""
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
        """Take (batch, seq) integer tensors to logits (rows, vocab) of tokens and (batch, 2) of pairs of texts.

        ``logits_indices`` (rows,) are the tokens to be guessed, counted through the whole batch: row * seq + position.
        Of the logits of a pair the first stands for texts that follow each other.
        """
        mask, table = attention_mask != 0, self.bert.embeddings.token_embedding.weight
        rows = torch.cat([logits_indices, first_rows(mask)])  # the last layer computes no others
        hidden = self.bert.encode(input_ids, mask, token_type_ids, rows)
        masked, first = hidden[: len(logits_indices)], hidden[len(logits_indices) :]
        return self.heads[MASKED](masked, table), self.heads[NEXT](first, table)

    def with_head(self, task: str) -> HeadedBert:
        """Return the encoder with the head of ``task`` alone; the weights are shared, not copied."""
        head = self.heads[task]
        assert isinstance(head, Head)
        headed = HeadedBert(self.bert, head.config)
        headed.head = head
        return headed.train(self.training)
