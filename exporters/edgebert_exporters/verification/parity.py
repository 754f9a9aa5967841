"""Compare what a graph computes with what it should compute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgebert_exporters.graphs.signatures import past_of
from edgebert_exporters.inference.batch import Batch, Floats, Reference, real_outputs, row_outputs, rows_alone
from edgebert_exporters.inference.graph_runner import ForcedTargets, as_function, interface, open_graphs
from edgebert_exporters.progress import Progress
from edgebert_exporters.verification.beam_search_parity import check_translations
from edgebert_exporters.verification.decoder_grid import decoder_grid
from edgebert_exporters.verification.encoder_grid import encoder_grid
from edgebert_exporters.verification.greedy_parity import check_greedy
from edgebert_exporters.verification.seq2seq_grid import target_grid
from edgebert_runtime.bundle.manifest import Manifest, TensorSpec
from edgebert_runtime.decoders.causal_signature import TOP
from edgebert_runtime.errors import ParityError
from edgebert_runtime.session.session import Runnable, import_onnxruntime

# Largest difference allowed in float32, relative to the largest number that an output has on the grid.
TOLERANCE = 1e-4
# The output that names tokens, which have no distance from each other.
CHOSEN = TOP[0]


@dataclass
class Difference:
    """How far one output is off at most, and where, beside its largest number."""

    absolute: float = 0.0
    where: str = ""
    largest: float = 0.0

    @property
    def error(self) -> float:
        """Return the difference relative to the largest number."""
        return self.absolute / max(self.largest, 1e-6)


@dataclass
class Worst:
    """The largest differences met so far.

    Each output is measured by its own largest number, of all that it was compared at: the single score of one text
    may well be close to zero, where rounding alone is large beside it.
    """

    outputs: dict[str, Difference] = field(default_factory=dict)
    batches: int = 0

    def add(self, output: str, found: Floats, expected: Floats, where: str) -> None:
        """Compare two arrays of one shape, which may be empty.

        Raises:
            ParityError: if the shapes differ.
        """
        if found.shape != expected.shape:
            raise ParityError(f"{where}: {output} has shape {found.shape}, the reference {expected.shape}")
        difference = self.outputs.setdefault(output, Difference())
        difference.largest = max(difference.largest, float(np.abs(expected).max(initial=0)))
        absolute = float(np.abs(found - expected).max(initial=0))
        if absolute >= difference.absolute:
            difference.absolute, difference.where = absolute, where

    @property
    def worst(self) -> Difference:
        """Return the difference of the output that is off most."""
        return max(self.outputs.values(), key=lambda difference: difference.error, default=Difference())


def describe(worst: Worst) -> dict[str, Any]:
    """Return the figures of a comparison for the manifest and the screen."""
    return {
        "batches": worst.batches,
        "max_error": worst.worst.error,
        "at": worst.worst.where,
        "tolerance": TOLERANCE,
        "outputs": {name: difference.error for name, difference in worst.outputs.items()},
    }


def batches_of(manifest: Manifest) -> list[Batch]:
    """Return the grid for the model of a manifest."""
    limits, signature = manifest.limits, interface(manifest)
    inputs = signature.inputs
    if manifest.task == "translate":
        (vocab_size,) = (size for size in signature.outputs[0].shape if isinstance(size, int))
        return list(target_grid(limits, vocab_size))
    if past_of(inputs):
        return list(decoder_grid(inputs, limits.vocab_size, limits.max_tokens, manifest.target))
    segments = manifest.config.get("type_vocab_size", 1)
    return list(encoder_grid([spec.name for spec in inputs], limits.vocab_size, limits.max_tokens, segments))


def not_finite(outputs: Sequence[TensorSpec], found: Sequence[Floats]) -> str:
    """Say which of the outputs holds numbers that are not finite, padding and all; nothing if none does."""
    for spec, array in zip(outputs, found, strict=True):
        if not np.isfinite(array).all():
            return f"{np.count_nonzero(~np.isfinite(array))} numbers of {spec.name} are not finite"
    return ""


def check_parity(
    session: Runnable,
    reference: Reference,
    outputs: Sequence[TensorSpec],
    batches: list[Batch],
    label: str,
    progress: Progress,
) -> Worst:
    """Run every batch through the session and the reference, and compare ``outputs`` where they mean something.

    Raises:
        ParityError: if shapes differ, or numbers are not finite; naming the worst batch, if a difference is larger
            than :data:`TOLERANCE`.
    """
    worst = Worst()
    for index, batch in enumerate(batches):
        results = session.run(None, batch.feeds)
        if problem := not_finite(outputs, results):
            raise ParityError(f"{batch.name}: the {label} graph goes wrong, {problem}; please report this model")
        for spec, found, expected in zip(outputs, results, reference(batch), strict=True):
            if spec.name == CHOSEN:
                continue
            if found.shape != expected.shape:
                raise ParityError(f"{batch.name}: {spec.name} has shape {found.shape}, the reference {expected.shape}")
            real = real_outputs(spec.shape, batch)
            worst.add(spec.name, found[real], expected[real], batch.name)
        by_name = {spec.name: array for spec, array in zip(outputs, results, strict=True)}
        if CHOSEN in by_name and not chooses(by_name):
            raise ParityError(f"{batch.name}: the {label} graph chooses other tokens than its logits say; report this")
        worst.batches += 1
        progress(f"verify {label}", index + 1, len(batches))
    if worst.worst.error > TOLERANCE:
        raise ParityError(
            f"the {label} graph differs from the PyTorch reference by {worst.worst.error:.1e} of its largest number "
            f"(allowed {TOLERANCE:.0e}) at {worst.worst.where}; please report this model"
        )
    return worst


def chooses(outputs: Mapping[str, Floats]) -> bool:
    """Say whether the best tokens that a graph chooses are those, and as likely, as its logits say.

    Which of two tokens is better that are equally likely but for rounding is left open.
    """
    logits, (ids, logprobs) = outputs["logits"].astype(np.float64), (outputs[name] for name in TOP)
    shifted = logits - logits.max(1, keepdims=True)
    expected = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    best = -np.sort(-expected, axis=1)[:, : ids.shape[1]]
    found = np.take_along_axis(expected, ids.astype(np.int64), 1)
    return np.allclose(found, best, atol=1e-4) and np.allclose(logprobs, best, atol=1e-4)


def check_reference(
    folder: Path, session: Runnable, reference: Reference, manifest: Manifest, progress: Progress
) -> dict[str, Any]:
    """Compare the graphs in a folder with their reference over the whole grid.

    Portable ones are compared without any optimization as well, and those that write text in what they write.

    Raises:
        ParityError: if a difference is larger than :data:`TOLERANCE`, or a text is another.
    """
    batches, signature = batches_of(manifest), interface(manifest)
    outputs = signature.outputs
    figures = describe(check_parity(session, reference, outputs, batches, manifest.target, progress))
    if manifest.target == "portable":
        opened = open_graphs(folder, manifest, unoptimized, twins=True)
        plain = check_parity(opened, reference, outputs, batches, "unoptimized", progress)
        figures["unoptimized"] = describe(plain)
    if past_of(signature.inputs):
        figures["greedy"] = check_greedy(as_function(session), reference, manifest, TOLERANCE)
    if isinstance(session, ForcedTargets):
        figures["translations"] = check_translations(session, reference, manifest)
    return figures


def unoptimized(graph: Path) -> Any:
    """Open a graph as other runtimes may run it: node by node, without any rewriting by ONNX Runtime."""
    ort = import_onnxruntime()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])


def check_rows_alone(session: Runnable, outputs: Sequence[TensorSpec], batches: Iterable[Batch]) -> Worst:
    """Compare each row of each batch with the same row run alone and without padding; ``batches`` counts rows.

    Raises:
        ParityError: if a row alone gives numbers that are not finite.
    """
    worst = Worst()
    for batch in batches:
        together = session.run(None, batch.feeds)
        for row, alone in rows_alone(batch):
            results = session.run(None, alone.feeds)
            if problem := not_finite(outputs, results):
                raise ParityError(f"{alone.name} goes wrong, {problem}")
            for spec, found, expected in zip(outputs, together, results, strict=True):
                if spec.name == CHOSEN:
                    continue
                there, here = row_outputs(spec.shape, batch, row), real_outputs(spec.shape, alone)
                worst.add(spec.name, found[there], expected[here], alone.name)
            worst.batches += 1
    return worst
