"""Check a bundle again, as its export did."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from edgebert_exporters import arguments
from edgebert_exporters.fidelity.comparison import Fidelity, vectors_of
from edgebert_exporters.fidelity.figures import told_apart
from edgebert_exporters.inference.batch import Batch
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.progress import Progress, silent
from edgebert_exporters.verification.checks import batches_of, check_reference
from edgebert_exporters.verification.golden_sample import check_golden
from edgebert_exporters.verification.library_results import compare_with_library
from edgebert_exporters.verification.parity import TOLERANCE, check_rows_alone
from edgebert_exporters.verification.reference_library import check_library
from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.errors import ExportError, ParityError
from edgebert_runtime.task_specs import TASKS


@arguments.typed(
    bundle=arguments.path,
    checkpoint=arguments.path,
    reference=arguments.text,
    allow_pickle=arguments.flag,
    progress=arguments.function,
)
def verify_bundle(
    bundle: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str] | None = None,
    *,
    reference: str | None = None,
    allow_pickle: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Check a bundle again, as its export did; return the figures.

    Files, signatures, operators, tokenizer and the golden sample are checked always; a float32 bundle must also
    give each row of the grid what the row alone gives. With the checkpoint, the whole grid is compared with the
    PyTorch reference: a float32 bundle within :data:`TOLERANCE`, a quantized one within the fidelity that its
    report promises; with ``reference``, ``transformers`` or ``sentence-transformers``, so are the results of texts with
    those of that library. ``allow_pickle`` is for the checkpoint, as in an export.

    Raises:
        BundleError: if the bundle is damaged.
        CheckpointError: if the checkpoint is incomplete or damaged.
        ExportError: if ``reference`` is unknown or not installed, or there is no checkpoint for it.
        IntegrityError: if it does not compute what it computed when it was made.
        ParityError: if it does not compute what the reference computes.
    """
    progress = progress or silent
    checked = Bundle.open(bundle)
    manifest = checked.manifest
    if reference is not None:
        check_library(reference, manifest.task)
        if checkpoint is None:
            raise ExportError("needs a checkpoint to open", option="reference", value=reference)
    exact = manifest.weights.scheme == "fp32"
    # A row of a quantized model depends on its batch, and is not alone beside a twin.
    opened = OpenedBundle(checked, with_swapped_beams=exact)
    figures: dict[str, Any] = {"files": len(manifest.files), "golden_cosine": check_golden(opened)}
    batches = batches_of(manifest)
    short = [batch for batch in batches if batch.attention_mask.shape[1] < manifest.limits.max_tokens]
    alone = check_rows_alone(opened, opened.signature.outputs, short)
    figures["batch_invariance"] = {"rows": alone.batches, "max_difference": alone.worst.relative}
    if exact and alone.worst.relative > TOLERANCE:
        raise ParityError(f"{alone.worst.where} differs by {alone.worst.relative:.1e} from what it gives in its batch")
    if manifest.notes:
        figures["notes"] = list(manifest.notes)
    if checkpoint is not None:
        figures["reference"] = compare_with_checkpoint(opened, Path(checkpoint), batches, allow_pickle, progress)
    if checkpoint is not None and reference is not None:
        figures["library"] = compare_with_library(checked.path, Path(checkpoint), reference, progress)
    return figures


def compare_with_checkpoint(
    opened: OpenedBundle, checkpoint: Path, batches: list[Batch], allow_pickle: bool, progress: Progress
) -> dict[str, Any]:
    """Compare a bundle with the reference in a checkpoint."""
    from edgebert.checkpoints import open_checkpoint
    from edgebert_exporters.inference.pytorch_reference import load_reference, reference_of
    from edgebert_exporters.verification.tokenizer_parity import check_tokenizers

    manifest, outputs = opened.manifest, opened.signature.outputs
    names = [name for name in TASKS[manifest.task].options if name != "dim"]  # the engine cuts vectors, not the graph
    options = {name: manifest.settings[name] for name in names}
    files = open_checkpoint(checkpoint, task=manifest.task, allow_pickle=allow_pickle)
    tokenizer = check_tokenizers(opened.bundle, files.references)
    reference = reference_of(load_reference(checkpoint, task=manifest.task, allow_pickle=allow_pickle, **options))
    if manifest.weights.scheme == "fp32":
        return tokenizer | check_reference(opened, reference, progress)
    fidelity = Fidelity.of(manifest)
    unpadded = [batch for batch in batches if batch.pooled_mask.any(1).all()]
    for done, batch in enumerate(unpadded):
        expected, actual = reference(batch), opened.run(None, batch.feeds)
        for row in range(len(batch.input_ids)):
            fidelity.add(vectors_of(outputs, batch, expected, row), vectors_of(outputs, batch, actual, row))
        progress(f"verify {manifest.target}", done + 1, len(unpadded))
    cosine, least = fidelity.figures()["cosine_mean"], manifest.report["min_fidelity"]
    if not cosine >= least:
        figure = told_apart(cosine, least)
        raise ParityError(f"the bundle has a mean cosine of {figure} to the checkpoint, its report says {least}")
    return tokenizer | {"batches": len(unpadded), "cosine": cosine}
