"""The step model of an encoder-decoder model: one row a target."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgebert_runtime.decoders.causal_decoder import DecoderStepModel
from edgebert_runtime.decoders.causal_signature import LOGITS
from edgebert_runtime.decoders.kv_cache import Floats, Ints, Outputs
from edgebert_runtime.decoders.seq2seq_kv_cache import CrossAttentionCache, Seq2SeqKVCache


class Seq2SeqDecoder(DecoderStepModel):
    """A decoder over its KV cache and the cross-attention cache of its sources.

    The graph takes the same number of rows for each source. Missing ones are copies of the first row of the source,
    whose outputs are dropped. A source without rows is dropped too.
    """

    def __init__(self, cache: Seq2SeqKVCache, sources: CrossAttentionCache) -> None:
        super().__init__(cache.signature.vocab_size)
        self.cache, self.sources = cache, sources
        self.row_sources = np.arange(sources.count)  # (rows,) the source of each row
        self.slots = np.arange(sources.count)  # (rows,) the place of each row in the graph's batch
        self.slot_rows = np.arange(sources.count)  # (slots,) the row in each place, or the row that is copied there
        self.in_order = True  # each row is in the place of its number, and there are no copies

    def prefill(self, targets: Sequence[Sequence[int]]) -> Floats:
        """Start each row with its target, and return the logits (rows, vocab) after it.

        All targets have the same length.
        """
        columns = np.array(targets, np.int64).T
        for column in columns[:-1]:
            self.cache.run(column, self.sources, ())
        logits: Floats = self.cache.run(columns[-1], self.sources, LOGITS)[0]
        return logits

    def run(self, parents: Ints, tokens: Ints, outputs: Sequence[str], top_k: int) -> Outputs:
        """Continue rows; see :class:`DecoderStepModel`."""
        slots, row_sources = self.slots[parents], self.row_sources[parents]
        if not np.array_equal(row_sources, self.row_sources):
            self.lay_out(row_sources)
        self.cache.reorder(slots[self.slot_rows])
        results = self.cache.run(tokens[self.slot_rows], self.sources, outputs, top_k)
        return results if self.in_order else [output[self.slots] for output in results]

    def lay_out(self, row_sources: Ints) -> None:
        """Assign slots to the rows of these sources (rows,)."""
        sources, counts = np.unique(row_sources, return_counts=True)
        if len(sources) < self.sources.count:
            numbers = self.sources.select(sources)
            row_sources, counts = numbers[np.searchsorted(sources, row_sources)], counts[np.argsort(numbers)]
        order, starts = np.argsort(row_sources, kind="stable"), np.cumsum(counts) - counts
        width = int(counts.max())
        self.slots = np.empty_like(row_sources)
        self.slots[order] = np.arange(len(row_sources)) + np.repeat(width * np.arange(len(counts)) - starts, counts)
        self.slot_rows = np.repeat(order[starts], width)
        self.slot_rows[self.slots] = np.arange(len(row_sources))
        self.in_order = np.array_equal(self.slot_rows, np.arange(len(row_sources)))
        self.row_sources = row_sources
