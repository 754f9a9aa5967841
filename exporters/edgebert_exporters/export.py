"""Turn a checkpoint into a verified bundle."""

from __future__ import annotations

import dataclasses
import logging
import os
from pathlib import Path
from typing import Any

from edgebert import __version__
from edgebert.checkpoints import Checkpoint, open_checkpoint
from edgebert.models.bert import POOLINGS, SentenceEncoder
from edgebert_exporters.parity import Progress, check_reference, golden_sample, silent
from edgebert_exporters.reference import reference_of
from edgebert_exporters.rendering import TARGETS, render
from edgebert_exporters.signature import embed_signature
from edgebert_exporters.staging import staged
from edgebert_exporters.writing import list_files, weight_bytes, write_graph, write_manifest
from edgebert_runtime.bundle import Bundle
from edgebert_runtime.errors import ExportError
from edgebert_runtime.manifest import Limits, Manifest, Weights
from edgebert_runtime.session import open_session
from edgebert_runtime.tokenizer import Tokenizer

log = logging.getLogger("edgebert")

TASKS = ("embed",)


def export_checkpoint(
    checkpoint: str | os.PathLike[str],
    bundle: str | os.PathLike[str],
    *,
    task: str | None = None,
    target: str = "cpu",
    pooling: str | None = None,
    normalize: bool | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Bundle:
    """Export the checkpoint in the folder ``checkpoint`` to the folder ``bundle`` and verify it on the way.

    ``pooling`` (``cls``, ``mean``, ``max``, ``last``) and ``normalize`` come from the checkpoint's
    sentence-transformers files unless given. The bundle appears only after the real engine has given what the
    PyTorch reference gives on every batch of the grid.

    Raises:
        ExportError: if an option is unknown, the graph cannot be made, or the bundle cannot be written.
        ParityError: if the graph does not compute what the reference computes.
        CheckpointError: if the checkpoint is incomplete or damaged.
    """
    progress = progress or silent
    if target not in TARGETS:
        raise ExportError(f"target {target!r} is not one of {', '.join(TARGETS)}")
    if (task or "embed") not in TASKS:
        raise ExportError(f"task {task!r} is not one of {', '.join(TASKS)}")
    with staged(bundle, force=force) as folder:
        progress("read checkpoint", 0, 1)
        opened = open_checkpoint(checkpoint)
        for note in opened.notes:
            log.info("%s: %s", checkpoint, note)
        pooling, normalize = settle_pooling(opened, pooling, normalize)
        module = SentenceEncoder(opened.load_model(), pooling, normalize).eval()
        progress("read checkpoint", 1, 1)
        manifest = write_bundle(folder, opened, module, target, progress)
        verification = verify_export(folder, manifest, module, progress)
        write_manifest(folder, dataclasses.replace(manifest, verification=verification))
    return Bundle.open(bundle, verify="size")


def settle_pooling(checkpoint: Checkpoint, pooling: str | None, normalize: bool | None) -> tuple[str, bool]:
    """Choose the options given, else what the checkpoint says.

    Raises:
        ExportError: if the pooling is unknown, or nobody gives one; a guess would make vectors that look right.
    """
    pooling = pooling or checkpoint.pooling
    if pooling is None:
        raise ExportError(
            f"{checkpoint.path} holds no 1_Pooling/config.json, so it does not say how token vectors become a "
            "sentence vector; give --pooling mean, cls, max or last"
        )
    if pooling not in POOLINGS:
        raise ExportError(f"pooling {pooling!r} is not one of {', '.join(POOLINGS)}")
    return pooling, bool(checkpoint.normalize if normalize is None else normalize)


def write_bundle(
    folder: Path, checkpoint: Checkpoint, module: SentenceEncoder, target: str, progress: Progress
) -> Manifest:
    """Render the graph and write everything but the verification into ``folder``."""
    config = checkpoint.config
    signature = embed_signature(config.hidden_size)
    progress("render graph", 0, 1)
    model = render(module, signature, target)
    spec = write_graph(model, folder, "model", signature, single_file=target == "portable")
    progress("render graph", 1, 1)
    (folder / "tokenizer.json").write_text(checkpoint.tokenizer_json, encoding="utf-8")
    return Manifest(
        edgebert_version=__version__,
        family=checkpoint.family,
        task="embed",
        target=target,
        config=dataclasses.asdict(config),
        graphs={"model": spec},
        settings={"pooling": module.pooling, "normalize": module.normalize, "dim": config.hidden_size},
        limits=Limits(config.vocab_size, checkpoint.max_tokens, checkpoint.default_tokens),
        weights=Weights("fp32", weight_bytes(model)),
        files=list_files(folder),
    )


def verify_export(folder: Path, manifest: Manifest, module: SentenceEncoder, progress: Progress) -> dict[str, Any]:
    """Open the files just written with the real engine and compare them with the reference."""
    write_manifest(folder, manifest)
    graph = folder / Bundle.open(folder).graph("model").file
    session = open_session(graph)
    figures = check_reference(graph, session, reference_of(module), manifest, progress)
    tokenizer = Tokenizer.load(folder / "tokenizer.json", manifest.limits.vocab_size)
    return figures | {"golden": golden_sample(session, tokenizer, manifest)}
