"""Fixtures of the runtime's tests: the shared tiny bundles with a tokenizer and limits to try them on."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from tokenizers import normalizers

from edgebert.checkpoints import open_checkpoint
from edgebert.models.pooling import SentenceEncoder
from edgebert_exporters import export_checkpoint
from edgebert_exporters.inference.pytorch_reference import load_reference
from edgebert_runtime import Bundle, Embedder, MaskFiller
from edgebert_runtime.bundle.manifest import MANIFEST_NAME
from edgebert_runtime.bundle.reader import sha256
from tests.support.sharing import Once
from tests.support.tiny import write_checkpoint

Rewrite = Callable[..., Path]


@dataclass(frozen=True)
class Tiny:
    """A tiny checkpoint of a task and the bundle made of it."""

    checkpoint: Path
    bundle: Path
    task: str

    @functools.cached_property
    def model(self) -> torch.nn.Module:
        """The PyTorch reference."""
        return open_checkpoint(self.checkpoint, task=self.task).load_model()

    def logits(self, ids: list[int], types: list[int] | None = None) -> Any:
        """Return what the reference gives for one row of token ids."""
        row = torch.tensor([ids])
        with torch.no_grad():
            return self.model(row, torch.ones_like(row), torch.tensor([types or [0] * len(ids)]))[0].numpy()


@pytest.fixture(scope="session")
def tiny(task_checkpoint: Callable[[str], Path], task_bundle: Callable[[str], Path], once: Once) -> Callable[..., Tiny]:
    """Return a function from a task and a model type to checkpoint and bundle, to be read only."""

    @functools.cache
    def make(task: str, model_type: str = "bert") -> Tiny:
        if model_type == "bert":
            return Tiny(task_checkpoint(task), task_bundle(task), task)
        name = f"{task}-{model_type}"
        source = once(f"checkpoint-{name}", lambda folder: write_checkpoint(folder, task=task, model_type=model_type))
        return Tiny(source, once(name, lambda folder: export_checkpoint(source, folder, task=task)), task)

    return make


@pytest.fixture(scope="module")
def case(request: pytest.FixtureRequest, tiny: Callable[..., Tiny]) -> Tiny:
    """Return checkpoint and bundle of the task that a module of tests names as its TASK."""
    bundle: Tiny = tiny(request.module.TASK)
    return bundle


class Scripted:
    """A session that gives what a function of ids, mask and segments (batch, seq) says, and notes what it is asked."""

    def __init__(self, answer: Callable[[Any, Any, Any], Any]) -> None:
        self.answer = answer
        self.feeds: list[Any] = []

    def run(self, output_names: Any, feeds: Any) -> Any:
        self.feeds.append(feeds)
        ids, mask = feeds["input_ids"], feeds["attention_mask"]
        return [np.asarray(self.answer(ids * mask, mask, feeds.get("token_type_ids")), np.float32)]


class Logits:
    """A session that gives every chosen position the logits of a function of its row of ids, and notes its feeds."""

    def __init__(self, answer: Callable[[list[int]], Any]) -> None:
        self.answer = answer
        self.feeds: list[Any] = []

    def run(self, output_names: Any, feeds: Any) -> Any:
        self.feeds.append(feeds)
        width = feeds["input_ids"].shape[1]
        rows = [feeds["input_ids"][index // width].tolist() for index in feeds["logits_indices"]]
        return [np.array([self.answer(row) for row in rows], np.float32)]


def scripted(engine: MaskFiller, **scores: float) -> MaskFiller:
    """Return an engine that gives the tokens named their logits at each mask, and all others -50."""
    logits = np.full(engine.bundle.manifest.limits.vocab_size, -50.0)
    for token, score in scores.items():
        logits[engine._tokenizer.inner.token_to_id(token)] = score
    return MaskFiller(engine.bundle, session=Logits(lambda row: logits))


@pytest.fixture(scope="session")
def tokenizer_json(fp32_bundle: Path) -> str:
    """Make a WordPiece tokenizer with the truncation and padding that its author last used still in the file."""
    tokenizer = tokenizers.Tokenizer.from_file(str(fp32_bundle / "tokenizer.json"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=6)
    text: str = tokenizer.to_str()
    return text


@pytest.fixture(scope="session")
def reference(checkpoint: Path) -> SentenceEncoder:
    """Return the PyTorch model of the bundle."""
    model = load_reference(checkpoint, "mean", True)
    assert isinstance(model, SentenceEncoder)
    return model


def changed(
    source: Path,
    folder: Path,
    files: dict[str, bytes] | None = None,
    change: Callable[[dict[str, Any]], None] | None = None,
) -> Path:
    """Copy a bundle with other files or manifest entries, sizes and hashes up to date."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    data = json.loads((folder / MANIFEST_NAME).read_text())
    for name, content in (files or {}).items():
        (folder / name).write_bytes(content)
        data["files"][name] = {"bytes": len(content), "sha256": sha256(folder / name)}
    if change is not None:
        change(data)
    (folder / MANIFEST_NAME).write_text(json.dumps(data), encoding="utf-8")
    return folder


@pytest.fixture(scope="session", params=["fp32_bundle", "portable_bundle"], ids=["cpu", "portable"])
def folder(request: pytest.FixtureRequest, tokenizer_json: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a bundle that cuts texts at 16 tokens, once for each target; ``rewrite`` makes changed copies."""
    source: Path = request.getfixturevalue(request.param)

    def shorten(data: dict[str, Any]) -> None:
        data["limits"]["default_tokens"] = 16

    return changed(
        source, tmp_path_factory.mktemp(request.param) / "bundle", {"tokenizer.json": tokenizer_json.encode()}, shorten
    )


@pytest.fixture(scope="session")
def engine(folder: Path) -> Embedder:
    """Load the bundle."""
    return Embedder(Bundle.open(folder))


@pytest.fixture
def rewrite(folder: Path, tmp_path: Path) -> Rewrite:
    """Return a function that copies the bundle with other files or manifest entries."""
    return functools.partial(changed, folder, tmp_path / "bundle")


@pytest.fixture
def encode(reference: SentenceEncoder) -> Callable[[list[int]], Any]:
    """Return a function that gives the reference's vector of token ids."""

    def run(ids: list[int]) -> Any:
        row = torch.tensor([ids])
        with torch.no_grad():
            return reference(row, torch.ones_like(row), torch.zeros_like(row))[0].numpy()

    return run
