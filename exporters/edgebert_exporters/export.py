"""Turn a checkpoint into a verified bundle."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgebert import __version__
from edgebert.checkpoints import Checkpoint, open_checkpoint
from edgebert_exporters import arguments
from edgebert_exporters.bundles.atomic_folder import staged
from edgebert_exporters.bundles.bundle_files import bytes_of, list_files, write_graphs, write_manifest, write_tokenizers
from edgebert_exporters.graphs.onnx_export import TARGETS, render
from edgebert_exporters.graphs.task_models import TaskModel, check_options, prepare
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.inference.pytorch_reference import reference_of
from edgebert_exporters.progress import Progress, report_notes, silent
from edgebert_exporters.verification.batch_invariance import batch_invariance
from edgebert_exporters.verification.checks import check_reference
from edgebert_exporters.verification.golden_sample import golden_sample
from edgebert_exporters.verification.library_results import compare_with_library
from edgebert_exporters.verification.reference_library import check_library
from edgebert_exporters.verification.tokenizer_parity import check_tokenizers
from edgebert_runtime.bundle.manifest import Limits, Manifest, Weights
from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.errors import ExportError
from edgebert_runtime.task_specs import canonical_task


@arguments.typed(
    checkpoint=arguments.path,
    bundle=arguments.path,
    task=arguments.text,
    target=arguments.text,
    pooling=arguments.text,
    normalize=arguments.flag,
    dim=arguments.whole,
    problem_type=arguments.text,
    labels=arguments.texts,
    allow_pickle=arguments.flag,
    strict=arguments.flag,
    reference=arguments.text,
    force=arguments.flag,
    progress=arguments.function,
)
def export_checkpoint(
    checkpoint: str | os.PathLike[str],
    bundle: str | os.PathLike[str],
    *,
    task: str | None = None,
    target: str = "cpu",
    pooling: str | None = None,
    normalize: bool | None = None,
    dim: int | None = None,
    problem_type: str | None = None,
    labels: Sequence[str] | None = None,
    allow_pickle: bool = False,
    strict: bool = False,
    reference: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Bundle:
    """Export the checkpoint in the folder ``checkpoint`` to the folder ``bundle`` and verify it on the way.

    Options that are left out come from the checkpoint: ``task``; for ``embed`` the ``pooling`` (``cls``, ``mean``,
    ``max``, ``last``, ``mean_sqrt_len_tokens``, ``weightedmean``, ``pooler``), ``normalize``, and ``dim``, the numbers
    of a vector that calls get by default; for ``classify`` the ``problem_type`` (``single_label``, ``multi_label``,
    ``regression``); for ``classify`` and ``tag`` the ``labels``. ``allow_pickle`` reads weights from pickles, of
    tensors only, where there is no safetensors file. A difference from transformers or sentence-transformers on the
    same folder is a :class:`~edgebert_runtime.errors.ReferenceWarning` and a line of ``manifest.notes``; with
    ``strict`` it is an error. The bundle appears only after the real engine has given what the PyTorch reference gives
    on every batch of the grid. With ``reference``, ``transformers`` or ``sentence-transformers``, texts also go through
    that library, and its results have to be the bundle's.

    Raises:
        ExportError: if an option is unknown or does not belong to the task, the graph cannot be made, the bundle
            cannot be written, or ``strict`` meets a difference from the reference.
        ParityError: if the graph does not compute what the reference computes, or the tokenizer gives a text other
            ids than the files of the checkpoint.
        CheckpointError: if the checkpoint is incomplete or damaged, or does not serve the task.
    """
    progress = progress or silent
    options: dict[str, object] = {"pooling": pooling, "normalize": normalize, "dim": dim}
    options |= {"problem_type": problem_type, "labels": labels}
    if target not in TARGETS:
        raise ExportError(f"is not one of {', '.join(TARGETS)}", option="target", value=target)
    if task is not None:
        task = canonical_task(task)
        check_options(task, options)
    if reference is not None:
        check_library(reference, task)
    with staged(bundle, force=force) as folder:
        progress("read checkpoint", 0, 1)
        opened = open_checkpoint(
            checkpoint, task=task, allow_pickle=allow_pickle, problem_type=problem_type, labels=labels
        )
        check_options(opened.task, options)
        if reference is not None:
            check_library(reference, opened.task)
        if strict and opened.notes:
            raise differs(opened)
        model = prepare(opened, pooling, normalize, target, dim)
        progress("read checkpoint", 1, 1)
        report_notes(opened.notes)
        written = write_bundle(folder, opened, model, target, progress)
        verification = check_tokenizers(written, opened.references) | verify_export(written, model, progress)
        if reference is not None:
            verification["library"] = compare_with_library(folder, opened.path, reference, progress)
        manifest = dataclasses.replace(written.manifest, verification=verification)
        write_manifest(folder, manifest)
    return Bundle(Path(bundle), Manifest.from_json(manifest.to_json()))


def write_bundle(folder: Path, checkpoint: Checkpoint, model: TaskModel, target: str, progress: Progress) -> Bundle:
    """Render the graphs, and write and open a bundle without verification figures."""
    config, graphs = checkpoint.config, {}
    for done, (name, graph) in enumerate(model.graphs.items()):
        progress("render graph", done, len(model.graphs))
        graphs[name] = render(graph.module, graph.signature, target)
    signatures = {name: graph.signature for name, graph in model.graphs.items()}
    specs = write_graphs(graphs, folder, signatures, single_file=target == "portable")
    progress("render graph", len(graphs), len(graphs))
    write_tokenizers(folder, checkpoint.tokenizer_json, checkpoint.target_tokenizer_json)
    manifest = Manifest(
        edgebert_version=__version__,
        family=checkpoint.family,
        task=checkpoint.task,
        target=target,
        config=dataclasses.asdict(config),
        graphs=specs,
        settings=model.settings,
        limits=Limits(config.vocab_size, checkpoint.max_tokens, checkpoint.default_tokens),
        weights=Weights("fp32", bytes_of(graphs.values())),
        files=list_files(folder),
        decoding=checkpoint.decoding,
        notes=checkpoint.notes,
    )
    write_manifest(folder, manifest)
    return Bundle.open(folder, verify="size")  # the hashes are of just now


def differs(checkpoint: Checkpoint) -> ExportError:
    """Return the error that lists the differences from the reference."""
    count, notes = len(checkpoint.notes), checkpoint.notes
    places = "; ".join(f"({number}) {note}" for number, note in enumerate(notes, 1)) if count > 1 else notes[0]
    return ExportError(
        f"{checkpoint.path} would give another result than its reference: {places}",
        hint="change the files, or leave out {strict}",
        options={"strict": True},
    )


def verify_export(bundle: Bundle, model: TaskModel, progress: Progress) -> dict[str, Any]:
    """Compare the files just written, run by the real engine, with the reference."""
    opened = OpenedBundle(bundle, with_swapped_beams=True)
    figures = check_reference(opened, reference_of(model.reference), progress)
    return figures | {"batch_invariance": batch_invariance(opened), "golden": golden_sample(opened)}
