"""Fixtures of the command line's tests: a runner, a fake engine, and a tiny checkpoint with its bundle."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file

import edgebert_exporters
import edgebert_runtime
from edgebert.cli import main
from edgebert.models.bert import Bert, BertConfig
from edgebert.weight_files import to_published
from tests.cli import fake

Run = Callable[..., Result]

CONFIG: dict[str, Any] = {
    "vocab_size": 31,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 24,
}
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(chr, range(ord("a"), ord("z") + 1))]


@pytest.fixture(scope="session")
def run() -> Run:
    """Return a function that runs the command line in this process."""

    def invoke(*args: object, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(main, [str(arg) for arg in args], input=stdin)

    return invoke


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[bytes]]:
    """Return a function that starts the command line over a fake engine in another process."""

    def popen(*args: object, **options: Any) -> subprocess.Popen[bytes]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen([sys.executable, fake.__file__, *map(str, args)], **pipes)

    return popen


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> fake.FakeEngine:
    """Put a fake engine in the place of every bundle."""
    engine = fake.FakeEngine()

    def load(folder: Path, **options: Any) -> fake.FakeEngine:
        engine.loads.append((folder, options))
        return engine

    monkeypatch.setattr(edgebert_runtime, "load", load)
    return engine


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny checkpoint of a sentence encoder, in which a letter is a token."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("checkpoint")
    weights = to_published(Bert(BertConfig(**CONFIG)).state_dict())
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "hidden_act": "gelu", **CONFIG}))
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    return folder


@pytest.fixture(scope="session")
def bundle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bundle of the checkpoint."""
    folder = tmp_path_factory.mktemp("bundles") / "tiny"
    edgebert_exporters.export_checkpoint(checkpoint, folder, pooling="mean", normalize=True)
    return folder
