"""Parity: the outputs of a graph against those of its PyTorch reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgebert_exporters.inference.batch import Batch, Floats, Reference, real_outputs, row_outputs, rows_alone
from edgebert_exporters.progress import Progress
from edgebert_runtime.bundle.manifest import TensorSpec
from edgebert_runtime.decoders.causal_signature import TOP
from edgebert_runtime.errors import ParityError
from edgebert_runtime.session.session import Runnable

# Largest difference allowed in float32, relative to the largest number that an output has on the grid.
TOLERANCE = 1e-4
# The output of token ids, which have no distance from each other.
TOP_IDS = TOP[0]


@dataclass
class OutputError:
    """The largest error of one output."""

    absolute: float = 0.0
    where: str = ""
    largest: float = 0.0

    @property
    def relative(self) -> float:
        """Return the error relative to the largest number."""
        return self.absolute / max(self.largest, 1e-6)


@dataclass
class MaxErrors:
    """The largest error of each output so far.

    Errors are relative to the largest number of the output over all batches. A single score may be close to zero,
    where rounding alone is large beside it.
    """

    outputs: dict[str, OutputError] = field(default_factory=dict)
    batches: int = 0

    def add(self, output: str, actual: Floats, expected: Floats, where: str) -> None:
        """Compare two arrays of one shape, which may be empty.

        Raises:
            ParityError: if the shapes differ.
        """
        if actual.shape != expected.shape:
            raise ParityError(f"{where}: {output} has shape {actual.shape}, the reference {expected.shape}")
        error = self.outputs.setdefault(output, OutputError())
        error.largest = max(error.largest, float(np.abs(expected).max(initial=0)))
        absolute = float(np.abs(actual - expected).max(initial=0))
        if absolute >= error.absolute:
            error.absolute, error.where = absolute, where

    @property
    def worst(self) -> OutputError:
        """Return the error of the output with the largest relative error."""
        return max(self.outputs.values(), key=lambda error: error.relative, default=OutputError())


def describe(errors: MaxErrors) -> dict[str, Any]:
    """Return the figures of a comparison for the manifest and the screen."""
    return {
        "batches": errors.batches,
        "max_error": errors.worst.relative,
        "at": errors.worst.where,
        "tolerance": TOLERANCE,
        "outputs": {name: error.relative for name, error in errors.outputs.items()},
    }


def not_finite(outputs: Sequence[TensorSpec], results: Sequence[Floats]) -> str:
    """Return which output is not finite; empty if none."""
    for spec, array in zip(outputs, results, strict=True):
        if not np.isfinite(array).all():
            return f"{np.count_nonzero(~np.isfinite(array))} numbers of {spec.name} are not finite"
    return ""


def check_parity(
    session: Runnable,
    reference: Reference,
    outputs: Sequence[TensorSpec],
    batches: Sequence[Batch],
    label: str,
    progress: Progress,
) -> MaxErrors:
    """Compare the real outputs of every batch with the reference.

    Raises:
        ParityError: if shapes differ, or numbers are not finite; naming the worst batch, if an error is larger than
            :data:`TOLERANCE`.
    """
    errors = MaxErrors()
    for index, batch in enumerate(batches):
        results = session.run(None, batch.feeds)
        if problem := not_finite(outputs, results):
            raise ParityError(f"{batch.name}: the {label} graph goes wrong, {problem}; please report this model")
        for spec, actual, expected in zip(outputs, results, reference(batch), strict=True):
            if spec.name == TOP_IDS:
                continue
            if actual.shape != expected.shape:
                raise ParityError(f"{batch.name}: {spec.name} has shape {actual.shape}, the reference {expected.shape}")
            real = real_outputs(spec.shape, batch)
            errors.add(spec.name, actual[real], expected[real], batch.name)
        by_name = {spec.name: array for spec, array in zip(outputs, results, strict=True)}
        if TOP_IDS in by_name and not top_k_matches_logits(by_name):
            raise ParityError(f"{batch.name}: the {label} graph chooses other tokens than its logits say; report this")
        errors.batches += 1
        progress(f"verify {label}", index + 1, len(batches))
    if errors.worst.relative > TOLERANCE:
        raise ParityError(
            f"the {label} graph differs from the PyTorch reference by {errors.worst.relative:.1e} of its largest "
            f"number (allowed {TOLERANCE:.0e}) at {errors.worst.where}; please report this model"
        )
    return errors


def top_k_matches_logits(outputs: Mapping[str, Floats]) -> bool:
    """Return whether top-k tokens and log-probabilities match the logits.

    Tokens that are equally likely but for rounding may change places.
    """
    logits, (ids, logprobs) = outputs["logits"].astype(np.float64), (outputs[name] for name in TOP)
    shifted = logits - logits.max(1, keepdims=True)
    expected = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    best = -np.sort(-expected, axis=1)[:, : ids.shape[1]]
    chosen = np.take_along_axis(expected, ids.astype(np.int64), 1)
    return np.allclose(chosen, best, atol=1e-4) and np.allclose(logprobs, best, atol=1e-4)


def check_rows_alone(session: Runnable, outputs: Sequence[TensorSpec], batches: Iterable[Batch]) -> MaxErrors:
    """Compare each row of each batch with the row alone.

    Raises:
        ParityError: if a row alone gives numbers that are not finite.
    """
    errors = MaxErrors()
    for batch in batches:
        together = session.run(None, batch.feeds)
        for row, alone in rows_alone(batch):
            results = session.run(None, alone.feeds)
            if problem := not_finite(outputs, results):
                raise ParityError(f"{alone.name} goes wrong, {problem}")
            for spec, in_batch, expected in zip(outputs, together, results, strict=True):
                if spec.name != TOP_IDS:
                    actual = in_batch[row_outputs(spec.shape, batch, row)]
                    errors.add(spec.name, actual, expected[real_outputs(spec.shape, alone)], alone.name)
            errors.batches += 1
    return errors
