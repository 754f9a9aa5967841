"""Translate with the graphs of a bundle and with the reference, which must find the same."""

from __future__ import annotations

from collections.abc import Sequence

from edgebert_exporters.inference.graph_runner import ForcedTargets
from edgebert_runtime.bundle.manifest import Manifest
from edgebert_runtime.decoders.seq2seq_decoder import Seq2SeqDecoder
from edgebert_runtime.decoders.seq2seq_kv_cache import CrossAttentionCache
from edgebert_runtime.generation import Options, search

# What translations for measuring have in common with those of the engine: how they begin and end, what is never said.
KEPT = ("forced_bos_token_id", "eos_token_id", "bad_words_ids")


def translated(
    opened: ForcedTargets, manifest: Manifest, sources: Sequence[Sequence[int]], most: int, at_once: int = 16
) -> list[list[int]]:
    """Return what a model makes of sources greedily, at most ``most`` tokens: the start and all tokens but the last."""
    start = int(manifest.decoding.get("decoder_start_token_id") or 0)
    most = max(1, min(most, manifest.limits.max_tokens - 1))
    kept = {name: manifest.decoding[name] for name in KEPT if manifest.decoding.get(name) is not None}
    options = Options.read(kept, max_new_tokens=most)
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    found: list[list[int]] = [[] for _ in sources]
    for first in range(0, len(order), at_once):
        batch = order[first : first + at_once]
        cache = CrossAttentionCache.encode(opened.graph, opened.encoder, [sources[i] for i in batch])
        model, prompts = Seq2SeqDecoder(opened.past(len(batch), most + 1), cache), [[start]] * len(batch)
        hypotheses = search(model, model.prefill(prompts), prompts, options, limit=manifest.limits.max_tokens)
        for i, (one,) in zip(batch, hypotheses, strict=True):
            found[i] = [start, *one.tokens[:-1]]
    return found
