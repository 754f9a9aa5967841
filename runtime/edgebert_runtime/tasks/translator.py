"""Translate texts, or turn them into others, with a bundle of the task ``translate``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.decoders.kv_cache import Floats
from edgebert_runtime.decoders.scoring import Scored, score_targets
from edgebert_runtime.decoders.seq2seq_decoder import Seq2SeqDecoder
from edgebert_runtime.decoders.seq2seq_kv_cache import (
    CrossAttentionCache,
    Seq2SeqConcatKVCache,
    Seq2SeqInPlaceKVCache,
    Seq2SeqKVCache,
)
from edgebert_runtime.decoders.seq2seq_signature import Seq2SeqSignature
from edgebert_runtime.errors import BundleError, InputError
from edgebert_runtime.generation import Hypothesis, Options, search, stream
from edgebert_runtime.generation.text_streamer import first_of
from edgebert_runtime.inputs.batching import plan_batches
from edgebert_runtime.inputs.language_tokens import Languages
from edgebert_runtime.inputs.tokenizer import TOKENIZER_NAME, Tokenizer
from edgebert_runtime.inputs.validation import Errors, Item, iterate
from edgebert_runtime.session.session import Runnable, open_session
from edgebert_runtime.task_specs import TRANSLATE
from edgebert_runtime.tasks.engine import Progress
from edgebert_runtime.tasks.text_engine import Generation, Writer, check_budget, check_stream, numbered, pieces
from edgebert_runtime.tasks.translation_inputs import Call, Passage, Source, SourceReader

TOKENIZERS = SOURCE_TOKENIZER, TARGET_TOKENIZER = "source_tokenizer.json", "target_tokenizer.json"
# Tokens of the sources of a batch, each counted for every beam, padding included.
MAX_BATCH_TOKENS = 4096
EMPTY = Generation("", (), (), 0.0, "stop")


class Translator(Writer):
    """Translations of texts. One may be shared by threads; it pickles as its folder and options.

    ``languages`` are the codes of those that the model can be told, ``source_language`` and ``target_language`` the
    ones that hold unless a call names others; all are empty where the model is not told. ``decoding`` are the bundle's
    own options, which those of a call go before. ``sessions`` replace those of ONNX Runtime for encoder and decoder by
    anything that has their ``run``.

    Raises:
        BundleError: if the bundle is of another task, or its graphs are not those of an encoder and its decoder.
        DeviceError: if the device cannot be had.
        TokenizerError: if a tokenizer does not fit the model.
    """

    tasks = (TRANSLATE,)
    graphs = ("encoder", "decoder")
    outputs = ()

    def __init__(
        self,
        bundle: Bundle,
        *,
        device: str = "cpu",
        threads: int | None = None,
        sessions: tuple[Runnable, Runnable] | None = None,
    ) -> None:
        super().__init__(bundle, device=device, threads=threads, session=sessions[0] if sessions else None)
        # Threads of a session stop spinning 0.2 ms after a run (see session.py): those of the two hardly ever meet.
        file = bundle.path / bundle.graph("decoder").file
        self._decoder = sessions[1] if sessions else open_session(file, device=self.device, threads=self.threads)

    def _load_tokenizer(self) -> Tokenizer:
        """Load the tokenizer of the sources, and that of the targets where they have one of their own."""
        path, size = self.bundle.path, self.bundle.manifest.limits.vocab_size
        self._graph = Seq2SeqSignature.from_specs(*(self.bundle.graph(name) for name in self.graphs))
        if SOURCE_TOKENIZER not in self.bundle.manifest.files:
            self._target = Tokenizer.load(path / TOKENIZER_NAME, min(size, self._graph.vocab_size))
            return self._target
        self._target = Tokenizer.load(path / TARGET_TOKENIZER, self._graph.vocab_size)
        return Tokenizer.load(path / SOURCE_TOKENIZER, size)

    def _setup(self) -> None:
        """Read the settings."""
        super()._setup()
        size = self._graph.vocab_size
        known = Languages.read(self.bundle.manifest.settings, self.bundle.manifest.limits.vocab_size, size)
        self.languages: tuple[str, ...] = tuple(known.tokens)
        self.source_language, self.target_language = known.source, known.target
        self._reader = SourceReader(self._tokenizer, self._target, known, self.max_tokens, size)
        self._first: Any = self.decoding.get("decoder_start_token_id", self.decoding.get("bos_token_id"))
        if known.style != "bart25" and not (type(self._first) is int and 0 <= self._first < size):
            raise BundleError(f"{self.bundle.path} has decoder_start_token_id={self._first!r:.40}; export again")

    def _writing(self) -> Tokenizer:
        """Return the tokenizer of the targets."""
        return self._target

    def translate(
        self,
        texts: Iterable[Item],
        *,
        target_prefix: str | Sequence[Item] | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
        split_sentences: bool = False,
        max_batch_tokens: int | None = None,
        errors: Errors = "strict",
        progress: Progress | None = None,
        **options: Any,
    ) -> list[Any]:
        """Return a :class:`Generation` for each text, a list of them with ``num_return_sequences`` of 2 or more.

        Texts are strings, or the token ids of a whole source, special ones included. A text of white space stays what
        it is. What a text gets does not depend on the others. ``options`` are those of
        :class:`~edgebert_runtime.generation.Options`, under the names of transformers' ``generate``; where neither they
        nor the bundle set a length, a translation has at most 3 tokens for each of its source and 16 more, and never
        more than the model has positions. ``target_prefix``, a text or one for each text, is how translations begin;
        ``tokens`` and ``score`` are of what comes after it. With ``split_sentences`` sentences are translated one by
        one, and joined with the white space that stood between them; ``score`` is then that of all their tokens.
        ``max_batch_tokens`` bounds the tokens of sources, times beams, that are translated at a time.

        Raises:
            InputError: naming the text or option that cannot be used.
            LimitError: for a text, or a sentence, that is longer than the model takes.
        """
        call = self._call(options, source_language, target_language, errors, split_sentences)
        budget = check_budget(max_batch_tokens, MAX_BATCH_TOKENS)
        items = list(iterate(texts, "translate([text])"))
        prefixes = self._reader.prefixes(target_prefix, len(items), call)
        passages = [self._passage(item, i, prefixes[i], call) for i, item in enumerate(items)]
        sources = [source for passage in passages for source in passage.sources if source is not None]
        found: list[list[Generation]] = [[] for _ in sources]
        left = Counter(source.number for source in sources)
        for batch in batches(sources, call.width, budget):
            for place, several in zip(batch, self._search([sources[i] for i in batch], call), strict=True):
                found[place] = several
            left -= Counter(sources[i].number for i in batch)
            if progress is not None:
                progress(len(items) - len(left), len(items))
        remaining = iter(found)
        results = [joined(passage, remaining, call.options) for passage in passages]
        return results if call.options.num_return_sequences > 1 else [several[0] for several in results]

    def stream(
        self,
        text: Item,
        *,
        target_prefix: Item | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
        split_sentences: bool = False,
        errors: Errors = "strict",
        **options: Any,
    ) -> Iterator[str]:
        """Yield a translation piece by piece; joined, the pieces are the text of ``translate`` without beams.

        The beginning of a beam search is known at its end only. So ``num_beams`` is 1 here, whatever the bundle says:
        each token is the most likely one, or with ``do_sample`` a drawn one. No piece ends inside a character. A token
        is computed when its piece is asked for, and nothing after the iterator is closed.

        Raises:
            InputError: naming the option that cannot be used.
            LimitError: for a text, or a sentence, that is longer than the model takes.
        """
        call = self._call({"num_beams": 1, **options}, source_language, target_language, errors, split_sentences)
        check_stream(call.options)
        (prefix,) = self._reader.prefixes(None if target_prefix is None else [target_prefix], 1, call)
        return self._pieces(self._passage(text, 0, prefix, call), call)

    def score(
        self,
        pairs: Iterable[tuple[Item, Item]],
        *,
        source_language: str | None = None,
        target_language: str | None = None,
        max_batch_tokens: int | None = None,
        errors: Errors = "strict",
        progress: Progress | None = None,
    ) -> list[Scored]:
        """Return how likely the model finds each target as the translation of its source.

        Pairs are of texts or token ids. What counts are the tokens of a target and the one that ends it; token ids are
        taken as they are, so that those of a :class:`Generation` score as it did. A token that every target begins
        with, such as that of its language, does not count.

        Raises:
            InputError: naming the pair or option that cannot be used.
            LimitError: for a source or target that is longer than the model takes.
        """
        call = self._call({}, source_language, target_language, errors)
        budget = check_budget(max_batch_tokens, MAX_BATCH_TOKENS)
        rows = [self._pair_of(pair, i, call) for i, pair in enumerate(iterate(pairs, "score([(source, target)])"))]
        logprobs: list[list[float]] = [[] for _ in rows]
        wanted = [i for i, (_, ids) in enumerate(rows) if ids]
        done = len(rows) - len(wanted)
        for batch in plan_batches([len(rows[i][0].ids) + len(rows[i][1]) for i in wanted], budget):
            chosen = [wanted[i] for i in batch]
            model, logits = self._begin([rows[i][0] for i in chosen], Options(), 1)
            for i, one in zip(chosen, score_targets(model, logits, [rows[i][1] for i in chosen]), strict=True):
                logprobs[i] = one
            done += len(batch)
            if progress is not None:
                progress(done, len(rows))
        return [Scored.of(ids, one) for (_, ids), one in zip(rows, logprobs, strict=True)]

    def _call(
        self, options: dict[str, Any], source: str | None, target: str | None, errors: Errors, split: bool = False
    ) -> Call:
        """Check what a call asks for."""
        known, start, forced = self._reader.languages, self._first, options.get("forced_bos_token_id")
        direction = known.direction(source, target)
        if known.style == "bart25":
            start = known.required("target_language", direction.target)
        elif known.style == "bart50" and forced is None:
            options = {**options, "forced_bos_token_id": known.required("target_language", direction.target)}
        elif known.style == "bart50" and target is not None:
            raise InputError(
                f"target_language={target!r:.40} sets forced_bos_token_id={forced!r:.20}; give one of them"
            )
        chosen = Options.read(self.decoding, **options)
        if split and chosen.num_return_sequences > 1:
            raise InputError(
                f"num_return_sequences={chosen.num_return_sequences} asks for several results, of which each sentence "
                "would have its own; leave it out, or split_sentences=True"
            )
        return Call(chosen, direction, [start], self._check(errors=errors), bool(split))

    def _passage(self, item: Item, number: int, prefix: list[int], call: Call) -> Passage:
        """Turn a text, or token ids, into sources."""
        return self._reader.passage(self._text(item, number, call.texts), number, prefix, call)

    def _pair_of(self, pair: tuple[Item, Item], number: int, call: Call) -> tuple[Source, list[int]]:
        """Return the source of a pair, and the tokens of its target that count."""
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InputError(f"text {number} is {type(pair).__name__}, not a pair of a source and a target")
        return self._reader.pair(self._text(pair[0], number, call.texts), pair[1], number, call)

    def _begin(self, batch: Sequence[Source], options: Options, width: int) -> tuple[Seq2SeqDecoder, Floats]:
        """Read sources, and start their targets, ``width`` for each; return these, and the logits after them."""
        sources = CrossAttentionCache.encode(self._graph, self._workers.session, [source.ids for source in batch])
        past: Seq2SeqKVCache
        if self._graph.in_place:
            likely = len(batch[0].target) + sources.mask.shape[1] * 3 // 2 + 16
            most = max(longest(source, options) for source in batch)
            past = Seq2SeqInPlaceKVCache(self._graph, self._decoder, len(batch) * width, likely, most)
        else:
            past = Seq2SeqConcatKVCache(self._graph, self._decoder, len(batch))
        model = Seq2SeqDecoder(past, sources)
        return model, model.prefill([source.target for source in batch])

    def _search(self, batch: Sequence[Source], call: Call) -> list[list[Generation]]:
        """Translate sources whose targets start with as many tokens."""
        model, logits = self._begin(batch, call.options, call.width)
        found = search(model, logits, *asked(batch, call), **known(batch), decode=self._decode)
        return [
            [self._generation(one, call.options, source.prefix) for one in several]
            for source, several in zip(batch, found, strict=True)
        ]

    def _pieces(self, passage: Passage, call: Call) -> Iterator[str]:
        """Yield the translation of a text while it is made."""
        first, *gaps = passage.sentences.gaps
        if first:
            yield first
        for source, gap in zip(passage.sources, gaps, strict=True):
            if source is not None:
                yield from self._sentence(source, call)
            if gap:
                yield gap

    def _sentence(self, source: Source, call: Call) -> Iterator[str]:
        """Yield the translation of a source while it is made."""
        model, logits = self._begin([source], call.options, 1)

        def decode(ids: Sequence[int]) -> str:
            return self._decode([*source.prefix, *ids])

        began = False
        for piece in pieces(stream(model, logits, *asked([source], call), **known([source]), decode=decode)):
            began = True
            yield piece
        if source.prefix and not began:  # it ended with the first token
            text = decode([])
            yield text[: first_of(text, call.options.stop)]


def batches(sources: Sequence[Source], width: int, budget: int) -> Iterator[list[int]]:
    """Put sources of about the same length together, by their numbers, whose targets start with as many tokens."""
    starts = sorted({len(source.target) for source in sources})
    for start in starts:
        alike = [i for i, source in enumerate(sources) if len(source.target) == start]
        for batch in plan_batches([len(sources[i].ids) * width for i in alike], budget):
            yield [alike[i] for i in batch]


def asked(batch: Sequence[Source], call: Call) -> tuple[list[list[int]], Options]:
    """Return the targets so far, and the options that hold for what follows them."""
    options = numbered(call.options, [source.number for source in batch])
    if batch[0].prefix:  # what is forced to come first stands before it
        options = replace(options, forced_bos_token_id=None)
    return [source.target for source in batch], options


def longest(source: Source, options: Options) -> int:
    """Return how many tokens the target of a source can come to have."""
    if options.max_new_tokens is None:
        return source.limit
    return min(source.limit, len(source.target) + options.max_new_tokens)


def known(batch: Sequence[Source]) -> dict[str, Any]:
    """Return what a search has to know of a batch."""
    return {"limit": [source.limit for source in batch], "keys": [source.ids for source in batch]}


def joined(passage: Passage, found: Iterator[list[Generation]], options: Options) -> list[Generation]:
    """Return what a text gets; ``found`` are the results of its sources, and of those after it."""
    several = [[EMPTY] if source is None else next(found) for source in passage.sources]
    if len(several) == 1 and passage.sentences.gaps == ["", ""]:
        return several[0]
    text = passage.sentences.join([one.text for (one,) in several])
    parts = [one for (one,) in several if one.tokens]
    if not parts:
        return [replace(EMPTY, text=text)]
    tokens = [token for one in parts for token in one.tokens]
    logprobs = [logprob for one in parts for logprob in one.token_logprobs]
    reason = max((one.finish_reason for one in parts), key=("stop", "stop_string", "length").index)
    made = Hypothesis.of(tokens, logprobs, reason, options.penalty)
    return [Generation(text, made.tokens, made.token_logprobs, made.score, reason)]
