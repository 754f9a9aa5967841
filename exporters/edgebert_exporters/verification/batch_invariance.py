"""Batch invariance: whether a row gives the same alone and in a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from edgebert_exporters.inference.batch import Batch, real_outputs, row_outputs, rows_alone
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.inference.sample_texts import to_batches
from edgebert_exporters.verification.parity import MaxErrors

# Random rows, tokens of a row at most, and rows of a batch.
ROWS, MOST_TOKENS, BATCH = 16, 64, 4


def batch_invariance(opened: OpenedBundle, rows: int = ROWS, seed: int = 0) -> dict[str, Any]:
    """Compare random rows in padded batches with the same rows alone.

    Returns:
        The number of ``rows``, those of them that are ``identical`` bit for bit, and the ``max_difference`` relative
        to the largest number of an output.
    """
    outputs = [spec for spec in opened.signature.outputs if spec.name in opened.results]
    errors, identical = MaxErrors(), list[bool]()
    for batch in random_batches(opened, rows, np.random.default_rng(seed)):
        together = opened.run(opened.results, batch.feeds)
        for row, single in rows_alone(batch):
            equal = True
            for spec, in_batch, alone in zip(outputs, together, opened.run(opened.results, single.feeds), strict=True):
                actual, expected = (
                    in_batch[row_outputs(spec.shape, batch, row)],
                    alone[real_outputs(spec.shape, single)],
                )
                errors.add(spec.name, actual, expected, single.name)
                equal &= np.array_equal(actual, expected)
            identical.append(equal)
    return {"rows": len(identical), "max_difference": errors.worst.relative, "identical": sum(identical)}


def random_batches(opened: OpenedBundle, rows: int, rng: np.random.Generator) -> Iterator[Batch]:
    """Yield batches of random rows, padded on the right."""
    samples = [opened.kind.random_sample(opened.manifest, MOST_TOKENS, rng) for _ in range(rows)]
    for start in range(0, rows, BATCH):
        for _, batch in to_batches(samples[start : start + BATCH], opened.signature.input_names):
            yield batch
