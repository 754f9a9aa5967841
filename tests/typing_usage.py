"""Every public call as users spell it: checked by mypy, never run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import edgebert
import edgebert_runtime
from edgebert import Bundle, EdgebertError, Embedder, EmbedResult
from edgebert.checkpoints import Checkpoint, open_checkpoint
from edgebert.models.bert import Bert, BertConfig, SentenceEncoder
from edgebert_exporters import export_checkpoint, quantize_bundle, verify_bundle
from edgebert_runtime.benchmark import measure
from edgebert_runtime.manifest import GraphSpec, Manifest


def show(done: int, total: int | None) -> None:
    """Take the progress of an engine."""


def step(name: str, done: int, total: int) -> None:
    """Take the progress of an export."""


def loading(folder: Path) -> None:
    assert_type(edgebert.__version__, str)
    assert_type(edgebert.load("bundle/"), Embedder)
    assert_type(edgebert.load(folder, device="cuda:1", threads=4, verify="size"), Embedder)
    assert_type(edgebert_runtime.load(folder), Embedder)
    edgebert.load(folder, verify="none")  # type: ignore[arg-type]
    bundle = Bundle.open(folder, "size")
    assert_type(bundle, Bundle)
    assert_type(bundle.path, Path)
    assert_type(bundle.manifest, Manifest)
    assert_type(bundle.graph("model"), GraphSpec)
    assert_type(bundle.manifest.limits.max_tokens, int)
    assert_type(Manifest.from_json(bundle.manifest.to_json()), Manifest)
    assert_type(Embedder(bundle, device="auto", threads=None), Embedder)


def embedding(engine: Embedder, ids: NDArray[np.int64]) -> None:
    assert_type(engine.embed(["a text", "another"]), NDArray[np.float32])
    engine.embed([[101, 7592, 102], ids], max_tokens=64, truncate=False, max_batch_tokens=4096, progress=show)
    engine.embed((line for line in ["a", "b"]), errors="replace")
    engine.embed(["a"], errors="ignore")  # type: ignore[arg-type]
    result = engine.embed_detailed(["a"], max_tokens=8, truncate=True, errors="strict", progress=show)
    assert_type(result, EmbedResult)
    assert_type(result.vectors, NDArray[np.float32])
    assert_type(result.token_counts, NDArray[np.int64])
    assert_type(result.truncated, NDArray[np.bool_])
    assert_type(engine.stream(["a"], max_tokens=8, truncate=True), Iterator[NDArray[np.float32]])
    assert_type((engine.dim, engine.threads, engine.max_tokens, engine.default_tokens), tuple[int, int, int, int])
    assert_type(engine.device, str)
    assert_type(engine.fallback, str | None)
    assert_type(engine.bundle, Bundle)
    assert_type(measure(engine, seconds=2.5), dict[str, Any])


class Session:
    """A session of the caller's own."""

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[np.float32]]:
        """Run nothing."""
        return [np.zeros((len(feeds["input_ids"]), 3), np.float32)]


def own_session(bundle: Bundle) -> None:
    Embedder(bundle, session=Session())
    Embedder(bundle, session=object())  # type: ignore[arg-type]


def exporting(folder: Path) -> None:
    assert_type(export_checkpoint("checkpoint/", "bundle/"), Bundle)
    export_checkpoint(
        folder, folder, task="embed", target="portable", pooling="cls", normalize=True, force=True, progress=step
    )
    assert_type(quantize_bundle("bundle/", "small/"), Bundle)
    quantize_bundle(
        folder,
        folder,
        scheme="int8",
        exclude=["*.0.*"],
        calibration=["a"],
        min_agreement=0.9,
        force=True,
        progress=step,
    )
    assert_type(verify_bundle("bundle/"), dict[str, Any])
    assert_type(verify_bundle(folder, folder, progress=step), dict[str, Any])


def references(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    assert_type(checkpoint, Checkpoint)
    assert_type(checkpoint.config, BertConfig)
    assert_type(checkpoint.load_model(), Bert)
    SentenceEncoder(checkpoint.load_model(), "mean", True)


def catching(folder: Path) -> str:
    try:
        edgebert.load(folder)
    except (edgebert.errors.DeviceError, edgebert.errors.IntegrityError):
        return "a kind of error"
    except EdgebertError as error:
        return str(error)
    try:
        edgebert.load(folder).embed(["a"])
    except ValueError as error:  # InputError is one
        return str(error)
    return ""
