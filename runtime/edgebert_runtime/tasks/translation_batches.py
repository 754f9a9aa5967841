"""Put sources into batches, start their targets, and join the translations of sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from edgebert_runtime.decoders.kv_cache import Floats
from edgebert_runtime.decoders.seq2seq_decoder import Seq2SeqDecoder
from edgebert_runtime.decoders.seq2seq_kv_cache import (
    CrossAttentionCache,
    Seq2SeqConcatKVCache,
    Seq2SeqInPlaceKVCache,
    Seq2SeqKVCache,
)
from edgebert_runtime.decoders.seq2seq_signature import Seq2SeqSignature
from edgebert_runtime.generation import Hypothesis, Options
from edgebert_runtime.inputs.batching import plan_batches
from edgebert_runtime.session.session import Runnable
from edgebert_runtime.tasks.base.text_engine import Generation, with_call_numbers
from edgebert_runtime.tasks.translation_inputs import EncoderInput, SplitText, TranslationRequest

EMPTY = Generation("", (), (), 0.0, "stop")


def batches(sources: Sequence[EncoderInput], width: int, budget: int) -> Iterator[list[int]]:
    """Put sources of about the same length together, by their numbers, whose targets start with as many tokens."""
    for start in sorted({len(source.target) for source in sources}):
        alike = [number for number, source in enumerate(sources) if len(source.target) == start]
        for batch in plan_batches([len(sources[number].ids) * width for number in alike], budget):
            yield [alike[place] for place in batch]


def batch_options(batch: Sequence[EncoderInput], request: TranslationRequest) -> Options:
    """Return the options that hold after the targets so far."""
    options = with_call_numbers(request.options, [source.index for source in batch])
    if batch[0].prefix:  # the forced first token stands before it
        options = replace(options, forced_bos_token_id=None)
    return options


def longest_target(source: EncoderInput, options: Options) -> int:
    """Return the most tokens of the target of a source."""
    if options.max_new_tokens is None:
        return source.limit
    return min(source.limit, len(source.target) + options.max_new_tokens)


def begin_targets(
    graph: Seq2SeqSignature,
    encoder: Runnable,
    decoder: Runnable,
    batch: Sequence[EncoderInput],
    options: Options,
    width: int,
) -> tuple[Seq2SeqDecoder, Floats]:
    """Encode sources, and start ``width`` targets for each; return the model to continue, and its logits."""
    sources = CrossAttentionCache.encode(graph, encoder, [source.ids for source in batch])
    past: Seq2SeqKVCache
    if graph.in_place:
        likely = len(batch[0].target) + sources.mask.shape[1] * 3 // 2 + 16
        most = max(longest_target(source, options) for source in batch)
        past = Seq2SeqInPlaceKVCache(graph, decoder, len(batch) * width, likely, most)
    else:
        past = Seq2SeqConcatKVCache(graph, decoder, len(batch))
    model = Seq2SeqDecoder(past, sources)
    return model, model.prefill([source.target for source in batch])


def join_sentences(split: SplitText, results: Iterator[list[Generation]], options: Options) -> list[Generation]:
    """Return the results of a text; ``results`` are those of its sources, and of those after it."""
    of_sources = [[EMPTY] if source is None else next(results) for source in split.sources]
    if len(of_sources) == 1 and split.sentences.gaps == ["", ""]:
        return of_sources[0]
    text = split.sentences.join([generation.text for (generation,) in of_sources])
    parts = [generation for (generation,) in of_sources if generation.tokens]
    if not parts:
        return [replace(EMPTY, text=text)]
    tokens = [token for part in parts for token in part.tokens]
    logprobs = [logprob for part in parts for logprob in part.token_logprobs]
    reason = max((part.finish_reason for part in parts), key=("stop", "stop_string", "length").index)
    whole = Hypothesis.of(tokens, logprobs, reason, options.penalty)
    return [Generation(text, whole.tokens, whole.token_logprobs, whole.score, reason)]
