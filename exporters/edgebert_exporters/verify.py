"""Compare a bundle with the PyTorch reference through the real engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edgebert_exporters.grid import Batch, encoder_grid, rows_alone
from edgebert_runtime.bundle import Bundle
from edgebert_runtime.errors import IntegrityError, ParityError
from edgebert_runtime.manifest import Manifest
from edgebert_runtime.session import open_session
from edgebert_runtime.tokenizer import Tokenizer

Floats = npt.NDArray[np.float32]
Reference = Callable[[Batch], Floats]
Progress = Callable[[str, int, int], None]

# Largest difference allowed in float32, relative to the largest number of the output.
TOLERANCE = 1e-4
# Least cosine allowed between a quantized bundle and what it computed where it was made: other CPUs round otherwise.
GOLDEN_COSINE = 0.999
GOLDEN_TEXT = "The café's 2 boats — naïve, red & white — left at 7:45 [SEP] 日本"


class Runs(Protocol):
    """What a session does."""

    def run(self, output_names: list[str] | None, feeds: dict[str, Any]) -> list[Any]:
        """Run the graph."""
        ...


@dataclass
class Worst:
    """The largest difference met so far, and where."""

    error: float = 0.0
    where: str = ""
    batches: int = 0

    def add(self, found: Floats, expected: Floats, where: str) -> None:
        """Compare two arrays of one shape.

        Raises:
            ParityError: if the shapes differ or a number is not finite.
        """
        self.batches += 1
        if found.shape != expected.shape:
            raise ParityError(f"{where}: the graph gives shape {found.shape}, the reference {expected.shape}")
        if not np.isfinite(found).all():
            raise ParityError(f"{where}: the graph gives {np.count_nonzero(~np.isfinite(found))} numbers not finite")
        error = float(np.abs(found - expected).max(initial=0) / max(np.abs(expected).max(initial=0), 1e-6))
        if error >= self.error:
            self.error, self.where = error, where


def describe(worst: Worst) -> dict[str, Any]:
    """Return the figures of a comparison for the manifest and the screen."""
    return {"batches": worst.batches, "max_error": worst.error, "at": worst.where, "tolerance": TOLERANCE}


def silent(step: str, done: int, total: int) -> None:
    """Report progress to nobody."""


def batches_of(manifest: Manifest) -> list[Batch]:
    """Return the grid for the model of a manifest."""
    limits = manifest.limits
    return list(encoder_grid(limits.vocab_size, limits.max_tokens, manifest.config.get("type_vocab_size", 1)))


def check_parity(session: Runs, reference: Reference, batches: list[Batch], label: str, progress: Progress) -> Worst:
    """Run every batch through the session and the reference.

    Raises:
        ParityError: naming the worst batch, if a difference is larger than :data:`TOLERANCE`.
    """
    worst = Worst()
    for index, batch in enumerate(batches):
        worst.add(session.run(None, batch.feeds)[0], reference(batch), batch.name)
        progress(f"verify {label}", index + 1, len(batches))
    if worst.error > TOLERANCE:
        raise ParityError(
            f"the {label} graph differs from the PyTorch reference by {worst.error:.1e} of its largest number "
            f"(allowed {TOLERANCE:.0e}) at {worst.where}; please report this model"
        )
    return worst


def check_rows_alone(session: Runs, batches: Iterable[Batch]) -> Worst:
    """Compare each row of each batch with the same row run alone and without padding."""
    worst = Worst()
    for batch in batches:
        together = session.run(None, batch.feeds)[0]
        for row, alone in rows_alone(batch):
            worst.add(together[row : row + 1], session.run(None, alone.feeds)[0], alone.name)
    return worst


def golden_sample(session: Runs, tokenizer: Tokenizer, manifest: Manifest) -> dict[str, Any]:
    """Return a text, its ids and the vector they give, which a later :func:`verify_bundle` expects again."""
    ids = tokenizer.encode([GOLDEN_TEXT], manifest.limits.default_tokens)[0].ids
    row = np.array([ids], np.int64)
    batch = Batch("the golden sample", row, np.ones_like(row), np.zeros_like(row))
    vector = session.run(None, batch.feeds)[0][0]
    return {"text": GOLDEN_TEXT, "input_ids": list(ids), "vector": [round(float(x), 6) for x in vector]}


def check_golden(session: Runs, tokenizer: Tokenizer, manifest: Manifest) -> float:
    """Compare the golden sample of the manifest with what the bundle gives now; return the cosine.

    Raises:
        IntegrityError: if the tokenizer gives other ids, or the graph another vector.
    """
    stored = manifest.verification.get("golden")
    if not isinstance(stored, dict):
        raise IntegrityError("the manifest holds no golden sample; export the bundle again")
    now = golden_sample(session, tokenizer, manifest)
    if now["input_ids"] != stored["input_ids"]:
        raise IntegrityError(f"the tokenizer gives {now['input_ids']} for the golden text, not {stored['input_ids']}")
    cosine = mean_cosine(np.array([now["vector"]]), np.array([stored["vector"]]))
    if cosine < GOLDEN_COSINE:
        raise IntegrityError(
            f"the golden sample gives a vector of cosine {cosine:.4f} to the one of the export (at least "
            f"{GOLDEN_COSINE}); this CPU or onnxruntime computes something else: run 'edgebert doctor'"
        )
    return cosine


def mean_cosine(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    """Return the mean cosine between the rows of two arrays (n, dim)."""
    return float(cosines(one, other).mean())


def cosines(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the cosine (n,) between each row of two arrays (n, dim)."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    result: npt.NDArray[np.float64] = (one * other).sum(1) / np.maximum(lengths, 1e-12)
    return result


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
    session = open_session(opened.path / opened.graph("model").file)
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
        figures["reference"] = against_checkpoint(session, Path(checkpoint), manifest, batches, progress)
    return figures


def against_checkpoint(
    session: Runs, checkpoint: Path, manifest: Manifest, batches: list[Batch], progress: Progress
) -> dict[str, Any]:
    """Compare a session with the reference that the checkpoint holds."""
    from edgebert_exporters.export import load_reference, reference_of

    module = load_reference(checkpoint, manifest.settings["pooling"], manifest.settings["normalize"])
    reference = reference_of(module)
    if manifest.weights.scheme == "fp32":
        worst = check_parity(session, reference, batches, "stored", progress)
        return describe(worst)
    pairs = [(session.run(None, b.feeds)[0], reference(b)) for b in batches if b.attention_mask.any(1).all()]
    cosine = mean_cosine(np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs]))
    least = manifest.report["min_agreement"]
    if cosine < least:
        raise ParityError(f"the bundle has a mean cosine of {cosine:.4f} to the checkpoint, its report says {least}")
    return {"batches": len(pairs), "cosine": cosine}
