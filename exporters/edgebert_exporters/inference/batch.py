"""Batches: the inputs of a graph, their real tokens, and rows alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgebert_runtime.session.session import Runnable

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

PADDINGS = ("none", "right", "left", "holes", "all")
# The most chosen tokens of a batch: a vocabulary is large, and these are enough for every row.
CHOSEN_TOKENS = 32


@dataclass(frozen=True)
class Batch:
    """One batch: its name for messages, and the inputs of the graph by name.

    ``input_ids`` and ``attention_mask`` (batch, seq) are always there, ``token_type_ids`` and ``pooling_mask``
    (batch, seq) and ``logits_indices`` (rows,) only for graphs with these inputs. A decoder has a KV cache as well, and
    its mask is (batch, past + seq). Targets, ``decoder_input_ids`` (batch, target), have no padding.
    """

    name: str
    feeds: dict[str, npt.NDArray[Any]]

    @property
    def input_ids(self) -> Ints:
        """Return the token ids (batch, seq)."""
        return self.feeds["input_ids"]

    @property
    def attention_mask(self) -> Ints:
        """Return the mask (batch, past + seq), 1 at real tokens."""
        return self.feeds["attention_mask"]

    @property
    def read_mask(self) -> Ints:
        """Return the mask of the tokens that ``logits_indices`` count."""
        targets = self.feeds.get("decoder_input_ids")
        return self.new_mask if targets is None else np.ones(targets.shape, np.int64)

    @property
    def new_mask(self) -> Ints:
        """Return the mask (batch, seq) of ``input_ids`` alone."""
        return self.attention_mask[:, -self.input_ids.shape[1] :]

    @property
    def pooled_mask(self) -> Ints:
        """Return the mask (batch, seq) of the tokens that sentence vectors are made of."""
        return self.new_mask * self.feeds.get("pooling_mask", 1)


# A model as a function from a batch to its outputs.
Reference = Callable[[Batch], list[Floats]]


def as_function(session: Runnable) -> Reference:
    """Return a session as a function from a batch to its outputs."""
    return lambda batch: list(session.run(None, batch.feeds))


def mask_row(kind: str, length: int, rng: np.random.Generator) -> Ints:
    """Return a mask (length,) with one of :data:`PADDINGS`."""
    mask = np.ones(length, np.int64)
    padded = max(1, length // 3) if length > 1 else 0
    if kind == "right":
        mask[length - padded :] = 0
    elif kind == "left":
        mask[:padded] = 0
    elif kind == "holes":
        mask[rng.choice(length, padded, replace=False)] = 0
    elif kind == "all":
        mask[:] = 0
    return mask


def choose(mask: Ints, rng: np.random.Generator) -> Ints:
    """Return indices of some real tokens of each row of ``mask``, shuffled.

    Indices are row * seq + position. A row without real tokens gives some of its padding.
    """
    batch, seq = mask.shape
    chosen = []
    for row in range(batch):
        real = np.flatnonzero(mask[row]) if mask[row].any() else np.arange(seq)
        chosen.append(row * seq + rng.choice(real, min(len(real), CHOSEN_TOKENS // batch), replace=False))
    return rng.permutation(np.concatenate(chosen))


def rows_alone(batch: Batch) -> Iterator[tuple[int, Batch]]:
    """Yield each row with new real tokens as a batch of its own, without padding."""
    seq = batch.read_mask.shape[1]
    for row, (mask, new) in enumerate(zip(batch.attention_mask == 1, batch.new_mask == 1, strict=True)):
        if not new.any():
            continue
        feeds = {}
        for name, x in batch.feeds.items():
            if name == "logits_indices":
                places = x[x // seq == row] % seq
                feeds[name] = places if "decoder_input_ids" in batch.feeds else (new.cumsum() - 1)[places]
            elif name == "decoder_input_ids":
                feeds[name] = x[row][None]
            elif name == "top_k":
                feeds[name] = x
            elif x.ndim == 4:
                feeds[name] = x[row][:, mask[: x.shape[2]]][None]
            else:
                feeds[name] = x[row, mask if name == "attention_mask" else new][None]
        yield row, Batch(f"row {row} of {batch.name}", feeds)


def real_outputs(dimensions: tuple[int | str, ...], batch: Batch) -> npt.NDArray[np.bool_]:
    """Return the mask of the meaningful part of an output.

    It is (batch,), (batch, seq), (rows,) or (batch, heads, columns), like the output without its width. A text without
    real tokens counts: its result is defined as well.
    """
    real = batch.new_mask == 1
    if len(dimensions) == 4:
        columns = (batch.attention_mask == 1)[:, None]
        return np.repeat(columns, int(dimensions[1]), axis=1)
    if dimensions[0] == "rows":
        chosen: npt.NDArray[np.bool_] = batch.read_mask.reshape(-1)[batch.feeds["logits_indices"]] == 1
        return chosen
    return real if "sequence" in dimensions else np.ones(len(real), np.bool_)


def row_outputs(dimensions: tuple[int | str, ...], batch: Batch, row: int) -> npt.NDArray[np.bool_]:
    """Return :func:`real_outputs` of one row of the batch."""
    real = real_outputs(dimensions, batch)
    if dimensions[0] == "rows":
        row_of = batch.feeds["logits_indices"] // batch.read_mask.shape[1]
        chosen: npt.NDArray[np.bool_] = real & (row_of == row)
        return chosen
    only = np.zeros_like(real)
    only[row] = real[row]
    return only
