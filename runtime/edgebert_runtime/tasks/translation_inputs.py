"""Turn the texts of a call into sources of an encoder and beginnings of targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgebert_runtime.errors import InputError, LimitError
from edgebert_runtime.generation import Options
from edgebert_runtime.inputs.language_tokens import Direction, Languages
from edgebert_runtime.inputs.sentence_splitter import Sentences, split_sentences
from edgebert_runtime.inputs.validation import Errors, Item, TokenIds, check_ids, iterate, refuse
from edgebert_runtime.tasks.base.text_encoder import TextEncoder

# New tokens where no length is set: so many for each token of the source, and so many more.
NEW_PER_TOKEN, MORE_NEW = 3, 16


@dataclass(frozen=True)
class TranslationRequest:
    """A call, checked: the options of its search, the languages, and how its texts are read.

    ``start`` are the tokens from which targets start.
    """

    options: Options
    direction: Direction
    start: list[int]
    encoding_errors: Errors
    special_tokens: bool = False
    split_sentences: bool = False

    @property
    def forced(self) -> list[int]:
        """The first token of every target, where there is one."""
        token = self.options.forced_bos_token_id
        return [] if token is None else [token]

    @property
    def rows_per_source(self) -> int:
        """The rows that a source may need."""
        return max(self.options.num_beams, self.options.num_return_sequences)


@dataclass(frozen=True)
class EncoderInput:
    """A source: the number of its text in the call, and its tokens.

    ``target`` are the tokens from which its target starts, ``prefix`` those of them that are text. ``limit`` is the
    most tokens of the target.
    """

    index: int
    ids: list[int]
    target: list[int]
    prefix: list[int]
    limit: int


@dataclass(frozen=True)
class SplitText:
    """A text: its sentences, and the source made of each, None for an empty one."""

    sentences: Sentences
    sources: list[EncoderInput | None]


@dataclass(frozen=True)
class SourceReader:
    """Makes sources for a model of ``max_tokens`` positions on either side."""

    sources: TextEncoder
    targets: TextEncoder
    languages: Languages
    max_tokens: int

    def first_tokens(
        self, start: Any, direction: Direction, target: str | None, options: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return the token from which targets start, and options that force the next one where it is the language.

        ``start`` is the bundle's own. ``target`` is the language that the call names.

        Raises:
            InputError: if the language is missing, or the call forces another token.
        """
        forced = options.get("forced_bos_token_id")
        if self.languages.style == "bart25":
            return self.languages.required("target_language", direction.target), options
        if self.languages.style != "bart50":
            return start, options
        if forced is None:
            token = self.languages.required("target_language", direction.target)
            return start, {**options, "forced_bos_token_id": token}
        if target is not None:
            raise InputError(
                "sets {forced_bos_token_id}",
                option="target_language",
                value=target,
                hint="give one of them",
                options={"forced_bos_token_id": forced},
            )
        return start, options

    def split(self, text: str | TokenIds, index: int, prefix: list[int], request: TranslationRequest) -> SplitText:
        """Turn a text, or the token ids of a source, into sources.

        Raises:
            InputError: if the target language is missing, or not known.
            LimitError: if there are more tokens than positions.
        """
        if not isinstance(text, str):
            return SplitText(Sentences([""], ["", ""]), [self.source(list(text), index, prefix, request)])
        text, direction = self.languages.named(text, index, request.direction)
        ids_of: dict[str, list[int]] = {}

        def fits(sentence: str) -> bool:
            ids_of[sentence] = ids = self.sources.content(sentence, index, request)
            return len(self.add_special_tokens(ids, direction)) <= self.max_tokens

        if request.split_sentences:
            sentences = split_sentences(text, fits)
        else:
            sentences = Sentences([text], ["", ""]) if text.strip() else Sentences([], [text])
        sources: list[EncoderInput | None] = []
        for sentence in sentences.texts:
            ids = ids_of[sentence] if request.split_sentences else self.sources.content(sentence, index, request)
            sources.append(
                self.source(self.add_special_tokens(ids, direction), index, prefix, request) if ids else None
            )
        return SplitText(sentences, sources)

    def add_special_tokens(self, ids: list[int], direction: Direction) -> list[int]:
        """Put special tokens around those of a text."""
        return self.languages.add_special_tokens(ids, direction, self.sources.tokenizer.single)

    def source(self, ids: list[int], index: int, prefix: list[int], request: TranslationRequest) -> EncoderInput:
        """Turn token ids into a source."""
        if len(ids) > self.max_tokens:
            hint = "split it, or pass {split_sentences}"
            if request.split_sentences:
                hint = "so many stand together without white space at which they could be cut"
            raise LimitError(
                f"has {len(ids)} tokens, the limit is {self.max_tokens}",
                index=index,
                hint=hint,
                options={"split_sentences": True},
            )
        target = [*request.start, *(request.forced if prefix else ()), *prefix]
        if len(target) >= self.max_tokens:
            raise LimitError(
                f"has {len(prefix)} tokens and leaves no room in the model's {self.max_tokens}",
                index=index,
                part="the target prefix",
                hint="shorten it",
            )
        limit = self.max_tokens
        if request.options.max_new_tokens is None and request.options.max_length is None:
            limit = min(limit, len(target) + NEW_PER_TOKEN * len(ids) + MORE_NEW)
        return EncoderInput(index, ids, target, prefix, limit)

    def prefixes(
        self, prefixes: str | Sequence[Item] | None, count: int, request: TranslationRequest
    ) -> list[list[int]]:
        """Return the tokens with which the target of each of ``count`` texts begins.

        Raises:
            InputError: if there are not as many, or texts are split.
        """
        if prefixes is None:
            return [[]] * count
        if request.split_sentences:
            raise InputError(
                "begins one translation, {split_sentences} makes several of a text",
                option="target_prefix",
                options={"split_sentences": True},
            )
        items: list[Item] = [prefixes] * count if isinstance(prefixes, str) else []
        if not isinstance(prefixes, str):
            items += iterate(prefixes, "target_prefix=[text]")
        if len(items) != count:
            raise InputError(f"holds {len(items)} for {count} texts", option="target_prefix")
        return [self.target(item, index, request) for index, item in enumerate(items)]

    def target(self, item: Item, index: int, request: TranslationRequest) -> list[int]:
        """Return the token ids of a target, without special ones, or those that were given."""
        if isinstance(item, str):
            return self.targets.content(item, index, request)
        if not isinstance(item, (list, tuple, np.ndarray)):
            raise refuse(item, index)
        ids: list[int] = check_ids(item, index, self.targets.vocab_size, self.max_tokens).tolist()
        return ids

    def pair(
        self, text: str | TokenIds, target: Item, index: int, request: TranslationRequest
    ) -> tuple[EncoderInput, list[int]]:
        """Return the source of a pair, and the tokens of its target that count.

        Raises:
            LimitError: if there are more tokens than positions.
        """
        if isinstance(text, str):
            text, direction = self.languages.named(text, index, request.direction)
            text = self.add_special_tokens(self.sources.content(text, index, request), direction)
        source = self.source(list(text), index, [], request)
        ids = self.target(target, index, request)
        if isinstance(target, str):
            ids = [*ids, *request.options.eos_token_id[:1]]
        elif request.forced and ids[:1] == request.forced:
            ids = ids[1:]
        start = [*request.start, *request.forced]
        if len(start) + len(ids) > self.max_tokens:
            raise LimitError(
                f"has {len(ids)} tokens, the limit is {self.max_tokens - len(start)}",
                index=index,
                part="the target",
                hint="split the pair",
            )
        return replace(source, target=start, limit=len(start) + len(ids)), ids
