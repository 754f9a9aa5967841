"""Folders of sentence-transformers, opened by it and by our engine over the PyTorch reference: no graph is made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentence_transformers
import torch
from transformers.utils import logging

from edgebert.checkpoints import open_checkpoint
from edgebert_exporters.graphs.task_models import prepare
from edgebert_exporters.inference.batch import Batch
from edgebert_exporters.inference.pytorch_reference import reference_of
from edgebert_runtime import ENGINES, Bundle
from edgebert_runtime.bundle.manifest import GraphSpec, Limits, Manifest, Weights
from edgebert_runtime.inputs.tokenizer import TOKENIZER_NAME

logging.set_verbosity_error()
logging.disable_progress_bar()


class Reference:
    """The PyTorch reference of a checkpoint as a session."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.compute = reference_of(module)

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> Any:
        """Compute all outputs."""
        return self.compute(Batch("a call", dict(feeds)))


def put(folder: Path, name: str, data: object) -> None:
    """Write a JSON file into ``folder``."""
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(data), encoding="utf-8")


def update(folder: Path, name: str, **entries: object) -> None:
    """Add entries to a JSON file of ``folder``, which may not be there yet."""
    data = json.loads((folder / name).read_text(encoding="utf-8")) if (folder / name).exists() else {}
    put(folder, name, {**data, **entries})


def engine_of(folder: Path, task: str | None = None, dim: int | None = None, pooling: str | None = None) -> Any:
    """Return the engine that an export of the checkpoint would give, over its PyTorch reference."""
    checkpoint = open_checkpoint(folder, task=task)
    model = prepare(checkpoint, pooling, dim=dim)
    bundle = folder / "bundle"
    bundle.mkdir(exist_ok=True)
    (bundle / TOKENIZER_NAME).write_text(checkpoint.tokenizer_json, encoding="utf-8")
    (graph,) = model.graphs.values()
    manifest = Manifest(
        edgebert_version="0",
        family=checkpoint.family,
        task=checkpoint.task,
        target="portable",
        config={},
        graphs={"model": GraphSpec("model.onnx", graph.signature.inputs, graph.signature.outputs)},
        settings=model.settings,
        limits=Limits(checkpoint.config.vocab_size, checkpoint.max_tokens, checkpoint.default_tokens),
        weights=Weights("fp32", 0),
        files={},
    )
    engine: Any = ENGINES[manifest.task]
    return engine(Bundle(bundle, Manifest.from_json(manifest.to_json())), session=Reference(model.reference))


def sentence_transformer(folder: Path) -> Any:
    """Open the folder with sentence-transformers."""
    return sentence_transformers.SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def assert_equal(ours: Any, theirs: Any) -> None:
    """Compare vectors (n, dim) of ours with those of sentence-transformers."""
    assert np.shape(ours) == np.shape(theirs)
    np.testing.assert_allclose(ours, theirs, atol=2e-5)
