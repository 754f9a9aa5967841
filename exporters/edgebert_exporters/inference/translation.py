"""Greedy translation with the graphs of a bundle."""

from __future__ import annotations

from collections.abc import Sequence

from edgebert_exporters.inference.teacher_forcing import TeacherForcedSeq2Seq
from edgebert_runtime.bundle.manifest import Manifest
from edgebert_runtime.decoders.seq2seq_decoder import Seq2SeqDecoder
from edgebert_runtime.decoders.seq2seq_kv_cache import CrossAttentionCache
from edgebert_runtime.generation import Options, search

# The settings of the engine that count here too: the first and last tokens, and those that are never generated.
SETTINGS = ("forced_bos_token_id", "eos_token_id", "bad_words_ids")


def translate_greedily(
    session: TeacherForcedSeq2Seq,
    manifest: Manifest,
    sources: Sequence[Sequence[int]],
    max_new_tokens: int,
    batch_size: int = 16,
) -> list[list[int]]:
    """Return greedy translations as inputs of the decoder.

    They are the start token and all generated ones but the last.
    """
    start = int(manifest.decoding.get("decoder_start_token_id") or 0)
    max_new_tokens = max(1, min(max_new_tokens, manifest.limits.max_tokens - 1))
    settings = {name: manifest.decoding[name] for name in SETTINGS if manifest.decoding.get(name) is not None}
    options = Options.read(settings, max_new_tokens=max_new_tokens)
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    translations: list[list[int]] = [[] for _ in sources]
    for first in range(0, len(order), batch_size):
        batch = order[first : first + batch_size]
        cache = CrossAttentionCache.encode(session.graph, session.encoder, [sources[i] for i in batch])
        model, prompts = Seq2SeqDecoder(session.past(len(batch), max_new_tokens + 1), cache), [[start]] * len(batch)
        hypotheses = search(model, model.prefill(prompts), prompts, options, limit=manifest.limits.max_tokens)
        for i, (hypothesis,) in zip(batch, hypotheses, strict=True):
            translations[i] = [start, *hypothesis.tokens[:-1]]
    return translations
