"""Greedy and beam search of encoder-decoder graphs against the same search over the PyTorch reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgebert_exporters.inference.batch import Batch, Floats, Ints, Reference
from edgebert_exporters.inference.graph_runner import ForcedTargets
from edgebert_runtime.bundle.manifest import Manifest
from edgebert_runtime.decoders.seq2seq_decoder import Seq2SeqDecoder
from edgebert_runtime.decoders.seq2seq_kv_cache import CrossAttentionCache
from edgebert_runtime.errors import ParityError
from edgebert_runtime.generation import Hypothesis, Options, search
from edgebert_runtime.inputs.batching import pad

SOURCE_LENGTHS = (1, 3, 9, 17)
BEAMS = (1, 4)
STEPS = 8
# Two hypotheses whose scores differ by less may change places.
TIE = 1e-4


class Recomputed:
    """Rows of targets that a reference computes anew for every token; see ``edgebert_runtime.generation.StepModel``."""

    def __init__(self, reference: Reference, sources: Sequence[list[int]], start: int) -> None:
        self.reference = reference
        self.ids, self.mask = pad(sources)
        self.owners = np.arange(len(sources))
        self.targets: Ints = np.full((len(sources), 1), start, np.int64)

    def logits(self) -> Floats:
        """Return the logits (rows, vocab) of what follows each row."""
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
        """Continue rows."""
        self.owners = self.owners[parents]
        self.targets = np.concatenate([self.targets[parents], tokens[:, None]], 1)
        return self.logits()


def check_translations(
    opened: ForcedTargets, reference: Reference, manifest: Manifest, seed: int = 0
) -> dict[str, Any]:
    """Make sure that greedy and beam search find with the graphs what they find with the reference.

    Raises:
        ParityError: if a translation differs by more than the order of equally good ones.
    """
    limits, rng = manifest.limits, np.random.default_rng(seed)
    start = int(manifest.decoding.get("decoder_start_token_id") or 0)
    lengths = [min(length, limits.max_tokens) for length in SOURCE_LENGTHS]
    sources = [rng.integers(0, limits.vocab_size, length).tolist() for length in lengths]
    prompts = [[start]] * len(sources)
    most = max(1, min(STEPS, limits.max_tokens - 1))
    for beams in BEAMS:
        options = Options.read({}, max_new_tokens=most, num_beams=beams)
        read = CrossAttentionCache.encode(opened.graph, opened.encoder, sources)
        rows = Seq2SeqDecoder(opened.past(len(sources), most + 1, beams), read)
        wanted = Recomputed(reference, sources, start)
        sides = (rows, rows.prefill(prompts)), (wanted, wanted.logits())
        found, expected = (search(model, logits, prompts, options, limit=limits.max_tokens) for model, logits in sides)
        for source, (one,), (other,) in zip(sources, found, expected, strict=True):
            if not same(one, other):
                raise ParityError(
                    f"with num_beams={beams} the {manifest.target} graphs translate a source of {len(source)} tokens "
                    f"to {list(one.tokens)} instead of {list(other.tokens)}; please report this model"
                )
    return {"sources": len(sources), "num_beams": list(BEAMS), "tokens": len(sources) * len(BEAMS) * most}


def same(one: Hypothesis, other: Hypothesis) -> bool:
    """Say whether two hypotheses are one, or as good as each other."""
    return one.tokens == other.tokens or abs(one.score - other.score) <= TIE * max(1, abs(other.score))
