"""Train a reference model and save it as a checkpoint that ``edgebert export`` reads.

:func:`train` takes a module, an iterable of batches and a function from the two to a :class:`Loss`; what the model is
and what the batches are is the caller's affair. Everything else is data: a :class:`TrainingConfig` says how, a
:class:`Progress` what has been reached. Batches and losses of BERT's pre-training are in
:mod:`edgebert.training.bert_pretraining`.
"""

from __future__ import annotations

from edgebert.training.initialization import initialize
from edgebert.training.save_checkpoint import save_checkpoint
from edgebert.training.trainer import Loss, Progress, train
from edgebert.training.training_config import TrainingConfig

__all__ = ["Loss", "Progress", "TrainingConfig", "initialize", "save_checkpoint", "train"]
