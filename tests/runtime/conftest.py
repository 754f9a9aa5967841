"""Fixtures of the runtime's tests: the shared tiny bundles with a tokenizer and limits to try them on."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import normalizers

from edgebert.models.bert import SentenceEncoder
from edgebert_exporters.reference import load_reference
from edgebert_runtime import Bundle, Embedder
from edgebert_runtime.bundle import sha256
from edgebert_runtime.manifest import MANIFEST_NAME

Rewrite = Callable[..., Path]


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
    return load_reference(checkpoint, "mean", True)


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
