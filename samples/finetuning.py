"""The parts that the samples of fine-tuning share: a tiny encoder, saving, bundles, and engines over PyTorch.

Imported by ``finetune_tagger.py``, ``finetune_spans.py`` and ``example_bundles.py``; does nothing by itself.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer

import edgebert
from edgebert.models.bert.heads import HeadedBert
from edgebert.models.bert.model import Bert, BertConfig
from edgebert.training import initialize, save_checkpoint
from edgebert_exporters import export_checkpoint, quantize_bundle

sys.path.insert(0, str(Path(__file__).parent))
from training_run import beside  # noqa: E402
from vocabularies import word_pieces  # noqa: E402

VOCABULARY = 1000
REPORTS = 8  # how often a run says how far it is


class Reference:
    """A PyTorch model in place of an engine's ONNX Runtime session."""

    def __init__(self, model: HeadedBert) -> None:
        self.model = model

    def run(
        self, output_names: Sequence[str] | None, feeds: Mapping[str, npt.NDArray[Any]]
    ) -> Sequence[npt.NDArray[Any]]:
        """Compute all outputs of the task, in the order of the engine."""
        names = ("input_ids", "attention_mask", "token_type_ids")
        with torch.inference_mode():
            outputs = self.model(*(torch.from_numpy(np.ascontiguousarray(feeds[name])) for name in names))
        return [tensor.numpy() for tensor in (outputs if isinstance(outputs, tuple) else (outputs,))]


def tiny_encoder(folder: Path, texts: Sequence[str]) -> Path:
    """Save an untrained encoder with a vocabulary of ``texts``, and return its folder."""
    tokenizer = word_pieces(texts, VOCABULARY)
    bert = Bert(
        BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
            max_position_embeddings=128,
        )
    )
    initialize(bert)
    return save_checkpoint(
        folder, bert, tokenizer, model_type="bert", task="embed", config={"architectures": ["BertModel"]}
    )


def save(folder: Path, model: HeadedBert, tokenizer: Tokenizer, task: str, config: Mapping[str, Any]) -> Path:
    """Save what was learned on top of a BERT as a checkpoint."""
    return save_checkpoint(folder, model, tokenizer, model_type="bert", task=task, config=config)


def engines(checkpoint: Path, model: HeadedBert, calibration: Sequence[str]) -> dict[str, tuple[Any, float]]:
    """Export and quantize a checkpoint, and return three engines with their size in megabytes, by name.

    The first runs ``model`` in PyTorch; all read texts and logits in the same way. The bundles stand beside the
    checkpoint.
    """
    places = beside(checkpoint, "bundle", "int8")
    exact = export_checkpoint(checkpoint, places[0], force=True)
    small = quantize_bundle(exact.path, places[1], calibration=calibration, force=True)
    kind: Any = type(edgebert.load(exact.path))
    return {
        "PyTorch": (kind(exact, session=Reference(model)), size(checkpoint)),
        "fp32 bundle": (edgebert.load(exact.path), size(exact.path)),
        "int8 bundle": (edgebert.load(small.path), size(small.path)),
    }


def size(folder: Path) -> float:
    """Return the megabytes of the files of a folder."""
    return sum(file.stat().st_size for file in folder.iterdir()) / 1e6
