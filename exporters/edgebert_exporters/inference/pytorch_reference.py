"""The PyTorch reference as a function from a batch to its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgebert.checkpoints import open_checkpoint
from edgebert_exporters.graphs.signatures import arguments
from edgebert_exporters.graphs.task_models import prepare
from edgebert_exporters.inference.batch import Batch, Floats, Reference


def load_reference(
    checkpoint: Path,
    pooling: str | None = None,
    normalize: bool | None = None,
    *,
    task: str | None = None,
    problem_type: str | None = None,
    labels: Sequence[str] | None = None,
    allow_pickle: bool = False,
) -> torch.nn.Module:
    """Load the PyTorch reference of a task, with the options of an export."""
    opened = open_checkpoint(checkpoint, task=task, allow_pickle=allow_pickle, problem_type=problem_type, labels=labels)
    return prepare(opened, pooling, normalize).reference


def flat(outputs: Any) -> list[torch.Tensor]:
    """Return the tensors of nested outputs, in the order of the outputs of a graph."""
    return [outputs] if isinstance(outputs, torch.Tensor) else [tensor for part in outputs for tensor in flat(part)]


def reference_of(module: torch.nn.Module) -> Reference:
    """Wrap a PyTorch module as a function from a batch to its outputs."""

    def run(batch: Batch) -> list[Floats]:
        tensors = {name: torch.from_numpy(np.ascontiguousarray(x)) for name, x in batch.feeds.items()}
        with torch.inference_mode():
            outputs = module(**arguments(tensors))
        return [output.numpy() for output in flat(outputs)]

    return run
