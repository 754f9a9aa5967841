"""Compare what a graph computes with what it should compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edgebert_exporters.grid import Batch, encoder_grid, rows_alone
from edgebert_runtime.errors import IntegrityError, ParityError
from edgebert_runtime.manifest import Manifest
from edgebert_runtime.session import import_onnxruntime
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


def check_reference(
    graph: Path, session: Runs, reference: Reference, manifest: Manifest, progress: Progress
) -> dict[str, Any]:
    """Compare a graph with its reference over the whole grid, a portable one without any optimization as well.

    Raises:
        ParityError: if a difference is larger than :data:`TOLERANCE`.
    """
    batches = batches_of(manifest)
    figures = describe(check_parity(session, reference, batches, manifest.target, progress))
    if manifest.target == "portable":
        plain = check_parity(unoptimized(graph), reference, batches, "unoptimized", progress)
        figures["unoptimized"] = describe(plain)
    return figures


def unoptimized(graph: Path) -> Any:
    """Open a graph as other runtimes may run it: node by node, without any rewriting by ONNX Runtime."""
    ort = import_onnxruntime()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])


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
