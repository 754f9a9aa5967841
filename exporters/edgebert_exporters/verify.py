"""Check a bundle again, as its export did."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from edgebert_exporters.grid import Batch
from edgebert_exporters.parity import (
    TOLERANCE,
    Progress,
    Runs,
    batches_of,
    check_golden,
    check_reference,
    check_rows_alone,
    mean_cosine,
    silent,
)
from edgebert_runtime.bundle import Bundle
from edgebert_runtime.errors import ParityError
from edgebert_runtime.manifest import Manifest
from edgebert_runtime.session import open_session
from edgebert_runtime.tokenizer import Tokenizer


def verify_bundle(
    bundle: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str] | None = None,
    *,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Check a bundle again, as its export did; return the figures.

    Files, signatures, operators, tokenizer and the golden sample are checked always; a float32 bundle must also
    give each row of the grid what the row alone gives. With the checkpoint, the whole grid is compared with the
    PyTorch reference: a float32 bundle within :data:`TOLERANCE`, a quantized one within the agreement that its
    report promises.

    Raises:
        BundleError: if the bundle is damaged.
        IntegrityError: if it does not compute what it computed when it was made.
        ParityError: if it does not compute what the reference computes.
    """
    progress = progress or silent
    opened = Bundle.open(bundle)
    manifest = opened.manifest
    graph = opened.path / opened.graph("model").file
    session = open_session(graph)
    tokenizer = Tokenizer.load(opened.path / "tokenizer.json", manifest.limits.vocab_size)
    figures: dict[str, Any] = {
        "files": len(manifest.files),
        "golden_cosine": check_golden(session, tokenizer, manifest),
    }
    batches = batches_of(manifest)
    short = [batch for batch in batches if batch.input_ids.shape[1] < manifest.limits.max_tokens]
    alone = check_rows_alone(session, short)
    figures["rows_alone"] = {"rows": alone.batches, "max_error": alone.error}
    exact = manifest.weights.scheme == "fp32"
    if exact and alone.error > TOLERANCE:
        raise ParityError(f"{alone.where} differs by {alone.error:.1e} from what it gives in its batch")
    if checkpoint is not None:
        figures["reference"] = against_checkpoint(graph, session, Path(checkpoint), manifest, batches, progress)
    return figures


def against_checkpoint(
    graph: Path, session: Runs, checkpoint: Path, manifest: Manifest, batches: list[Batch], progress: Progress
) -> dict[str, Any]:
    """Compare a session with the reference that the checkpoint holds."""
    from edgebert_exporters.reference import load_reference, reference_of

    module = load_reference(checkpoint, manifest.settings["pooling"], manifest.settings["normalize"])
    reference = reference_of(module)
    if manifest.weights.scheme == "fp32":
        return check_reference(graph, session, reference, manifest, progress)
    pairs = [(session.run(None, b.feeds)[0], reference(b)) for b in batches if b.attention_mask.any(1).all()]
    cosine = mean_cosine(np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs]))
    least = manifest.report["min_agreement"]
    if cosine < least:
        raise ParityError(f"the bundle has a mean cosine of {cosine:.4f} to the checkpoint, its report says {least}")
    return {"batches": len(pairs), "cosine": cosine}
