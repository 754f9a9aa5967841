"""Encoders: one graph from texts to vectors or logits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgebert_exporters.graphs.signatures import Signature
from edgebert_exporters.inference.batch import Batch
from edgebert_exporters.inference.model_kind import Array, Opened, Opener
from edgebert_exporters.inference.sample_texts import Sample
from edgebert_runtime.bundle.manifest import Manifest
from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.errors import QuantizationError
from edgebert_runtime.session.session import Runnable
from edgebert_runtime.task_specs import TASKS

# Batch size and length of the workloads: one short text, one long text, a batch of short texts.
SHAPES = ((1, 16), (1, 128), (8, 32))
# One token in so many is masked, or asked for.
MASK_EVERY = 7


class Encoder:
    """The kind of models that read whole texts."""

    scores_samples = False

    def signature(self, manifest: Manifest) -> Signature:
        """Return the inputs and outputs of the graph."""
        return single_graph_signature(manifest)

    def open(self, folder: Path, manifest: Manifest, opener: Opener, with_swapped_beams: bool) -> Runnable:
        """Open the graph."""
        return opener(folder / manifest.graphs["model"].file)

    def samples(self, opened: Opened, rows: Sequence[Sequence[int]]) -> list[Sample]:
        """Return one sample per row.

        It is the row alone, with the next row as its pair, or with masks in it.
        """
        manifest = opened.bundle.manifest
        spec, most = TASKS[manifest.task], manifest.limits.max_tokens
        if spec.reads_pairs:  # the last row is paired with the first
            pairs = [(list(row), list(rows[(i + 1) % len(rows)])[1:]) for i, row in enumerate(rows)]
            segments = [[0] * len(first) + [1] * len(second) for first, second in pairs]
            texts = [first + second for first, second in pairs]
            return [Sample(ids[:most], types[:most]) for ids, types in zip(texts, segments, strict=True)]
        if spec.reads_chosen_tokens:
            mask = mask_id(opened.bundle)
            return [masked(row, mask) for row in rows]
        return [Sample(row, [0] * len(row)) for row in rows]

    def random_sample(self, manifest: Manifest, max_tokens: int, rng: np.random.Generator) -> Sample:
        """Return random tokens, some of which are asked for where tokens are chosen."""
        return random_sample(manifest, max_tokens, rng)

    def golden_inputs(self, manifest: Manifest, ids: Array) -> Mapping[str, Array]:
        """Return a text that asks for its second token, where tokens are chosen."""
        return {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
            "pooling_mask": np.ones_like(ids),
            "logits_indices": np.array([min(1, ids.size - 1)], np.int64),
        }

    def workloads(self, manifest: Manifest) -> list[Batch]:
        """Return the batches of :data:`SHAPES`."""
        limits, batches = manifest.limits, []
        for size, length in SHAPES:
            length = min(length, limits.max_tokens)
            values = {
                "input_ids": np.random.default_rng(0).integers(0, limits.vocab_size, (size, length)),
                "attention_mask": np.ones((size, length), np.int64),
                "token_type_ids": np.zeros((size, length), np.int64),
                "pooling_mask": np.ones((size, length), np.int64),
                "logits_indices": np.arange(1, size + 1) * length - 1,
            }
            feeds = {name: values[name] for name in self.signature(manifest).input_names}
            batches.append(Batch(f"{size} x {length}", feeds))
        return batches

    def prepared(self, session: Any, batch: Batch) -> Callable[[], object]:
        """Return a run of the session."""
        return functools.partial(session.run, None, batch.feeds)

    def token_fidelity(self, before: Opened, after: Opened, samples: Sequence[Sample]) -> float | None:
        """Return None: encoders generate nothing."""
        return None


def single_graph_signature(manifest: Manifest) -> Signature:
    """Return the inputs and outputs of a bundle with one graph."""
    spec = manifest.graphs["model"]
    return Signature(spec.inputs, spec.outputs)


def random_sample(manifest: Manifest, max_tokens: int, rng: np.random.Generator) -> Sample:
    """Return random tokens; where tokens are chosen, every :data:`MASK_EVERY`-th is."""
    limits = manifest.limits
    length = int(rng.integers(1, min(limits.max_tokens, max_tokens) + 1))
    ids = rng.integers(0, limits.vocab_size, length).tolist()
    chosen = range(0, length, MASK_EVERY) if TASKS[manifest.task].reads_chosen_tokens else ()
    return Sample(ids, [0] * length, chosen)


def masked(row: Sequence[int], mask: int) -> Sample:
    """Return a text with every :data:`MASK_EVERY`-th inner token masked."""
    inner = range(1, len(row) - 1) or range(len(row))
    chosen = inner[len(inner) // 2 % MASK_EVERY :: MASK_EVERY]
    return Sample([mask if i in chosen else token for i, token in enumerate(row)], [0] * len(row), chosen)


def mask_id(bundle: Bundle) -> int:
    """Return the id of the mask token.

    Raises:
        QuantizationError: if the tokenizer does not have it.
    """
    import tokenizers

    token = bundle.manifest.settings.get("mask_token")
    index = tokenizers.Tokenizer.from_file(str(bundle.path / "tokenizer.json")).token_to_id(str(token))
    if index is None:
        raise QuantizationError(f"{bundle.path}: the tokenizer has no mask token {token!r}; export the bundle again")
    return int(index)
