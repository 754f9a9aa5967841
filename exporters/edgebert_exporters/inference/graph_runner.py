"""Open the graphs of a bundle as one function from a batch to outputs, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgebert_exporters.graphs.signatures import Signature, forced_signature
from edgebert_exporters.inference.batch import Reference
from edgebert_exporters.inference.decoder_adapter import adapt
from edgebert_runtime.bundle.manifest import Manifest, TensorSpec
from edgebert_runtime.decoders.causal_signature import LOGITS, PRESENT, TOP
from edgebert_runtime.decoders.seq2seq_kv_cache import (
    CrossAttentionCache,
    Seq2SeqConcatKVCache,
    Seq2SeqInPlaceKVCache,
    Seq2SeqKVCache,
)
from edgebert_runtime.decoders.seq2seq_signature import Seq2SeqSignature
from edgebert_runtime.session.session import Runnable, open_session

Array = npt.NDArray[Any]
Opener = Callable[[Path], Runnable]


def interface(manifest: Manifest) -> Signature:
    """Return what goes into the graphs of a bundle, and what comes out, as :func:`open_graphs` has it."""
    if "decoder" in manifest.graphs:
        size = manifest.graphs["decoder"].outputs[0].shape[-1]
        assert isinstance(size, int)
        return forced_signature(size)
    spec = manifest.graphs["model"]
    return Signature(spec.inputs, spec.outputs)


def result_outputs(outputs: Sequence[TensorSpec]) -> list[str]:
    """Return the names of the outputs that are results.

    They are all but the keys and values that a decoder keeps, and the tokens that it chooses by its logits.
    """
    return [spec.name for spec in outputs if not spec.name.startswith(f"{PRESENT}.") and spec.name not in TOP]


def as_function(session: Runnable) -> Reference:
    """Return a session as a function from a batch to its outputs."""
    return lambda batch: list(session.run(None, batch.feeds))


def open_graphs(folder: Path, manifest: Manifest, opener: Opener = open_session, *, twins: bool = False) -> Runnable:
    """Open the graphs of a bundle.

    One with a past runs on columns (:mod:`edgebert_exporters.inference.decoder_adapter`), and an encoder with its
    decoder on sources and targets that are given; with ``twins`` in a way that gets the cache into disorder if it can.
    """
    if "decoder" in manifest.graphs:
        encoder, decoder = manifest.graphs["encoder"], manifest.graphs["decoder"]
        sessions = (opener(folder / spec.file) for spec in (encoder, decoder))
        return ForcedTargets(Seq2SeqSignature.from_specs(encoder, decoder), *sessions, twins=twins)
    spec = manifest.graphs["model"]
    return adapt(opener(folder / spec.file), spec.inputs)


class ForcedTargets:
    """Encoder and decoder as one model that reads sources and targets.

    With ``twins``, each target is followed by a row with other tokens, and the two change places at every step, as
    beams do.
    """

    def __init__(self, graph: Seq2SeqSignature, encoder: Runnable, decoder: Runnable, *, twins: bool = False) -> None:
        self.graph, self.encoder, self.decoder = graph, encoder, decoder
        self.width = 2 if twins else 1

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
        twins = np.stack([targets, targets[:, ::-1]], 1)[:, : self.width].reshape(-1, length)
        numbers = np.arange(len(twins))
        past = self.past(len(twins), length)
        found = []
        for position in range(length):
            place = position % self.width
            order = numbers ^ place  # each row, or its twin
            outputs = past.run(twins[order, position], sources, names, count)
            found.append([output[place :: self.width].copy() for output in outputs])
            past.reorder(numbers ^ (self.width - 1))
        return found

    def past(self, rows: int, length: int, width: int = 1) -> Seq2SeqKVCache:
        """Return an empty past of rows that may have ``length`` tokens, and become ``width`` rows each."""
        if self.graph.in_place:
            return Seq2SeqInPlaceKVCache(self.graph, self.decoder, rows * width, length, length)
        return Seq2SeqConcatKVCache(self.graph, self.decoder, rows)
