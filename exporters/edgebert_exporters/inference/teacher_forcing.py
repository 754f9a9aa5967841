"""Teacher forcing: an encoder and its decoder as one model that reads given targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgebert_runtime.decoders.causal_signature import LOGITS, TOP
from edgebert_runtime.decoders.seq2seq_kv_cache import (
    CrossAttentionCache,
    Seq2SeqConcatKVCache,
    Seq2SeqInPlaceKVCache,
    Seq2SeqKVCache,
)
from edgebert_runtime.decoders.seq2seq_signature import Seq2SeqSignature
from edgebert_runtime.session.session import Runnable

Array = npt.NDArray[Any]


class TeacherForcedSeq2Seq:
    """Encoder and decoder as one session that reads sources and targets.

    ``with_swapped_beams`` gives each target a twin of other tokens and swaps the two at every step, as beams are
    reordered: a cache that loses track of its rows is noticed.
    """

    def __init__(
        self, graph: Seq2SeqSignature, encoder: Runnable, decoder: Runnable, *, with_swapped_beams: bool = False
    ) -> None:
        self.graph, self.encoder, self.decoder = graph, encoder, decoder
        self.width = 2 if with_swapped_beams else 1

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Array]) -> list[Any]:
        """Compute the outputs called ``output_names``, all if None."""
        names = output_names or [*LOGITS, *TOP]
        targets, chosen = feeds["decoder_input_ids"], feeds["logits_indices"]
        count = int(feeds["top_k"][0]) if "top_k" in feeds else 1
        steps = self.steps(feeds["input_ids"], feeds["attention_mask"], targets, names, count)
        row, position = np.divmod(chosen, targets.shape[1])
        return [np.stack(columns, 1)[row, position] for columns in zip(*steps, strict=True)]

    def steps(self, ids: Array, mask: Array, targets: Array, names: Sequence[str], count: int) -> list[list[Array]]:
        """Return the outputs called ``names`` of each step, a row for each target."""
        cross = self.encoder.run(list(self.graph.cross_names), {"input_ids": ids, "attention_mask": mask})
        sources = CrossAttentionCache(list(cross), np.ascontiguousarray(mask), len(ids))
        rows, length = targets.shape
        beams = np.stack([targets, targets[:, ::-1]], 1)[:, : self.width].reshape(-1, length)
        numbers = np.arange(len(beams))
        past, outputs_by_step = self.past(len(beams), length), []
        for position in range(length):
            offset = position % self.width
            order = numbers ^ offset  # each row, or its twin
            outputs = past.run(beams[order, position], sources, names, count)
            outputs_by_step.append([output[offset :: self.width].copy() for output in outputs])
            past.reorder(numbers ^ (self.width - 1))
        return outputs_by_step

    def past(self, rows: int, length: int, width: int = 1) -> Seq2SeqKVCache:
        """Return an empty cache of ``rows`` targets of ``length`` tokens, each of which becomes ``width`` rows."""
        if self.graph.in_place:
            return Seq2SeqInPlaceKVCache(self.graph, self.decoder, rows * width, length, length)
        return Seq2SeqConcatKVCache(self.graph, self.decoder, rows)
