"""Say whether a row gives the same alone and beside others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from edgebert_exporters.inference.batch import Batch, real_outputs, row_outputs, rows_alone
from edgebert_exporters.inference.graph_runner import interface, result_outputs
from edgebert_exporters.inference.sample_texts import MASK_EVERY, Sample, to_batches
from edgebert_exporters.verification.parity import Worst
from edgebert_runtime.bundle.manifest import Manifest
from edgebert_runtime.session.session import Runnable

# Rows, of so many tokens at most, in batches of so many.
ROWS, MOST_TOKENS, BATCH = 16, 64, 4
TARGET_TOKENS = 8


def batch_invariance(session: Runnable, manifest: Manifest, rows: int = ROWS, seed: int = 0) -> dict[str, Any]:
    """Run random rows of random lengths in batches that are padded on the right, and each of them alone.

    ``session`` runs the graphs of the bundle as :func:`~edgebert_exporters.inference.graph_runner.open_graphs` opens
    them.

    Returns:
        How many ``rows`` there were, how many of them are ``identical``, bit for bit, and the ``max_difference`` of
        the others, relative to the largest number of an output.
    """
    outputs = [spec for spec in interface(manifest).outputs if spec.name in result_outputs(interface(manifest).outputs)]
    names, worst, same = [spec.name for spec in outputs], Worst(), []
    for batch in random_batches(manifest, rows, np.random.default_rng(seed)):
        together = session.run(names, batch.feeds)
        for row, single in rows_alone(batch):
            identical = True
            for spec, found, expected in zip(outputs, together, session.run(names, single.feeds), strict=True):
                there, here = found[row_outputs(spec.shape, batch, row)], expected[real_outputs(spec.shape, single)]
                worst.add(spec.name, there, here, single.name)
                identical &= np.array_equal(there, here)
            same.append(identical)
    return {"rows": len(same), "max_difference": worst.worst.error, "identical": sum(same)}


def random_batches(manifest: Manifest, rows: int, rng: np.random.Generator) -> Iterator[Batch]:
    """Yield batches of random rows, the shorter ones with padding on their right, that ask for some of their tokens."""
    inputs = [spec.name for spec in interface(manifest).inputs]
    samples = [random_sample(manifest, rng) for _ in range(rows)]
    for start in range(0, rows, BATCH):
        for _, batch in to_batches(samples[start : start + BATCH], inputs):
            yield batch


def random_sample(manifest: Manifest, rng: np.random.Generator) -> Sample:
    """Return a random row of the task of a manifest."""
    limits, task = manifest.limits, manifest.task
    length = int(rng.integers(1, min(limits.max_tokens, MOST_TOKENS) + 1))
    ids, types = rng.integers(0, limits.vocab_size, length).tolist(), [0] * length
    if task == "translate":
        size = interface(manifest).outputs[0].shape[-1]
        assert isinstance(size, int)
        target = rng.integers(0, size, rng.integers(1, min(limits.max_tokens, TARGET_TOKENS) + 1)).tolist()
        return Sample(ids, types, range(len(target)), target)
    return Sample(ids, types, range(0, length, MASK_EVERY) if task in ("generate", "fill-mask") else ())
