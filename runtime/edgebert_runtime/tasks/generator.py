"""Continue texts with a bundle of the task ``generate``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from edgebert_runtime.decoders.causal_decoder import CausalDecoder, prefill
from edgebert_runtime.decoders.causal_kv_cache import ConcatKVCache, InPlaceKVCache, KVCache
from edgebert_runtime.decoders.causal_signature import PAST, CausalSignature
from edgebert_runtime.decoders.kv_cache import Floats
from edgebert_runtime.decoders.prefix import Prefix, check_prefix
from edgebert_runtime.decoders.prompt_lookup import PromptLookupDecoder
from edgebert_runtime.decoders.scoring import Scored, score_rows
from edgebert_runtime.decoders.slot_cache import SlotCache
from edgebert_runtime.errors import BundleError, InputError, LimitError
from edgebert_runtime.generation import Options, StepModel, search, stream
from edgebert_runtime.generation.search_plan import SearchPlan
from edgebert_runtime.inputs.validation import Errors, Item, check_batch_tokens, check_flag, iterate
from edgebert_runtime.session.session import Session
from edgebert_runtime.task_specs import GENERATE
from edgebert_runtime.tasks.base.engine import Progress
from edgebert_runtime.tasks.base.text_encoder import TextReading
from edgebert_runtime.tasks.base.text_engine import (
    Generation,
    GenerationOptions,
    PreparedPrompt,
    Several,
    TextGenerationEngine,
    check_stream,
    text_pieces,
    with_call_numbers,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

MAX_NEW_TOKENS = 128
# Tokens of a batch, those to come included, that are in the KV cache at a time: 75 kB each for GPT-2.
MAX_BATCH_TOKENS = 4096
# Logits of a batch that is scored.
SCORE_BATCH_TOKENS = 512


class GenerateOptions(GenerationOptions, total=False):
    """The options of :meth:`Generator.generate` by keyword, but the number of results."""

    prefix: Prefix | None
    prompt_lookup: bool
    max_batch_tokens: int | None
    encoding_errors: Errors
    special_tokens: bool
    progress: Progress | None


@dataclass(frozen=True)
class Prompt:
    """A prompt of a call: its number there, and its tokens."""

    index: int
    ids: list[int]


class Generator(TextGenerationEngine):
    """Continuations of texts. Threads may share an engine; it pickles as its folder and options.

    ``decoding`` are the bundle's own options of the search. Those of a call go before.

    Raises:
        BundleError: if the bundle is of another task, or its graph is not that of a decoder.
        DeviceError: if the device cannot be had.
        TokenizerError: if the tokenizer does not fit the model.
    """

    tasks = (GENERATE,)
    _state_prefixes = (PAST,)

    def _read_settings(self) -> None:
        """Read the bundle's options and the signature of its graph."""
        super()._read_settings()
        self._graph = CausalSignature.from_spec(self.bundle.graph("model"))

    @overload
    def generate(
        self,
        prompts: Iterable[Item],
        *,
        num_return_sequences: Literal[1] | None = None,
        **options: Unpack[GenerateOptions],
    ) -> list[Generation]: ...

    @overload
    def generate(
        self,
        prompts: Iterable[Item],
        *,
        num_return_sequences: Several,
        **options: Unpack[GenerateOptions],
    ) -> list[list[Generation]]: ...

    @overload
    def generate(
        self, prompts: Iterable[Item], *, num_return_sequences: int, **options: Unpack[GenerateOptions]
    ) -> list[Generation] | list[list[Generation]]: ...

    def generate(
        self,
        prompts: Iterable[Item],
        *,
        num_return_sequences: int | None = None,
        prefix: Prefix | None = None,
        prompt_lookup: bool = False,
        max_batch_tokens: int | None = None,
        encoding_errors: Errors = "strict",
        special_tokens: bool = False,
        progress: Progress | None = None,
        **options: Unpack[GenerationOptions],
    ) -> list[Generation] | list[list[Generation]]:
        """Return a :class:`Generation` for each prompt, a list of them with ``num_return_sequences`` of 2 or more.

        Prompts are texts or token ids. An empty one starts from the token that the model begins texts with. The
        result of a prompt does not depend on the others. :class:`GenerationOptions` are the options of the search.
        Without any length, 128 tokens are added at most, and never more than the model has positions.

        ``prefix`` stands before every prompt. ``prompt_lookup`` guesses text that repeats earlier text, and checks
        several tokens at a time (prompt lookup decoding). Neither changes the result; in a quantized bundle, rounding
        can turn near ties. ``max_batch_tokens`` bounds the tokens in the KV cache at a time, and so the memory.
        ``special_tokens`` reads special tokens that stand in a prompt as tokens: leave it for text of strangers.

        Raises:
            InputError: naming the prompt or option that cannot be used.
            LimitError: for a prompt that leaves no room.
        """
        reading = self._check_call(encoding_errors, special_tokens, progress)
        checked = self._read_options(num_return_sequences, dict(options))
        budget = check_batch_tokens(max_batch_tokens, MAX_BATCH_TOKENS)
        if check_flag("prompt_lookup", prompt_lookup) and checked.num_beams * checked.num_return_sequences > 1:
            raise InputError(
                "guesses for one sequence at a time",
                option="prompt_lookup",
                hint="leave out {num_beams} and {num_return_sequences}",
                options={"num_beams": ..., "num_return_sequences": ...},
            )
        items = enumerate(iterate(prompts, "generate([text])"))
        read = [self._prompt(item, index, prefix, reading) for index, item in items]
        results: list[list[Generation]] = [[] for _ in read]
        done = 0
        for batch in self._batches(read, checked, 1 if prompt_lookup else budget):
            for prompt, generations in zip(batch, self._search(batch, checked, prefix, prompt_lookup), strict=True):
                results[prompt.index] = generations
            done += len(batch)
            if progress is not None:
                progress(done, len(read))
        return results if checked.num_return_sequences > 1 else [generation for (generation,) in results]

    def stream(
        self,
        prompt: Item,
        *,
        prefix: Prefix | None = None,
        prompt_lookup: bool = False,
        encoding_errors: Errors = "strict",
        special_tokens: bool = False,
        **options: Unpack[GenerationOptions],
    ) -> Iterator[str]:
        """Yield the text that continues a prompt, piece by piece; joined, the pieces are the text of ``generate``.

        No piece ends inside a character. A token is computed when its piece is asked for, and nothing after the
        iterator is closed. Options are those of :meth:`generate` but beams and several sequences.

        Raises:
            InputError: naming the option that cannot be used.
            LimitError: for a prompt that leaves no room.
        """
        reading = self._check_call(encoding_errors, special_tokens)
        checked = self._read_options(None, dict(options))
        check_flag("prompt_lookup", prompt_lookup)
        check_stream(checked)
        return self._pieces(self._prompt(prompt, 0, prefix, reading), checked, prefix, prompt_lookup)

    def prepare(
        self,
        prompt: Item,
        *,
        num_return_sequences: int | None = None,
        encoding_errors: Errors = "strict",
        special_tokens: bool = False,
        **options: Unpack[GenerationOptions],
    ) -> PreparedPrompt:
        """Check a prompt and its options for :class:`~edgebert_runtime.serving.scheduler.Scheduler`.

        Raises:
            InputError: naming the prompt or option that cannot be used.
            LimitError: for a prompt that leaves no room.
        """
        reading = self._check_call(encoding_errors, special_tokens)
        checked = self._read_options(num_return_sequences, dict(options))
        ids = self._prompt(prompt, 0, None, reading).ids
        logits = np.empty((1, self._graph.vocab_size), np.float32)  # only its shape is read
        plan = SearchPlan.of(logits, [ids], checked, self.max_tokens, decode=True)
        rows = max(checked.num_beams, checked.num_return_sequences)
        return PreparedPrompt(ids, checked, plan, rows, self._final_length(len(ids), checked), self._decode)

    def slot_cache(self, slots: int) -> SlotCache:
        """Return an empty KV cache whose rows join and leave between steps.

        Raises:
            BundleError: if the bundle's graph does not keep its KV cache in place.
        """
        if not self._graph.in_place:
            raise BundleError(f"{self.bundle.path} copies its KV cache at each step; export it with the target cpu")
        return SlotCache(self._graph, self._session, slots, self.max_tokens)

    def prefix(self, text: Item, *, encoding_errors: Errors = "strict", special_tokens: bool = False) -> Prefix:
        """Compute the beginning that several prompts share, for ``generate(..., prefix=...)``.

        Its text is tokenized by itself: end it where a word ends.

        Raises:
            LimitError: if it leaves no room for a prompt.
        """
        ids = self._prompt(text, 0, None, self._check_call(encoding_errors, special_tokens)).ids
        if len(ids) >= self.max_tokens:
            raise LimitError(
                f"has {len(ids)} tokens and leaves no room in the model's {self.max_tokens}", item="the prefix"
            )
        cache = self._cache(1, len(ids))
        prefill(cache, [ids])
        return Prefix(tuple(ids), tuple(cache.prefix()))

    def score(
        self,
        texts: Iterable[Item],
        *,
        max_batch_tokens: int | None = None,
        encoding_errors: Errors = "strict",
        special_tokens: bool = False,
        progress: Progress | None = None,
    ) -> list[Scored]:
        """Return how likely the model finds each text.

        The first token counts too where the bundle has a token that texts begin with (``bos_token_id``), and else is
        taken as given. A text longer than the model is read in windows that overlap by half. Each token is scored
        once, after at least half a window.

        Raises:
            InputError: naming the text or option that cannot be used.
        """
        reading = self._check_call(encoding_errors, special_tokens, progress)
        budget = check_batch_tokens(max_batch_tokens, SCORE_BATCH_TOKENS)
        bos = self.decoding.get("bos_token_id")
        start = [] if bos is None else [bos]
        items = enumerate(iterate(texts, "score([text])"))
        rows = [start + self._ids(item, index, reading) for index, item in items]
        return score_rows(rows, self._cache, self.max_tokens, budget, progress)

    def _read_options(self, count: int | None, options: dict[str, Any]) -> Options:
        """Check a call, and return its options on top of the bundle's."""
        lengths = {"max_new_tokens", "max_length"}
        defaults = {} if lengths & (self.decoding.keys() | options.keys()) else {"max_new_tokens": MAX_NEW_TOKENS}
        return self._search_options(count, options, defaults)

    def _ids(self, item: Item, index: int, reading: TextReading) -> list[int]:
        """Return the token ids of a text, or the ids that stand for it, however many."""
        text = self._encoder.text_or_ids(item, index, reading.encoding_errors, None)
        ids: list[int] = self._encoder.encoding(text, index, reading).ids if isinstance(text, str) else text.tolist()
        return ids

    def _prompt(self, item: Item, index: int, prefix: Prefix | None, reading: TextReading) -> Prompt:
        """Turn a text, or token ids, into a prompt."""
        ids = [] if isinstance(item, (list, tuple)) and not item else self._ids(item, index, reading)
        if (prefix := check_prefix(prefix)) is not None:
            if not ids:
                raise InputError("is empty", index=index, item="prompt", hint="write at least a word after the prefix")
            ids = [*prefix.ids, *ids]
        if not ids:
            bos = self.decoding.get("bos_token_id")
            if bos is None:
                message = "is empty, and the bundle has no token to start from"
                raise InputError(message, index=index, item="prompt", hint="write a word")
            ids = [bos]
        if len(ids) >= self.max_tokens:
            message = f"has {len(ids)} tokens and leaves no room in the model's {self.max_tokens}"
            raise LimitError(message, index=index, item="prompt", hint="shorten it")
        return Prompt(index, ids)

    def _final_length(self, length: int, options: Options) -> int:
        """Return the most tokens of a row whose prompt has ``length``."""
        total = options.max_length if options.max_new_tokens is None else length + options.max_new_tokens
        return min(self.max_tokens, total or self.max_tokens)

    def _batches(self, prompts: list[Prompt], options: Options, budget: int) -> Iterator[list[Prompt]]:
        """Put prompts of about the same length together, as many as ``budget`` tokens allow."""
        rows = max(options.num_beams, options.num_return_sequences)
        batch: list[Prompt] = []
        for prompt in sorted(prompts, key=lambda prompt: len(prompt.ids)):
            if batch and (len(batch) + 1) * rows * self._final_length(len(prompt.ids), options) > budget:
                yield batch
                batch = []
            batch.append(prompt)
        if batch:
            yield batch

    def _cache(self, rows: int, capacity: int) -> KVCache:
        """Return an empty KV cache for so many rows of at most ``capacity`` tokens."""
        session = self._session
        if self._graph.in_place and isinstance(session, Session):
            return InPlaceKVCache(self._graph, session, rows, capacity)
        return ConcatKVCache(self._graph, session)

    def _prefill(
        self, batch: list[Prompt], options: Options, prefix: Prefix | None, prompt_lookup: bool
    ) -> tuple[StepModel, Floats]:
        """Compute the prompts of a batch; return the model to continue, and the logits after the prompts."""
        longest = max(self._final_length(len(prompt.ids), options) for prompt in batch)
        rows = len(batch) * max(options.num_beams, options.num_return_sequences)
        new_ids = [prompt.ids[len(prefix.ids) if prefix is not None else 0 :] for prompt in batch]
        cache = self._cache(rows, longest)
        if prefix is not None:
            cache.load_prefix(prefix.past, len(batch))
        logits = prefill(cache, new_ids)
        if prompt_lookup:
            return PromptLookupDecoder(cache, self._graph.vocab_size, batch[0].ids, longest), logits
        return CausalDecoder(cache, self._graph.vocab_size), logits

    def _search(
        self, batch: list[Prompt], options: Options, prefix: Prefix | None, prompt_lookup: bool
    ) -> list[list[Generation]]:
        """Continue the prompts of a batch."""
        if options.prefix_allowed_tokens_fn is not None:
            options = with_call_numbers(options, [prompt.index for prompt in batch])
        ids = [prompt.ids for prompt in batch]
        model, logits = self._prefill(batch, options, prefix, prompt_lookup)
        hypotheses = search(model, logits, ids, options, limit=self.max_tokens, decode=self._decode)
        return [[self._generation(hypothesis, options) for hypothesis in of_prompt] for of_prompt in hypotheses]

    def _pieces(self, prompt: Prompt, options: Options, prefix: Prefix | None, prompt_lookup: bool) -> Iterator[str]:
        """Yield the pieces of the only prompt."""
        model, logits = self._prefill([prompt], options, prefix, prompt_lookup)
        steps = stream(model, logits, [prompt.ids], options, limit=self.max_tokens, decode=self._decode)
        yield from text_pieces(steps)
