"""The tokens of a text as a bundle reads them: their number, ids, places and text. No session is needed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from edgebert_runtime.bundle.reader import Bundle, Verify
from edgebert_runtime.errors import InputError
from edgebert_runtime.inputs.character_spans import original_offsets
from edgebert_runtime.inputs.language_tokens import Direction, Languages
from edgebert_runtime.inputs.prompts import Prompts
from edgebert_runtime.inputs.special_tokens import EncodedInput
from edgebert_runtime.inputs.text_splitter import TextPiece, split_text
from edgebert_runtime.inputs.tokenizer import ModelTokenizer
from edgebert_runtime.inputs.validation import Errors, check_choice, check_ids, check_text, check_whole, iterate
from edgebert_runtime.task_specs import TASKS
from edgebert_runtime.tasks.base.bundle_tokenizers import load_tokenizers
from edgebert_runtime.tasks.base.text_encoder import TextEncoder, TextReading

if TYPE_CHECKING:
    from typing_extensions import Self

Side = Literal["source", "target"]
SIDES: tuple[Side, ...] = ("source", "target")


@dataclass(frozen=True)
class Tokens:
    """The tokens of a text, as the model reads them.

    ``ids`` and ``tokens`` are theirs, ``offsets`` their characters: ``text[start:end]``, (0, 0) for a token that
    stands for none. ``special`` says which are special tokens.
    """

    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    special: tuple[bool, ...]

    def __len__(self) -> int:
        return len(self.ids)


class Tokenizer:
    """The tokenizer of a bundle. Threads may share it; it pickles as its folder.

    ``max_tokens`` is the longest input of the model, ``default_tokens`` the length at which texts are cut by default.
    ``num_special_tokens`` are put around one text. Numbers of tokens are those before a text is cut, and include
    special tokens.

    A translator reads texts on the side ``source`` and writes the side ``target``. Other bundles have one side.

    Raises:
        BundleError: if the task of the bundle is not known.
        TokenizerError: if a tokenizer does not fit the model.
    """

    def __init__(self, bundle: Bundle, tokenizers: tuple[ModelTokenizer, ModelTokenizer] | None = None) -> None:
        source, target = tokenizers or load_tokenizers(bundle)
        limits, settings, kind = bundle.manifest.limits, bundle.manifest.settings, TASKS[bundle.manifest.task].kind
        self.bundle = bundle
        self.max_tokens = limits.max_tokens
        self.default_tokens = limits.default_tokens
        self._frames = kind != "decoder"  # prompts of a decoder have nothing around them
        self._encoders = {
            side: TextEncoder(own, limits.vocab_size) for side, own in zip(SIDES, (source, target), strict=True)
        }
        self._languages = Languages.read(settings, limits.vocab_size, limits.vocab_size)
        self._end = bundle.manifest.decoding.get("eos_token_id") if kind == "encoder-decoder" else None
        self._prompt = Prompts.read(settings, str(bundle.path)).default
        self.num_special_tokens = len(self._framed("source", [], Direction()).ids)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, verify: Verify = "hash") -> Self:
        """Open the tokenizer of the bundle in ``folder``, whatever its task.

        Raises:
            BundleError: if the folder is no intact bundle.
        """
        return cls(Bundle.open(folder, verify=verify))

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return type(self).load, (os.path.abspath(self.bundle.path),)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({os.fspath(self.bundle.path)!r})"

    def count_tokens(
        self,
        texts: Iterable[str],
        pairs: Iterable[str] | None = None,
        *,
        prompt_text: str | None = None,
        side: Side = "source",
        special_tokens: bool = False,
        encoding_errors: Errors = "strict",
    ) -> list[int]:
        """Return the number of tokens of each text, or of each text with the one of ``pairs`` at the same place.

        The number is that of the tokens that the model would read if it had room for them. ``prompt_text`` stands
        before each text; by default that is the default prompt of an embed bundle, and nothing elsewhere.

        Raises:
            InputError: naming the text or option that cannot be used.
        """
        encoder, reading = self._checked(side, encoding_errors, special_tokens)
        before = self._prompt if prompt_text is None else prompt_text
        items = enumerate(iterate(texts, "count_tokens([text])"))
        if pairs is None:
            return [len(self._read(before + checked(text, index), index, side, reading)[0]) for index, text in items]
        seconds, template = iterate(pairs, "count_tokens([text], [text])"), encoder.tokenizer.pair
        counts = []
        for index, text in items:
            if (second := next(seconds, None)) is None:
                raise InputError(f"there are fewer pairs than texts, {index}; give as many of both")
            both_ids = (encoder.content(checked(part, index), index, reading) for part in (text, second))
            counts.append(sum(map(len, both_ids)) + template.num_special_tokens)
        if next(seconds, None) is not None:
            raise InputError(f"there are more pairs than texts, {len(counts)}; give as many of both")
        return counts

    def tokenize(
        self,
        text: str,
        *,
        side: Side = "source",
        special_tokens: bool = False,
        encoding_errors: Errors = "strict",
    ) -> Tokens:
        """Return the tokens of a text with those around it, and their characters in ``text``.

        Raises:
            InputError: if the text or an option cannot be used.
        """
        encoder, reading = self._checked(side, encoding_errors, special_tokens)
        framed, content, offsets, start = self._read_places(checked(text, 0), side, reading)
        places = [(0, 0)] * start + offsets + [(0, 0)] * (len(framed) - start - len(content))
        inside = [special_tokens and index in self._special_ids[side] for index in content]
        special = [True] * start + inside + [True] * (len(framed) - start - len(content))
        names = tuple(encoder.tokenizer.inner.id_to_token(index) or "" for index in framed)
        return Tokens(tuple(framed), names, tuple(places), tuple(special))

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True, side: Side = "target") -> str:
        """Return the text of token ids, without special tokens unless asked for.

        Raises:
            InputError: if an id is none of the vocabulary.
        """
        check_choice("side", side, SIDES)
        encoder = self._encoders[side]
        checked_ids = check_ids(list(ids), 0, encoder.vocab_size, None).tolist() if len(ids) else []
        text: str = encoder.tokenizer.inner.decode(checked_ids, skip_special_tokens=skip_special_tokens)
        return text

    def split(
        self,
        text: str,
        max_tokens: int | None = None,
        overlap: int = 0,
        *,
        prompt_text: str | None = None,
        special_tokens: bool = False,
        encoding_errors: Errors = "strict",
    ) -> list[TextPiece]:
        """Split a text into pieces of at most ``max_tokens`` tokens, so that none is cut (None: ``default_tokens``).

        Special tokens count, and so does the prompt that stands before each piece. Pieces end between words where
        words are not too long. Neighbours share about ``overlap`` tokens, and less where a word would be cut.

        Raises:
            InputError: if an option leaves no room.
            LimitError: if a character alone has more tokens.
        """
        encoder, reading = self._checked("source", encoding_errors, special_tokens)
        longest = check_whole("max_tokens", max_tokens or self.default_tokens, 1, self.max_tokens)
        before = self._prompt if prompt_text is None else prompt_text
        frame = len(self._read(before, 0, "source", reading)[0])
        if longest <= frame:
            raise InputError(f"leaves no room beside {frame} tokens around a text", option="max_tokens", value=longest)
        overlap = check_whole("overlap", overlap, 0, longest - frame - 1)

        def count(piece: str) -> int:
            return len(self._read(before + piece, 0, "source", reading)[0])

        _, _, offsets, _ = self._read_places(checked(text, 0), "source", reading)
        pieces = split_text(text, offsets, longest - frame, overlap, lambda piece: count(piece) - frame)
        return [piece._replace(num_tokens=piece.num_tokens + frame) for piece in pieces]

    def _checked(self, side: Side, encoding_errors: Errors, special_tokens: bool) -> tuple[TextEncoder, TextReading]:
        """Check the options that all methods take."""
        check_choice("side", side, SIDES)
        return self._encoders[side], TextReading.checked(encoding_errors, special_tokens)

    def _read(self, text: str, index: int, side: Side, reading: TextReading) -> tuple[list[int], list[int]]:
        """Return the ids of a text with those around it, and its own."""
        text, direction = self._named(text, index, side)
        ids = self._encoders[side].content(text, index, reading)
        return self._framed(side, ids, direction).ids, ids

    def _read_places(
        self, text: str, side: Side, reading: TextReading
    ) -> tuple[list[int], list[int], list[tuple[int, int]], int]:
        """Return the ids of a text with those around it, its own, their places, and the position of the first."""
        named, direction = self._named(text, 0, side)
        read = check_text(named, 0, reading.encoding_errors)
        encoder = self._encoders[side]
        encoding = encoder.encoding(read, 0, reading)
        ids = encoder.tokenizer.in_vocabulary(encoding.ids)
        origin, before = original_offsets(named, read), len(text) - len(named)
        offsets = [(max(0, origin[a] + before), max(0, origin[b] + before)) for a, b in encoding.offsets]
        framed = self._framed(side, ids, direction).ids
        return framed, ids, offsets, self._start(side, direction)

    def _named(self, text: str, index: int, side: Side) -> tuple[str, Direction]:
        """Return a source without the language that it names, and its languages, any where none is named."""
        languages = self._languages
        if not languages.style or side == "target":
            return text, Direction()
        token = next(iter(languages.tokens.values()))
        default = Direction(
            languages.token("source_language", languages.source) or token,
            languages.token("target_language", languages.target) or token,
        )
        return languages.named(text, index, default)

    def _framed(self, side: Side, ids: list[int], direction: Direction) -> EncodedInput:
        """Put the tokens around those of a text that the model reads there."""
        template = self._encoders[side].tokenizer.single
        if not self._frames:
            return EncodedInput(ids, [])
        if side == "target":
            ends = self._end if isinstance(self._end, list) else [self._end]
            return EncodedInput([*ids, *(end for end in ends[:1] if end is not None)], [])
        if self._languages.style:
            if direction == Direction():
                _, direction = self._named("", 0, side)
            return EncodedInput(self._languages.add_special_tokens(ids, direction, template), [])
        return template.join(ids)

    def _start(self, side: Side, direction: Direction) -> int:
        """Return the number of tokens before those of a text."""
        mark = -1  # no id
        return self._framed(side, [mark], direction).ids.index(mark)

    @cached_property
    def _special_ids(self) -> dict[Side, frozenset[int]]:
        """The special tokens of each side."""
        added: dict[Side, Any] = {
            side: encoder.tokenizer.inner.get_added_tokens_decoder() for side, encoder in self._encoders.items()
        }
        return {
            side: frozenset(index for index, token in tokens.items() if token.special)
            - {self._encoders[side].tokenizer.unknown}
            for side, tokens in added.items()
        }


def checked(text: object, index: int) -> str:
    """Return a text.

    Raises:
        InputError: if it is none.
    """
    if not isinstance(text, str):
        raise InputError(f"is {type(text).__name__}, not str", index=index)
    return text
