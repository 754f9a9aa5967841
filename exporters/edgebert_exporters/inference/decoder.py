"""Decoders: one graph with a KV cache, for prompts and for every token after them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgebert_exporters.graphs.signatures import Signature, past_of
from edgebert_exporters.inference.batch import Batch, as_function
from edgebert_exporters.inference.decoder_adapter import ColumnCacheAdapter, adapt_decoder
from edgebert_exporters.inference.encoder import random_sample, single_graph_signature
from edgebert_exporters.inference.greedy import same_token_share
from edgebert_exporters.inference.model_kind import Array, Opened, Opener
from edgebert_exporters.inference.random_past import RandomPast
from edgebert_exporters.inference.sample_texts import MIN_TEXTS, Sample
from edgebert_runtime.bundle.manifest import Manifest
from edgebert_runtime.session.session import Runnable

# Batch size, past and new tokens of the workloads: one token, a prompt, one token each for a batch.
STEPS = ((1, 32, 1), (1, 0, 128), (8, 32, 1))
# Samples have at most so many tokens together: the logits of each are a whole vocabulary.
MOST_TOKENS = 4096
# Greedy generation that is compared: prompts, tokens of a prompt, new tokens.
PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 8, 12, 16


class Decoder:
    """The kind of models that continue texts."""

    scores_samples = True

    def signature(self, manifest: Manifest) -> Signature:
        """Return the inputs and outputs of the graph on columns."""
        return single_graph_signature(manifest)

    def open(self, folder: Path, manifest: Manifest, opener: Opener, with_swapped_beams: bool) -> Runnable:
        """Open the graph, adapted to columns of the cache."""
        spec = manifest.graphs["model"]
        return adapt_decoder(opener(folder / spec.file), spec.inputs)

    def samples(self, opened: Opened, rows: Sequence[Sequence[int]]) -> list[Sample]:
        """Return the rows with tokens, and ask for all logits."""
        texts = [Sample(row, [0] * len(row), range(len(row))) for row in rows if row]
        totals = np.cumsum([len(text.ids) for text in texts])
        return texts[: max(MIN_TEXTS, int((totals <= MOST_TOKENS).sum()))]

    def random_sample(self, manifest: Manifest, max_tokens: int, rng: np.random.Generator) -> Sample:
        """Return random tokens, some of which are asked for."""
        return random_sample(manifest, max_tokens, rng)

    def golden_inputs(self, manifest: Manifest, ids: Array) -> Mapping[str, Array]:
        """Return a prompt that asks for what follows its last token."""
        return {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "logits_indices": np.array([ids.size - 1], np.int64),
        }

    def workloads(self, manifest: Manifest) -> list[Batch]:
        """Return the batches of :data:`STEPS`."""
        limits, specs, batches = manifest.limits, manifest.graphs["model"].inputs, []
        pasts = RandomPast(past_of(specs))
        for size, past, new in STEPS:
            past = min(past, limits.max_tokens - 1)
            new = min(new, limits.max_tokens - past)
            values: dict[str, Array] = {
                "input_ids": np.random.default_rng(0).integers(0, limits.vocab_size, (size, new)),
                "attention_mask": np.ones((size, past + new), np.int64),
                "logits_indices": np.arange(1, size + 1) * new - 1,
                "top_k": np.ones(1, np.int64),
                **pasts.make(size, past),
            }
            batches.append(Batch(f"{size} x {new} after {past}", {spec.name: values[spec.name] for spec in specs}))
        return batches

    def prepared(self, session: Any, batch: Batch) -> Callable[[], object]:
        """Return a run of the graph with its cache bound already."""
        assert isinstance(session, ColumnCacheAdapter)
        return session.prepared(batch.feeds)

    def token_fidelity(self, before: Opened, after: Opened, samples: Sequence[Sample]) -> float | None:
        """Return the share of equal tokens in greedy generation."""
        manifest = after.bundle.manifest
        prompts, steps = prompts_from_samples(samples, manifest.limits.max_tokens)
        sides = as_function(before.session), as_function(after.session)
        return same_token_share(*sides, prompts, self.signature(manifest).inputs, steps)


def prompts_from_samples(samples: Sequence[Sample], max_tokens: int) -> tuple[list[list[int]], int]:
    """Return beginnings of samples, and the number of tokens to generate."""
    steps = min(NEW_TOKENS, max(1, max_tokens // 2))
    return [list(sample.ids[: min(PROMPT_TOKENS, max_tokens - steps)]) for sample in samples[:PROMPTS]], steps
