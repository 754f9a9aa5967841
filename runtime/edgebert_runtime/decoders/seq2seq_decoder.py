"""The targets that a search continues, one row each, laid out as the graph takes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgebert_runtime.decoders.causal_decoder import Continuing
from edgebert_runtime.decoders.causal_kv_cache import Floats, Ints, Outputs
from edgebert_runtime.decoders.causal_signature import LOGITS
from edgebert_runtime.decoders.seq2seq_kv_cache import Past, SourceCache


class TargetRows(Continuing):
    """Rows of targets over a past and its sources.

    The graph wants as many rows for each source. Where one has fewer than another, copies of its first row stand in
    for the rest, and what they give is dropped. A source that has no rows any more is forgotten.
    """

    def __init__(self, past: Past, sources: SourceCache) -> None:
        super().__init__(past.graph.vocab_size)
        self.past, self.sources = past, sources
        self.owners = np.arange(sources.count)  # (rows,) the source of each row
        self.places = np.arange(sources.count)  # (rows,) where in the graph's batch each row is
        self.fill = np.arange(sources.count)  # (places,) the row that is there, or that is copied there
        self.straight = True  # each row is in the place of its number, and there are no others

    def begin(self, targets: Sequence[Sequence[int]]) -> Floats:
        """Start each row with the tokens of its target, as many in all; return the logits (rows, vocab) that follow."""
        columns = np.array(targets, np.int64).T
        for column in columns[:-1]:
            self.past.run(column, self.sources, ())
        logits: Floats = self.past.run(columns[-1], self.sources, LOGITS)[0]
        return logits

    def step(self, parents: Ints, tokens: Ints, outputs: Sequence[str], best: int) -> Outputs:
        """Continue rows, and return what is asked for."""
        places, owners = self.places[parents], self.owners[parents]
        if not np.array_equal(owners, self.owners):
            self.lay_out(owners)
        self.past.take(places[self.fill])
        found = self.past.run(tokens[self.fill], self.sources, outputs, best)
        return found if self.straight else [output[self.places] for output in found]

    def lay_out(self, owners: Ints) -> None:
        """Say where rows of these sources stand."""
        kept, counts = np.unique(owners, return_counts=True)
        if len(kept) < self.sources.count:
            numbers = self.sources.keep(kept)
            owners, counts = numbers[np.searchsorted(kept, owners)], counts[np.argsort(numbers)]
        order, starts = np.argsort(owners, kind="stable"), np.cumsum(counts) - counts
        width = int(counts.max())
        self.places = np.empty_like(owners)
        self.places[order] = np.arange(len(owners)) + np.repeat(width * np.arange(len(counts)) - starts, counts)
        self.fill = np.repeat(order[starts], width)
        self.fill[self.places] = np.arange(len(owners))
        self.straight = np.array_equal(self.fill, np.arange(len(owners)))
        self.owners = owners
