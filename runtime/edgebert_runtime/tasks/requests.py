"""What callers may ask for, and the rows of token ids that their texts become."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.inputs.batching import pad
from edgebert_runtime.inputs.validation import Errors

V = TypeVar("V")
R = TypeVar("R")


class TextOptions(TypedDict, total=False):
    """The options that every method takes by keyword.

    ``max_tokens``: where a text is cut, or how long a window is, in tokens, special tokens included; by default the
    bundle's ``default_tokens``. ``truncate=False`` refuses longer texts with a LimitError instead of cutting them.
    ``max_batch_tokens`` bounds the tokens computed at a time, padding included, and so the memory.
    ``errors="replace"`` puts U+FFFD in the place of lone surrogates, which are refused otherwise.
    """

    max_tokens: int | None
    truncate: bool
    max_batch_tokens: int | None
    errors: Errors


@dataclass(frozen=True)
class Options:
    """The options of a call, checked."""

    max_tokens: int
    max_ids: int
    truncate: bool
    max_batch_tokens: int
    errors: Errors


@dataclass(frozen=True)
class Row:
    """One row of a batch: token ids, their segments (None: all the first), and whether text was cut off.

    ``chosen`` are the positions whose logits are asked for, of graphs that compute chosen ones only.
    """

    ids: Sequence[int] | NDArray[np.int64]
    types: Sequence[int] | None = None
    truncated: bool = False
    chosen: Sequence[int] = ()


@dataclass(frozen=True)
class Work(Generic[V, R]):
    """What one item asks for: rows, and how what was read from each of them becomes the item's result."""

    rows: list[Row]
    finish: Callable[[list[V]], R]


def single(row: Row) -> Work[V, V]:
    """Return what an item asks for whose result is what was read from its only row."""
    return Work([row], lambda found: found[0])


def feed(rows: Sequence[Row], inputs: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Return what a graph with the ``inputs`` named is fed for a batch of rows."""
    ids, mask = pad([row.ids for row in rows])
    feeds = {"input_ids": ids, "attention_mask": mask}
    if "token_type_ids" in inputs:
        feeds["token_type_ids"] = types = np.zeros_like(ids)
        for place, row in enumerate(rows):
            if row.types is not None:
                types[place, : len(row.types)] = row.types
    if "logits_indices" in inputs:
        flat = [place * ids.shape[1] + at for place, row in enumerate(rows) for at in row.chosen]
        feeds["logits_indices"] = np.array(flat, np.int64)
    return feeds
