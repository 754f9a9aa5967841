"""Heads that differ from the table they are tied to are exported and quantized as they stand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from edgebert.checkpoints import open_checkpoint
from edgebert_exporters import export_checkpoint, quantize_bundle
from edgebert_runtime import Generator, MaskFiller, load
from tests.support.sharing import Once
from tests.support.tiny import write_checkpoint

HEADS = {"gpt2": ("generate", "lm_head.weight", "transformer.wte.weight"),
         "bert": ("fill-mask", "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight")}  # fmt: skip


def write(folder: Path, kind: str) -> Path:
    """Write a model whose head is another than the table, though config.json ties the two."""
    task, head, table = HEADS[kind]
    write_checkpoint(folder, task=task, model_type=kind)
    tensors = load_file(folder / "model.safetensors")
    tensors[head] = torch.randn(tensors[table].shape, generator=torch.Generator().manual_seed(3)) * 0.4
    save_file(tensors, folder / "model.safetensors")
    assert json.loads((folder / "config.json").read_text()).get("tie_word_embeddings", True)
    return folder


@pytest.mark.parametrize("kind", HEADS)
def test_bundles(tmp_path: Path, once: Once, kind: str) -> None:
    """The bundle is verified, and its eight-bit form quantizes table and head apart."""
    folder = write(tmp_path / "checkpoint", kind)
    head = open_checkpoint(folder).head
    assert head is not None
    assert not head.tied
    export_checkpoint(folder, tmp_path / "float")
    quantize_bundle(tmp_path / "float", tmp_path / "int8", scheme="int8")
    engines = load(tmp_path / "float"), load(tmp_path / "int8")
    for engine in engines:
        assert isinstance(engine, Generator | MaskFiller)
    tensors = engines[1].bundle.manifest.weights
    assert tensors.scheme == "int8"
    if fillers := [engine for engine in engines if isinstance(engine, MaskFiller)]:
        exact, rounded = (filler.fill(["the [MASK] school"], top_k=3)[0][0] for filler in fillers)
        assert exact[0].token == rounded[0].token
        np.testing.assert_allclose([f.score for f in exact], [f.score for f in rounded], atol=0.05)
