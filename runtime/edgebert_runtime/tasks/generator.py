"""Continue texts with a bundle of the task ``generate``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from edgebert_runtime.decoders.causal_decoder import CausalDecoder, prefill
from edgebert_runtime.decoders.causal_kv_cache import ConcatKVCache, InPlaceKVCache, KVCache
from edgebert_runtime.decoders.causal_signature import PAST, CausalSignature
from edgebert_runtime.decoders.kv_cache import Floats
from edgebert_runtime.decoders.prompt_lookup import PromptLookupDecoder
from edgebert_runtime.decoders.scoring import Scored, score_rows
from edgebert_runtime.errors import InputError, LimitError
from edgebert_runtime.generation import Options, StepModel, search, stream
from edgebert_runtime.inputs.validation import Errors, Item, iterate
from edgebert_runtime.session.session import Session
from edgebert_runtime.task_specs import GENERATE
from edgebert_runtime.tasks.engine import Progress
from edgebert_runtime.tasks.text_engine import Writer, check_budget, check_stream, numbered, pieces

MAX_NEW_TOKENS = 128
# Tokens of a batch, those to come included, that are remembered at a time: 75 kB each for GPT-2.
MAX_BATCH_TOKENS = 4096


@dataclass(frozen=True)
class Prefix:
    """The beginning that several prompts share, computed once; :meth:`Generator.prefix` makes it."""

    ids: tuple[int, ...]
    past: tuple[Floats, ...]


@dataclass(frozen=True)
class Prompt:
    """A prompt of a call: its number there, and its tokens."""

    number: int
    ids: list[int]


class Generator(Writer):
    """Continuations of texts. One may be shared by threads; it pickles as its folder and options.

    ``decoding`` are the bundle's own options, which those of a call go before.

    Raises:
        BundleError: if the bundle is of another task, or its graph is not that of a decoder.
        DeviceError: if the device cannot be had.
        TokenizerError: if the tokenizer does not fit the model.
    """

    tasks = (GENERATE,)
    state = (PAST,)

    def _setup(self) -> None:
        """Read the settings."""
        super()._setup()
        self._graph = CausalSignature.from_spec(self.bundle.graph("model"))

    def generate(
        self,
        prompts: Iterable[Item],
        *,
        prefix: Prefix | None = None,
        lookup: bool = False,
        max_batch_tokens: int | None = None,
        errors: Errors = "strict",
        progress: Progress | None = None,
        **options: Any,
    ) -> list[Any]:
        """Return a :class:`Generation` for each prompt, a list of them with ``num_return_sequences`` of 2 or more.

        Prompts are texts or token ids; an empty one starts from the token that the model begins texts with. What a
        prompt gets does not depend on the others. ``options`` are those of
        :class:`~edgebert_runtime.generation.Options`, under the names of transformers' ``generate``; without any length
        128 tokens are added at most, and never more than the model has positions. ``prefix`` stands before every
        prompt. With ``lookup`` what repeats earlier text is guessed and checked several tokens at a time, which
        changes nothing in the result. In a quantized bundle both hold but for rounding, which can turn near ties.
        ``max_batch_tokens`` bounds the tokens remembered at a time, and so the memory.

        Raises:
            InputError: naming the prompt or option that cannot be used.
            LimitError: for a prompt that leaves no room.
        """
        chosen = self._read_options(options)
        budget = check_budget(max_batch_tokens, MAX_BATCH_TOKENS)
        if lookup and chosen.num_beams * chosen.num_return_sequences > 1:
            raise InputError("lookup guesses for one sequence at a time; leave out num_beams and num_return_sequences")
        found = [self._prompt(item, i, prefix, errors) for i, item in enumerate(iterate(prompts, "generate([text])"))]
        results: list[Any] = [None] * len(found)
        done = 0
        for batch in self._batches(found, chosen, 1 if lookup else budget):
            model, logits = self._prefill(batch, chosen, prefix, lookup)
            asked = numbered(chosen, [prompt.number for prompt in batch])
            hypotheses = search(model, logits, [prompt.ids for prompt in batch], asked, **self._reading())
            for prompt, several in zip(batch, hypotheses, strict=True):
                made = [self._generation(one, chosen) for one in several]
                results[prompt.number] = made if chosen.num_return_sequences > 1 else made[0]
            done += len(batch)
            if progress is not None:
                progress(done, len(found))
        return results

    def stream(
        self,
        prompt: Item,
        *,
        prefix: Prefix | None = None,
        lookup: bool = False,
        errors: Errors = "strict",
        **options: Any,
    ) -> Iterator[str]:
        """Yield the text that continues a prompt, piece by piece; joined, the pieces are the text of ``generate``.

        No piece ends inside a character. A token is computed when its piece is asked for, and nothing after the
        iterator is closed. Options are those of :meth:`generate` but beams and several sequences.

        Raises:
            InputError: naming the option that cannot be used.
            LimitError: for a prompt that leaves no room.
        """
        chosen = self._read_options(options)
        check_stream(chosen)
        batch = [self._prompt(prompt, 0, prefix, errors)]
        return self._pieces(batch, chosen, prefix, lookup)

    def _pieces(self, batch: list[Prompt], options: Options, prefix: Prefix | None, lookup: bool) -> Iterator[str]:
        """Yield the pieces of the only prompt."""
        model, logits = self._prefill(batch, options, prefix, lookup)
        yield from pieces(stream(model, logits, [batch[0].ids], options, **self._reading()))

    def prefix(self, text: Item, *, errors: Errors = "strict") -> Prefix:
        """Compute the beginning that several prompts share, for ``generate(..., prefix=...)``.

        Its text is tokenized by itself: end it where a word ends.

        Raises:
            LimitError: if it leaves no room for a prompt.
        """
        ids = self._prompt(text, 0, None, errors).ids
        if len(ids) >= self.max_tokens:
            raise LimitError(f"the prefix has {len(ids)} tokens and leaves no room in the model's {self.max_tokens}")
        cache = self._cache(1, len(ids))
        prefill(cache, [ids])
        return Prefix(tuple(ids), tuple(cache.prefix()))

    def score(
        self,
        texts: Iterable[Item],
        *,
        max_batch_tokens: int | None = None,
        errors: Errors = "strict",
        progress: Progress | None = None,
    ) -> list[Scored]:
        """Return how likely the model finds each text.

        The first token counts too where the bundle has a token that texts begin with (``bos_token_id``), and else is
        taken as given. A text longer than the model is read in windows that overlap by half, each token being scored
        once, after at least half a window.

        Raises:
            InputError: naming the text or option that cannot be used.
        """
        budget = check_budget(max_batch_tokens, 512)
        options = self._check(errors=errors)
        rows = []
        for index, item in enumerate(iterate(texts, "score([text])")):
            ids = self._ids(item, index, replace(options, max_ids=1 << 31))
            bos = self.decoding.get("bos_token_id")
            rows.append(([bos] if bos is not None else []) + ids)
        return score_rows(rows, self._cache, self.max_tokens, budget, progress)

    def _read_options(self, given: dict[str, Any]) -> Options:
        """Return the options of a call, on top of the bundle's."""
        self._check()
        lengths = {"max_new_tokens", "max_length"}
        own = {} if lengths & (self.decoding.keys() | given.keys()) else {"max_new_tokens": MAX_NEW_TOKENS}
        return Options.read({**own, **self.decoding}, **given)

    def _ids(self, item: Item, index: int, options: Any) -> list[int]:
        """Return the token ids of a text, or those that were given."""
        text = self._text(item, index, options)
        ids: list[int] = self._tokenizer.content(text).ids if isinstance(text, str) else text.tolist()
        return ids

    def _prompt(self, item: Item, index: int, prefix: Prefix | None, errors: Errors) -> Prompt:
        """Turn a text, or token ids, into a prompt."""
        options = replace(self._check(errors=errors), max_ids=1 << 31)
        ids = [] if isinstance(item, (list, tuple)) and not item else self._ids(item, index, options)
        if prefix is not None:
            if not ids:
                raise InputError(f"prompt {index} is empty; write at least a word after the prefix")
            ids = [*prefix.ids, *ids]
        if not ids:
            bos = self.decoding.get("bos_token_id")
            if bos is None:
                raise InputError(f"prompt {index} is empty, and the bundle has no token to start from; write a word")
            ids = [bos]
        if len(ids) >= self.max_tokens:
            raise LimitError(
                f"prompt {index} has {len(ids)} tokens and leaves no room in the model's {self.max_tokens}; shorten it"
            )
        return Prompt(index, ids)

    def _room(self, length: int, options: Options) -> int:
        """Return the tokens that a row can have in the end."""
        total = options.max_length if options.max_new_tokens is None else length + options.max_new_tokens
        return min(self.max_tokens, total or self.max_tokens)

    def _batches(self, prompts: list[Prompt], options: Options, budget: int) -> Iterator[list[Prompt]]:
        """Put prompts of about the same length together, as many as ``budget`` tokens allow."""
        rows = max(options.num_beams, options.num_return_sequences)
        batch: list[Prompt] = []
        for prompt in sorted(prompts, key=lambda prompt: len(prompt.ids)):
            if batch and (len(batch) + 1) * rows * self._room(len(prompt.ids), options) > budget:
                yield batch
                batch = []
            batch.append(prompt)
        if batch:
            yield batch

    def _cache(self, rows: int, capacity: int) -> KVCache:
        """Return an empty cache for so many rows of at most ``capacity`` tokens."""
        session = self._workers.session
        if self._graph.in_place and isinstance(session, Session):
            return InPlaceKVCache(self._graph, session, rows, capacity)
        return ConcatKVCache(self._graph, session)

    def _prefill(
        self, batch: list[Prompt], options: Options, prefix: Prefix | None, lookup: bool
    ) -> tuple[StepModel, Floats]:
        """Compute the prompts of a batch; return what continues them, and the logits after them."""
        longest = max(self._room(len(prompt.ids), options) for prompt in batch)
        rows = len(batch) * max(options.num_beams, options.num_return_sequences)
        cache = self._cache(rows, longest)
        skipped = len(prefix.ids) if prefix is not None else 0
        if prefix is not None:
            cache.load_prefix(prefix.past, len(batch))
        logits = prefill(cache, [prompt.ids[skipped:] for prompt in batch])
        if lookup:
            return PromptLookupDecoder(cache, self._graph.vocab_size, batch[0].ids, longest), logits
        return CausalDecoder(cache, self._graph.vocab_size), logits

    def _reading(self) -> dict[str, Any]:
        """Return what a search has to know of the bundle."""
        return {"limit": self.max_tokens, "decode": self._decode}
