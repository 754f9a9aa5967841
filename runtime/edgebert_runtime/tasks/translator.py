"""Translate texts, or turn them into others, with a bundle of the task ``translate``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.decoders.kv_cache import Floats
from edgebert_runtime.decoders.scoring import Scored, score_targets
from edgebert_runtime.decoders.seq2seq_decoder import Seq2SeqDecoder
from edgebert_runtime.decoders.seq2seq_signature import Seq2SeqSignature
from edgebert_runtime.errors import BundleError, InputError
from edgebert_runtime.generation import Options, search, stream
from edgebert_runtime.generation.text_streamer import first_of
from edgebert_runtime.inputs.batching import plan_batches
from edgebert_runtime.inputs.language_tokens import Languages
from edgebert_runtime.inputs.validation import Errors, Item, check_batch_tokens, check_flag, iterate
from edgebert_runtime.session.session import ClosedSession, Runnable, open_session
from edgebert_runtime.task_specs import TRANSLATE
from edgebert_runtime.tasks.base.engine import Progress
from edgebert_runtime.tasks.base.text_encoder import TextEncoder, TextReading
from edgebert_runtime.tasks.base.text_engine import (
    Generation,
    GenerationOptions,
    Several,
    TextGenerationEngine,
    check_stream,
    text_pieces,
)
from edgebert_runtime.tasks.translation_batches import batch_options, batches, begin_targets, join_sentences
from edgebert_runtime.tasks.translation_inputs import (
    EncoderInput,
    SourceReader,
    SplitText,
    TranslationRequest,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Tokens of the sources of a batch, each counted for every beam, padding included.
MAX_BATCH_TOKENS = 4096


class TranslateOptions(GenerationOptions, total=False):
    """The options of :meth:`Translator.translate` by keyword, but the number of results."""

    target_prefix: str | Sequence[Item] | None
    source_language: str | None
    target_language: str | None
    split_sentences: bool
    max_batch_tokens: int | None
    encoding_errors: Errors
    special_tokens: bool
    progress: Progress | None


class Translator(TextGenerationEngine):
    """Translations of texts. Threads may share an engine; it pickles as its folder and options.

    ``languages`` are the codes that the model can be told. ``source_language`` and ``target_language`` hold unless a
    call names others. All are empty for a model that is not told. ``decoding`` are the bundle's own options of the
    search. Those of a call go before. ``sessions`` replace those of ONNX Runtime for encoder and decoder by anything
    that has their ``run``.

    Raises:
        BundleError: if the bundle is of another task, or its graphs are not those of an encoder and its decoder.
        DeviceError: if the device cannot be had.
        TokenizerError: if a tokenizer does not fit the model.
    """

    tasks = (TRANSLATE,)
    _graphs = ("encoder", "decoder")
    _outputs = ()
    _graph: Seq2SeqSignature

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
        self._decoder: Runnable = (
            sessions[1] if sessions else open_session(file, device=self.device, threads=self.threads)
        )

    def close(self) -> None:
        """Free the sessions. A closed engine refuses every call; closing it twice is allowed."""
        super().close()
        self._decoder = ClosedSession()

    def _read_settings(self) -> None:
        """Read the languages and the bundle's options."""
        super()._read_settings()
        self._graph = Seq2SeqSignature.from_specs(*(self.bundle.graph(name) for name in self._graphs))
        size = self._graph.vocab_size
        languages = Languages.read(self.bundle.manifest.settings, self.bundle.manifest.limits.vocab_size, size)
        self.languages: tuple[str, ...] = tuple(languages.tokens)
        self.source_language, self.target_language = languages.source, languages.target
        self._reader = SourceReader(self._encoder, TextEncoder(self._target, size), languages, self.max_tokens)
        self._first: Any = self.decoding.get("decoder_start_token_id", self.decoding.get("bos_token_id"))
        if languages.style != "bart25" and not (type(self._first) is int and 0 <= self._first < size):
            raise BundleError(f"{self.bundle.path} has decoder_start_token_id={self._first!r:.40}; export again")

    @overload
    def translate(
        self,
        texts: Iterable[Item],
        *,
        num_return_sequences: Literal[1] | None = None,
        **options: Unpack[TranslateOptions],
    ) -> list[Generation]: ...

    @overload
    def translate(
        self,
        texts: Iterable[Item],
        *,
        num_return_sequences: Several,
        **options: Unpack[TranslateOptions],
    ) -> list[list[Generation]]: ...

    @overload
    def translate(
        self, texts: Iterable[Item], *, num_return_sequences: int, **options: Unpack[TranslateOptions]
    ) -> list[Generation] | list[list[Generation]]: ...

    def translate(
        self,
        texts: Iterable[Item],
        *,
        num_return_sequences: int | None = None,
        target_prefix: str | Sequence[Item] | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
        split_sentences: bool = False,
        max_batch_tokens: int | None = None,
        encoding_errors: Errors = "strict",
        special_tokens: bool = False,
        progress: Progress | None = None,
        **options: Unpack[GenerationOptions],
    ) -> list[Generation] | list[list[Generation]]:
        """Return a :class:`Generation` for each text, a list of them with ``num_return_sequences`` of 2 or more.

        Texts are strings, or the token ids of a whole source, special ones included. A text of white space is returned
        as it is. The result of a text does not depend on the others. :class:`GenerationOptions` are the options of the
        search. Where neither they nor the bundle set a length, a translation has at most 3 tokens for each of its
        source and 16 more, and never more than the model has positions.

        ``target_prefix``, a text or one for each text, begins translations. ``tokens`` and ``score`` are those of the
        tokens after it. ``split_sentences`` translates sentences one by one, and joins them with the white space
        between them. ``score`` is then that of all their tokens. ``max_batch_tokens`` bounds the tokens of sources,
        times beams, that are translated at a time. ``special_tokens`` reads special tokens that stand in a text as
        tokens: leave it for text of strangers.

        Raises:
            InputError: naming the text or option that cannot be used.
            LimitError: for a text, or a sentence, that is longer than the model takes.
        """
        reading = self._check_call(encoding_errors, special_tokens, progress)
        request = self._request(
            num_return_sequences, dict(options), source_language, target_language, reading, split_sentences
        )
        budget = check_batch_tokens(max_batch_tokens, MAX_BATCH_TOKENS)
        items = list(iterate(texts, "translate([text])"))
        prefixes = self._reader.prefixes(target_prefix, len(items), request)
        splits = [self._split(item, index, prefixes[index], request) for index, item in enumerate(items)]
        sources = [source for split in splits for source in split.sources if source is not None]
        results: list[list[Generation]] = [[] for _ in sources]
        remaining = Counter(source.index for source in sources)
        for batch in batches(sources, request.rows_per_source, budget):
            for number, generations in zip(batch, self._search([sources[i] for i in batch], request), strict=True):
                results[number] = generations
            remaining -= Counter(sources[number].index for number in batch)
            if progress is not None:
                progress(len(items) - len(remaining), len(items))
        in_order = iter(results)
        joined = [join_sentences(split, in_order, request.options) for split in splits]
        return joined if request.options.num_return_sequences > 1 else [generations[0] for generations in joined]

    def stream(
        self,
        text: Item,
        *,
        target_prefix: Item | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
        split_sentences: bool = False,
        encoding_errors: Errors = "strict",
        special_tokens: bool = False,
        **options: Unpack[GenerationOptions],
    ) -> Iterator[str]:
        """Yield a translation piece by piece; joined, the pieces are the text of ``translate`` without beams.

        The beginning of a beam search is known at its end only. So ``num_beams`` is 1 here, also if the bundle has
        more. Each token is the most likely one, or with ``do_sample`` a drawn one. No piece ends inside a character. A
        token is computed when its piece is asked for, and nothing after the iterator is closed.

        Raises:
            InputError: naming the option that cannot be used.
            LimitError: for a text, or a sentence, that is longer than the model takes.
        """
        reading = self._check_call(encoding_errors, special_tokens)
        request = self._request(
            None, {"num_beams": 1, **options}, source_language, target_language, reading, split_sentences
        )
        check_stream(request.options)
        (prefix,) = self._reader.prefixes(None if target_prefix is None else [target_prefix], 1, request)
        return self._pieces(self._split(text, 0, prefix, request), request)

    def score(
        self,
        pairs: Iterable[tuple[Item, Item]],
        *,
        source_language: str | None = None,
        target_language: str | None = None,
        max_batch_tokens: int | None = None,
        encoding_errors: Errors = "strict",
        special_tokens: bool = False,
        progress: Progress | None = None,
    ) -> list[Scored]:
        """Return how likely the model finds each target as the translation of its source.

        Pairs are of texts or token ids. The tokens of a target count, and the one that ends it. Token ids are taken as
        they are, so that those of a :class:`Generation` score as it did. A token that every target begins with, such
        as that of its language, does not count.

        Raises:
            InputError: naming the pair or option that cannot be used.
            LimitError: for a source or target that is longer than the model takes.
        """
        reading = self._check_call(encoding_errors, special_tokens, progress)
        request = self._request(None, {}, source_language, target_language, reading)
        budget = check_batch_tokens(max_batch_tokens, MAX_BATCH_TOKENS)
        rows = [self._pair(*item, request) for item in enumerate(iterate(pairs, "score([(source, target)])"))]
        logprobs: list[list[float]] = [[] for _ in rows]
        scored = [number for number, (_, ids) in enumerate(rows) if ids]
        done = len(rows) - len(scored)
        for places in plan_batches([len(rows[i][0].ids) + len(rows[i][1]) for i in scored], budget):
            batch = [scored[place] for place in places]
            model, logits = self._begin([rows[i][0] for i in batch], Options(), 1)
            for number, values in zip(batch, score_targets(model, logits, [rows[i][1] for i in batch]), strict=True):
                logprobs[number] = values
            done += len(batch)
            if progress is not None:
                progress(done, len(rows))
        return [Scored.of(ids, values) for (_, ids), values in zip(rows, logprobs, strict=True)]

    def _request(
        self,
        count: int | None,
        options: dict[str, Any],
        source: str | None,
        target: str | None,
        reading: TextReading,
        split: bool = False,
    ) -> TranslationRequest:
        """Check the options of a call."""
        direction = self._reader.languages.direction(source, target)
        split = check_flag("split_sentences", split)
        start, options = self._reader.first_tokens(self._first, direction, target, options)
        checked = self._search_options(count, options, {})
        if split and checked.num_return_sequences > 1:
            raise InputError(
                "asks for several results, of which each sentence would have its own",
                option="num_return_sequences",
                value=checked.num_return_sequences,
                hint="leave it out, or {split_sentences}",
                options={"split_sentences": True},
            )
        return TranslationRequest(checked, direction, [start], *reading, split)

    def _split(self, item: Item, index: int, prefix: list[int], request: TranslationRequest) -> SplitText:
        """Turn a text, or token ids, into sources."""
        text = self._encoder.text_or_ids(item, index, request.encoding_errors, self.max_tokens)
        return self._reader.split(text, index, prefix, request)

    def _pair(self, index: int, pair: tuple[Item, Item], request: TranslationRequest) -> tuple[EncoderInput, list[int]]:
        """Return the source of a pair, and the tokens of its target that count."""
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InputError(f"is {type(pair).__name__}, not a pair of a source and a target", index=index)
        text = self._encoder.text_or_ids(pair[0], index, request.encoding_errors, self.max_tokens)
        return self._reader.pair(text, pair[1], index, request)

    def _begin(self, batch: Sequence[EncoderInput], options: Options, width: int) -> tuple[Seq2SeqDecoder, Floats]:
        """Encode sources, and start ``width`` targets for each; return the model to continue, and its logits."""
        return begin_targets(self._graph, self._session, self._decoder, batch, options, width)

    def _search(self, batch: Sequence[EncoderInput], request: TranslationRequest) -> list[list[Generation]]:
        """Translate sources whose targets start with as many tokens."""
        model, logits = self._begin(batch, request.options, request.rows_per_source)
        hypotheses = search(
            model,
            logits,
            [source.target for source in batch],
            batch_options(batch, request),
            limit=[source.limit for source in batch],
            keys=[source.ids for source in batch],
            decode=self._decode,
        )
        return [
            [self._generation(hypothesis, request.options, source.prefix) for hypothesis in of_source]
            for source, of_source in zip(batch, hypotheses, strict=True)
        ]

    def _pieces(self, split: SplitText, request: TranslationRequest) -> Iterator[str]:
        """Yield the translation of a text while it is made."""
        first, *gaps = split.sentences.gaps
        if first:
            yield first
        for source, gap in zip(split.sources, gaps, strict=True):
            if source is not None:
                yield from self._sentence(source, request)
            if gap:
                yield gap

    def _sentence(self, source: EncoderInput, request: TranslationRequest) -> Iterator[str]:
        """Yield the translation of a source while it is made."""
        model, logits = self._begin([source], request.options, 1)

        def decode(ids: Sequence[int]) -> str:
            return self._decode([*source.prefix, *ids])

        options = batch_options([source], request)
        keys, limit = [source.ids], [source.limit]
        began = False
        for piece in text_pieces(
            stream(model, logits, [source.target], options, limit=limit, keys=keys, decode=decode)
        ):
            began = True
            yield piece
        if source.prefix and not began:  # it ended with the first token
            text = decode([])
            yield text[: first_of(text, request.options.stop)]
