"""Score pre-trained models, checkpoints and pairs of bundles, on the same pairs with the same tokens masked.

``pretrain_bert.py`` imports this. A model is a function from a batch to logits: (rows, vocab) for the masked tokens
and (batch, 2) for the pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from edgebert import Bundle
from edgebert.checkpoints import open_checkpoint
from edgebert.models.bert.heads import HeadedBert
from edgebert.models.bert.pretraining import MASKED, NEXT, BertPreTraining
from edgebert.training.bert_pretraining import Batch, Document
from edgebert_runtime.session.session import open_session

Answers: TypeAlias = "tuple[Tensor, Tensor]"
Answering: TypeAlias = "Callable[[Batch], Answers]"


class Score(NamedTuple):
    """Cross-entropy in nats and accuracy of both tasks, and the numbers of ``tokens`` and ``pairs``."""

    token_loss: float
    token_accuracy: float
    pair_loss: float
    pair_accuracy: float
    tokens: int
    pairs: int

    def __str__(self) -> str:
        return (
            f"masked tokens {self.token_loss:.3f} nats {self.token_accuracy:6.1%}   "
            f"next sentence {self.pair_loss:.3f} nats {self.pair_accuracy:6.1%}"
        )


@torch.inference_mode()
def judge(answering: Answering, test: Sequence[Batch]) -> Score:
    """Return what the answers to all batches are worth."""
    rows: tuple[list[Tensor], list[Tensor]] = ([], [])  # of each task, what each answer costs and whether it is right
    for batch in test:
        targets = batch.labels.flatten()[batch.chosen], batch.next_labels
        for part, logits, labels in zip(rows, answering(batch), targets, strict=True):
            costs = functional.cross_entropy(logits, labels, reduction="none")
            part.append(torch.stack([costs, (logits.argmax(1) == labels).float()]))
    tokens, pairs = (torch.cat(part, 1) for part in rows)
    (token_loss, token_accuracy), (pair_loss, pair_accuracy) = tokens.mean(1).tolist(), pairs.mean(1).tolist()
    return Score(token_loss, token_accuracy, pair_loss, pair_accuracy, tokens.shape[1], pairs.shape[1])


def from_model(model: BertPreTraining) -> Answering:
    """Return what asks a model that is being trained."""
    return lambda batch: model(batch.input_ids, batch.attention_mask, batch.token_type_ids, batch.chosen)


def from_checkpoint(folder: Path) -> Answering:
    """Return what asks the models of a checkpoint, one for each task."""
    masked, following = (open_checkpoint(folder, task=task).load_model() for task in (MASKED, NEXT))
    assert isinstance(masked, HeadedBert)
    assert isinstance(following, HeadedBert)

    def answer(batch: Batch) -> Answers:
        inputs = batch.input_ids, batch.attention_mask, batch.token_type_ids
        return masked(*inputs, batch.chosen), following(*inputs)

    return answer


def from_bundles(folders: Sequence[Path]) -> Answering:
    """Return what runs the graphs of two bundles, one for each task."""
    graphs = [Bundle.open(folder).graph("model") for folder in folders]
    sessions = [open_session(folder / graph.file) for folder, graph in zip(folders, graphs, strict=True)]

    def answer(batch: Batch) -> Answers:
        inputs = {**batch._asdict(), "logits_indices": batch.chosen}
        feeds = [{spec.name: inputs[spec.name].numpy() for spec in graph.inputs} for graph in graphs]
        masked, following = (s.run(["logits"], feed)[0] for s, feed in zip(sessions, feeds, strict=True))
        return torch.from_numpy(masked), torch.from_numpy(following)

    return answer


def frequencies(documents: Sequence[Document], size: int) -> Answering:
    """Return a baseline: token frequencies for each mask, and equal shares of yes and no for each pair."""
    ids = torch.tensor([id for document in documents for sentence in document for id in sentence])
    logits = (torch.bincount(ids, minlength=size) + 1).log()  # (vocab,)
    return lambda batch: (logits.expand(len(batch.chosen), size), torch.zeros(len(batch.next_labels), 2))
