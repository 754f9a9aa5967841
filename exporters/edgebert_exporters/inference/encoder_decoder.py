"""Encoder-decoders: a graph that reads the source once, and one for every token of the target."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgebert_exporters.graphs.signatures import Signature, forced_signature
from edgebert_exporters.inference.batch import Batch
from edgebert_exporters.inference.model_kind import Array, Opened, Opener
from edgebert_exporters.inference.sample_texts import Sample
from edgebert_exporters.inference.teacher_forcing import TeacherForcedSeq2Seq
from edgebert_exporters.inference.translation import translate_greedily
from edgebert_runtime.bundle.manifest import Manifest
from edgebert_runtime.decoders.seq2seq_signature import Seq2SeqSignature
from edgebert_runtime.session.session import Runnable

# Sources, their length, and target tokens of the workloads: the first token alone, one text, many.
WORKLOADS = ((1, 32, 1), (1, 32, 16), (32, 32, 8))
# Samples are so many texts, each with at most so many tokens of its translation.
MOST_TRANSLATIONS, TARGET_TOKENS = 48, 24
# The target of a random sample has at most so many tokens.
RANDOM_TARGET_TOKENS = 8
# The target of the golden sample: the first tokens of any vocabulary.
GOLDEN_TARGET = (0, 1, 2)
# Translations that are compared.
PROMPTS = 8


class EncoderDecoder:
    """The kind of models that read a source and write a target."""

    scores_samples = False

    def signature(self, manifest: Manifest) -> Signature:
        """Return the inputs and outputs under teacher forcing."""
        return forced_signature(target_vocab_size(manifest))

    def open(self, folder: Path, manifest: Manifest, opener: Opener, with_swapped_beams: bool) -> Runnable:
        """Open both graphs as one session that reads sources and targets."""
        encoder, decoder = manifest.graphs["encoder"], manifest.graphs["decoder"]
        sessions = (opener(folder / spec.file) for spec in (encoder, decoder))
        graph = Seq2SeqSignature.from_specs(encoder, decoder)
        return TeacherForcedSeq2Seq(graph, *sessions, with_swapped_beams=with_swapped_beams)

    def samples(self, opened: Opened, rows: Sequence[Sequence[int]]) -> list[Sample]:
        """Return sources with the model's own translations as targets."""
        rows = rows[:MOST_TRANSLATIONS]
        targets = translate_greedily(opened.session, opened.bundle.manifest, rows, TARGET_TOKENS)
        return [
            Sample(row, [0] * len(row), range(len(target)), target) for row, target in zip(rows, targets, strict=True)
        ]

    def random_sample(self, manifest: Manifest, max_tokens: int, rng: np.random.Generator) -> Sample:
        """Return a random source with a random target."""
        limits = manifest.limits
        length = int(rng.integers(1, min(limits.max_tokens, max_tokens) + 1))
        ids = rng.integers(0, limits.vocab_size, length).tolist()
        target_length = rng.integers(1, min(limits.max_tokens, RANDOM_TARGET_TOKENS) + 1)
        target = rng.integers(0, target_vocab_size(manifest), target_length).tolist()
        return Sample(ids, [0] * length, range(len(target)), target)

    def golden_inputs(self, manifest: Manifest, ids: Array) -> Mapping[str, Array]:
        """Return a source with a short target, and ask for what follows it."""
        target = np.array([GOLDEN_TARGET[: manifest.limits.max_tokens]])
        return {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "decoder_input_ids": target,
            "logits_indices": np.array([target.size - 1]),
        }

    def workloads(self, manifest: Manifest) -> list[Batch]:
        """Return the batches of :data:`WORKLOADS`."""
        limits, batches = manifest.limits, []
        for size, source, target in WORKLOADS:
            source, target = min(source, limits.max_tokens), min(target, limits.max_tokens)
            feeds = {
                "input_ids": np.random.default_rng(0).integers(0, limits.vocab_size, (size, source)),
                "attention_mask": np.ones((size, source), np.int64),
                "decoder_input_ids": np.zeros((size, target), np.int64),
                "logits_indices": np.arange(1, size + 1) * target - 1,
                "top_k": np.ones(1, np.int64),
            }
            batches.append(Batch(f"{size} x {source} to {target}", feeds))
        return batches

    def prepared(self, session: Any, batch: Batch) -> Callable[[], object]:
        """Return a run of both graphs."""
        return functools.partial(session.run, None, batch.feeds)

    def token_fidelity(self, before: Opened, after: Opened, samples: Sequence[Sample]) -> float | None:
        """Return the share of equal tokens in greedy translations.

        The targets of the samples are the translations of ``before``.
        """
        chosen, matches = samples[:PROMPTS], []
        most = max(len(sample.target) for sample in chosen)
        sources = [sample.ids for sample in chosen]
        translations = translate_greedily(after.session, after.bundle.manifest, sources, most)
        for sample, translation in zip(chosen, translations, strict=True):
            target = sample.target
            equal = [a == b for a, b in zip(target, translation, strict=False)]
            equal += [False] * abs(len(target) - len(translation))
            matches.append(np.cumprod(equal[1:] or [True]))
        return float(np.concatenate(matches).mean())


def target_vocab_size(manifest: Manifest) -> int:
    """Return the size of the vocabulary of targets."""
    size = manifest.graphs["decoder"].outputs[0].shape[-1]
    assert isinstance(size, int)
    return size
