"""Greedy and beam search of encoder-decoder graphs against the same search over the PyTorch reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgebert_exporters.inference.batch import Batch, Floats, Ints, Reference
from edgebert_exporters.inference.teacher_forcing import TeacherForcedSeq2Seq
from edgebert_runtime.bundle.manifest import Manifest
from edgebert_runtime.decoders.seq2seq_decoder import Seq2SeqDecoder
from edgebert_runtime.decoders.seq2seq_kv_cache import CrossAttentionCache
from edgebert_runtime.errors import ParityError
from edgebert_runtime.generation import Hypothesis, Options, search
from edgebert_runtime.inputs.batching import pad

SOURCE_LENGTHS = (1, 3, 9, 17)
BEAMS = (1, 4)
STEPS = 8
# Hypotheses whose scores differ by no more, relatively, may change places.
TIE = 1e-4


class RecomputedRows:
    """A step model that computes every target anew for each token, without a KV cache."""

    def __init__(self, reference: Reference, sources: Sequence[list[int]], start: int) -> None:
        self.reference = reference
        self.ids, self.mask = pad(sources)
        self.owners = np.arange(len(sources))
        self.targets: Ints = np.full((len(sources), 1), start, np.int64)

    def logits(self) -> Floats:
        """Return the logits (rows, vocab) of the next token of each row."""
        rows, length = self.targets.shape
        feeds: dict[str, npt.NDArray[Any]] = {
            "input_ids": self.ids[self.owners],
            "attention_mask": self.mask[self.owners],
            "decoder_input_ids": self.targets,
            "logits_indices": np.arange(1, rows + 1) * length - 1,
            "top_k": np.ones(1, np.int64),
        }
        return self.reference(Batch("translations", feeds))[0]

    def step(self, parents: Ints, tokens: Ints) -> Floats:
        """Continue the rows ``parents`` with ``tokens``."""
        self.owners = self.owners[parents]
        self.targets = np.concatenate([self.targets[parents], tokens[:, None]], 1)
        return self.logits()


def check_translations(
    session: TeacherForcedSeq2Seq, reference: Reference, manifest: Manifest, seed: int = 0
) -> dict[str, Any]:
    """Compare greedy and beam search with those of the reference.

    Raises:
        ParityError: if a translation differs by more than the order of equally good ones.
    """
    limits, rng = manifest.limits, np.random.default_rng(seed)
    start = int(manifest.decoding.get("decoder_start_token_id") or 0)
    lengths = [min(length, limits.max_tokens) for length in SOURCE_LENGTHS]
    sources = [rng.integers(0, limits.vocab_size, length).tolist() for length in lengths]
    prompts = [[start]] * len(sources)
    max_new_tokens = max(1, min(STEPS, limits.max_tokens - 1))
    for beams in BEAMS:
        options = Options.read({}, max_new_tokens=max_new_tokens, num_beams=beams)
        cross = CrossAttentionCache.encode(session.graph, session.encoder, sources)
        rows = Seq2SeqDecoder(session.past(len(sources), max_new_tokens + 1, beams), cross)
        recomputed = RecomputedRows(reference, sources, start)
        sides = (rows, rows.prefill(prompts)), (recomputed, recomputed.logits())
        results = (search(model, logits, prompts, options, limit=limits.max_tokens) for model, logits in sides)
        for source, (actual,), (expected,) in zip(sources, *results, strict=True):
            if not same_or_tied(actual, expected):
                raise ParityError(
                    f"with num_beams={beams} the {manifest.target} graphs translate a source of {len(source)} tokens "
                    f"to {list(actual.tokens)} instead of {list(expected.tokens)}; please report this model"
                )
    return {"sources": len(sources), "num_beams": list(BEAMS), "tokens": len(sources) * len(BEAMS) * max_new_tokens}


def same_or_tied(actual: Hypothesis, expected: Hypothesis) -> bool:
    """Return whether two hypotheses have the same tokens, or scores within :data:`TIE`."""
    tied = abs(actual.score - expected.score) <= TIE * max(1, abs(expected.score))
    return actual.tokens == expected.tokens or tied
