"""Turn the texts of a call into what an encoder reads, and into the beginnings of what a decoder writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgebert_runtime.errors import InputError, LimitError
from edgebert_runtime.generation import Options
from edgebert_runtime.inputs.language_tokens import Direction, Languages
from edgebert_runtime.inputs.sentence_splitter import Sentences, split_sentences
from edgebert_runtime.inputs.tokenizer import Tokenizer
from edgebert_runtime.inputs.validation import Item, TokenIds, check_ids, check_text, refuse
from edgebert_runtime.tasks.requests import Options as TextOptions

# New tokens where nobody says how many: so many for each of the source, and so many more.
PER_TOKEN, MORE = 3, 16


@dataclass(frozen=True)
class Call:
    """What a call asks for: the options of its search, the languages, and what to do with its texts.

    ``start`` are the tokens from which targets start; ``forced`` is the one that has to come next, if there is one.
    """

    options: Options
    direction: Direction
    start: list[int]
    texts: TextOptions
    split: bool = False

    @property
    def forced(self) -> list[int]:
        """The first token of every target, where there is one."""
        token = self.options.forced_bos_token_id
        return [] if token is None else [token]

    @property
    def width(self) -> int:
        """The rows that a source may need."""
        return max(self.options.num_beams, self.options.num_return_sequences)


@dataclass(frozen=True)
class Source:
    """A source: the number of its text in the call, and its tokens.

    ``target`` are the tokens from which its target starts, ``prefix`` those of them that are text, and ``limit`` is
    the number of tokens that there may be in all.
    """

    number: int
    ids: list[int]
    target: list[int]
    prefix: list[int]
    limit: int


@dataclass(frozen=True)
class Passage:
    """A text: its sentences, and the source made of each, None where there is nothing to read."""

    sentences: Sentences
    sources: list[Source | None]


@dataclass(frozen=True)
class SourceReader:
    """Makes sources for a model of ``max_tokens`` positions on either side, and ``vocab_size`` tokens of targets."""

    tokenizer: Tokenizer
    targets: Tokenizer
    languages: Languages
    max_tokens: int
    vocab_size: int

    def passage(self, text: str | TokenIds, number: int, prefix: list[int], call: Call) -> Passage:
        """Turn a text, or the token ids of a source, into sources.

        Raises:
            InputError: if it does not say into which language, or into one that is not known.
            LimitError: if there are more tokens than positions.
        """
        if not isinstance(text, str):
            return Passage(Sentences([""], ["", ""]), [self.source(list(text), number, prefix, call)])
        text, direction = self.languages.named(text, number, call.direction)
        found: dict[str, list[int]] = {}

        def fits(sentence: str) -> bool:
            found[sentence] = ids = self.tokenizer.ids(sentence)
            return len(self.add_special_tokens(ids, direction)) <= self.max_tokens

        if call.split:
            sentences = split_sentences(text, fits)
        else:
            sentences = Sentences([text], ["", ""]) if text.strip() else Sentences([], [text])
        sources: list[Source | None] = []
        for sentence in sentences.texts:
            ids = found[sentence] if call.split else self.tokenizer.ids(sentence)
            sources.append(self.source(self.add_special_tokens(ids, direction), number, prefix, call) if ids else None)
        return Passage(sentences, sources)

    def add_special_tokens(self, ids: list[int], direction: Direction) -> list[int]:
        """Put special tokens around those of a text."""
        return self.languages.add_special_tokens(ids, direction, self.tokenizer.single)

    def source(self, ids: list[int], number: int, prefix: list[int], call: Call) -> Source:
        """Turn token ids into a source."""
        if len(ids) > self.max_tokens:
            remedy = "split it, or pass split_sentences=True"
            if call.split:
                remedy = "so many stand together without white space at which they could be cut"
            raise LimitError(f"text {number} has {len(ids)} tokens, the limit is {self.max_tokens}; {remedy}")
        target = [*call.start, *(call.forced if prefix else ()), *prefix]
        if len(target) >= self.max_tokens:
            raise LimitError(
                f"the target prefix of text {number} has {len(prefix)} tokens and leaves no room in the model's "
                f"{self.max_tokens}; shorten it"
            )
        limit = self.max_tokens
        if call.options.max_new_tokens is None and call.options.max_length is None:
            limit = min(limit, len(target) + PER_TOKEN * len(ids) + MORE)
        return Source(number, ids, target, prefix, limit)

    def prefixes(self, given: str | Sequence[Item] | None, count: int, call: Call) -> list[list[int]]:
        """Return the tokens with which the target of each of ``count`` texts begins.

        Raises:
            InputError: if there are not as many, or texts are split.
        """
        if given is None:
            return [[]] * count
        if call.split:
            raise InputError("target_prefix begins one translation, split_sentences=True makes several of a text")
        several = [given] * count if isinstance(given, str) else list(given)
        if len(several) != count:
            raise InputError(f"{len(several)} target prefixes were given for {count} texts")
        return [self.target(item, i, call) for i, item in enumerate(several)]

    def target(self, item: Item, number: int, call: Call) -> list[int]:
        """Return the token ids of a target, without special ones, or those that were given."""
        if isinstance(item, str):
            return self.targets.ids(check_text(item, number, call.texts.errors))
        if not isinstance(item, (list, tuple, np.ndarray)):
            raise refuse(item, number)
        given: list[int] = check_ids(item, number, self.vocab_size, self.max_tokens).tolist()
        return given

    def pair(self, text: str | TokenIds, target: Item, number: int, call: Call) -> tuple[Source, list[int]]:
        """Return the source of a pair, and the tokens of its target that count.

        Raises:
            LimitError: if there are more tokens than positions.
        """
        if isinstance(text, str):
            text, direction = self.languages.named(text, number, call.direction)
            text = self.add_special_tokens(self.tokenizer.ids(text), direction)
        source = self.source(list(text), number, [], call)
        ids = self.target(target, number, call)
        if isinstance(target, str):
            ids = [*ids, *call.options.eos_token_id[:1]]
        elif call.forced and ids[:1] == call.forced:
            ids = ids[1:]
        start = [*call.start, *call.forced]
        if len(start) + len(ids) > self.max_tokens:
            raise LimitError(
                f"the target of text {number} has {len(ids)} tokens, the limit is {self.max_tokens - len(start)}; "
                "split the pair"
            )
        return replace(source, target=start, limit=len(start) + len(ids)), ids
