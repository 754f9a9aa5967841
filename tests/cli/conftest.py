"""Fixtures of the command line's tests: a runner, a manifest, and fakes in place of the library."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from edgebert.cli import main
from edgebert_runtime.manifest import FileEntry, GraphSpec, Limits, Manifest, TensorSpec, Weights

FAKE = Path(__file__).with_name("fake.py")

Run = Callable[..., Result]


@pytest.fixture
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
        return subprocess.Popen([sys.executable, str(FAKE), *map(str, args)], **pipes)

    return popen


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a fake engine in the place of every bundle."""
    import edgebert_runtime

    fake = runpy.run_path(str(FAKE))["FakeEngine"]()
    fake.loads = []

    def load(folder: Path, **options: Any) -> Any:
        fake.loads.append((folder, options))
        return fake

    monkeypatch.setattr(edgebert_runtime, "load", load, raising=False)
    return fake


@pytest.fixture
def manifest() -> Manifest:
    """Return a manifest in which everything is filled in."""
    ids = TensorSpec("input_ids", "int64", ("batch", "sequence"))
    vectors = TensorSpec("sentence_embedding", "float32", ("batch", 3))
    return Manifest(
        edgebert_version="0.1.0",
        family="bert",
        task="embed",
        target="cpu",
        config={"hidden_size": 3, "num_hidden_layers": 2},
        graphs={"model": GraphSpec("model.onnx", (ids,), (vectors,))},
        settings={"pooling": "mean", "normalize": True, "dim": 3},
        limits=Limits(vocab_size=30522, max_tokens=512, default_tokens=256),
        weights=Weights("int8", 1_234_567, (5, 6), {"pooler": "excluded"}),
        files={"model.onnx": FileEntry(1_234_567, "0" * 64), "tokenizer.json": FileEntry(700, "1" * 64)},
        verification={"cases": 36, "max_abs_error": 1.25e-06},
        report={"coverage": {"quantized": 5, "eligible": 6}, "fidelity": {"cosine": {"min": 0.997}}},
    )
