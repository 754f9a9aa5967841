"""Rows of token ids, the items that they belong to, and the arrays that a graph reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.inputs.batching import pad


@dataclass(frozen=True)
class ModelInput:
    """One row of a batch: token ids, their segments (None: all 0), and whether its text was cut.

    ``logits_indices`` are the positions whose logits are computed, by graphs that compute chosen ones only.
    ``unpooled`` is the number of first tokens that are not pooled, in graphs that leave a prompt out.
    """

    ids: Sequence[int] | NDArray[np.int64]
    token_type_ids: Sequence[int] | None = None
    truncated: bool = False
    logits_indices: Sequence[int] = ()
    unpooled: int = 0


@dataclass(frozen=True)
class WorkItem:
    """One item of a call: its number there, and its rows."""

    index: int
    rows: Sequence[ModelInput]


def build_feeds(rows: Sequence[ModelInput], inputs: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Return arrays (batch, seq) for a graph with the ``inputs`` named."""
    ids, mask = pad([row.ids for row in rows])
    feeds = {"input_ids": ids, "attention_mask": mask}
    if "token_type_ids" in inputs:
        feeds["token_type_ids"] = segments = np.zeros_like(ids)
        for number, row in enumerate(rows):
            if row.token_type_ids is not None:
                segments[number, : len(row.token_type_ids)] = row.token_type_ids
    if "pooling_mask" in inputs:
        feeds["pooling_mask"] = pooled = mask.copy()
        for number, row in enumerate(rows):
            pooled[number, : row.unpooled] = 0
    if "logits_indices" in inputs:
        width = ids.shape[1]
        flat = [number * width + position for number, row in enumerate(rows) for position in row.logits_indices]
        feeds["logits_indices"] = np.array(flat, np.int64)
    return feeds
