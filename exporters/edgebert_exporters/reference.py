"""The PyTorch reference as a function from a batch to its output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from edgebert.checkpoints import open_checkpoint
from edgebert.models.bert import SentenceEncoder
from edgebert_exporters.grid import Batch
from edgebert_exporters.parity import Floats, Reference


def load_reference(checkpoint: Path, pooling: str, normalize: bool) -> SentenceEncoder:
    """Load the PyTorch reference of the ``embed`` task."""
    return SentenceEncoder(open_checkpoint(checkpoint).load_model(), pooling, normalize).eval()


def reference_of(module: torch.nn.Module) -> Reference:
    """Wrap a PyTorch module as a function from a batch to its output."""

    def run(batch: Batch) -> Floats:
        with torch.inference_mode():
            output = module(*(torch.from_numpy(np.ascontiguousarray(x)) for x in batch.feeds.values()))
        result: Floats = output.numpy()
        return result

    return run
