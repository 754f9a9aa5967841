"""Greedy decoding of prompts, in a batch or one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgebert_exporters.graphs.signatures import past_of
from edgebert_exporters.inference.batch import Batch, Floats, Ints, Reference
from edgebert_runtime.bundle.manifest import TensorSpec
from edgebert_runtime.inputs.batching import pad


def first_batch(prompts: Sequence[Sequence[int]], inputs: Sequence[TensorSpec]) -> Batch:
    """Return prompts as a batch that asks for the next token of each.

    They are padded on the right and have no past.
    """
    ids, mask = pad(prompts)
    ends = np.arange(len(prompts)) * ids.shape[1] + np.array([len(prompt) - 1 for prompt in prompts])
    feeds: dict[str, npt.NDArray[Any]] = {"input_ids": ids, "attention_mask": mask, "logits_indices": ends}
    feeds["top_k"] = np.ones(1, np.int64)
    for spec in past_of(inputs):
        feeds[spec.name] = np.zeros((len(prompts), int(spec.shape[1]), 0, int(spec.shape[3])), np.float32)
    return Batch("prompts", feeds)


def next_batch(batch: Batch, outputs: Sequence[npt.NDArray[Any]], tokens: Ints) -> Batch:
    """Return the batch of the next ``tokens`` (rows,).

    The present of the batch before is its past.
    """
    rows = len(tokens)
    present = [output for output in outputs if output.ndim == 4]
    feeds = {
        "input_ids": tokens[:, None],
        "attention_mask": np.concatenate([batch.attention_mask, np.ones((rows, 1), np.int64)], 1),
        "logits_indices": np.arange(rows),
        "top_k": batch.feeds["top_k"],
        **dict(zip([name for name in batch.feeds if batch.feeds[name].ndim == 4], present, strict=True)),
    }
    return Batch(batch.name, feeds)


def continued(
    run: Reference,
    prompts: Sequence[Sequence[int]],
    inputs: Sequence[TensorSpec],
    steps: int,
    forced: Ints | None = None,
) -> list[Floats]:
    """Return the logits (rows, vocab) of each of ``steps`` steps after prompts, in one batch.

    Tokens are the most likely ones, or those of ``forced`` (rows, steps).
    """
    batch, logits = first_batch(prompts, inputs), []
    for step in range(steps):
        outputs = run(batch)
        logits.append(outputs[0])
        if step + 1 < steps:
            batch = next_batch(batch, outputs, outputs[0].argmax(1) if forced is None else forced[:, step])
    return logits


def same_token_share(
    before: Reference, after: Reference, prompts: Sequence[Sequence[int]], inputs: Sequence[TensorSpec], steps: int
) -> float:
    """Return the share of equal tokens in greedy generation.

    Tokens count up to the first difference of each prompt.
    """
    old, new = (
        np.stack([logits.argmax(1) for logits in continued(model, prompts, inputs, steps)], 1)
        for model in (before, after)
    )
    return float(np.cumprod(old == new, axis=1).mean())
