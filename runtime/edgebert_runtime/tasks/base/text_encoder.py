"""Turn texts, pairs of texts and token ids into rows of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.errors import InputError, LimitError
from edgebert_runtime.inputs.character_spans import plan_windows
from edgebert_runtime.inputs.special_tokens import fit_pair
from edgebert_runtime.inputs.tokenizer import ModelTokenizer
from edgebert_runtime.inputs.validation import (
    Errors,
    Item,
    check_choice,
    check_flag,
    check_ids,
    check_text,
    check_whole,
    refuse,
)
from edgebert_runtime.tasks.base.model_inputs import ModelInput
from edgebert_runtime.tasks.base.text_options import CheckedOptions

# Windows share a quarter of their tokens by default, and no more than this.
MAX_DEFAULT_STRIDE = 128


class TextReading(NamedTuple):
    """How texts are read: what becomes of lone surrogates, and whether special tokens in a text are tokens."""

    encoding_errors: Errors
    special_tokens: bool

    @classmethod
    def checked(cls, encoding_errors: Errors, special_tokens: bool) -> TextReading:
        """Check both options of a call.

        Raises:
            InputError: naming the option.
        """
        check_choice("encoding_errors", encoding_errors, ("strict", "replace"))
        return cls(encoding_errors, check_flag("special_tokens", special_tokens))


class ReadsTexts(Protocol):
    """The options of a call that say how texts are read."""

    @property
    def encoding_errors(self) -> Errors:
        """Return what becomes of lone surrogates."""

    @property
    def special_tokens(self) -> bool:
        """Return whether special tokens in a text are tokens."""


@dataclass(frozen=True)
class TextEncoder:
    """A tokenizer, the number of token ids that its model knows, and the side on which texts are cut."""

    tokenizer: ModelTokenizer
    vocab_size: int
    cuts_left: bool = False

    def text_or_ids(self, item: Item, index: int, errors: Errors, max_ids: int | None) -> str | NDArray[np.int64]:
        """Return a text that can be tokenized, or at most ``max_ids`` token ids (None: any number).

        Raises:
            InputError: for anything else, and for ids that the model does not know.
            LimitError: for too many characters or ids.
        """
        if isinstance(item, str):
            return check_text(item, index, errors)
        if not isinstance(item, (list, tuple, np.ndarray)):
            raise refuse(item, index)
        return check_ids(item, index, self.vocab_size, max_ids)

    def row(self, item: Item, index: int, options: CheckedOptions, prompt: str = "") -> ModelInput:
        """Turn a text with ``prompt`` before it into a row, cut where it is too long. Ids are taken as they are."""
        text = self.text_or_ids(item, index, options.encoding_errors, options.max_ids)
        if not isinstance(text, str):
            return ModelInput(text)
        try:
            content = self.tokenizer.ids(prompt + text, options.special_tokens)
        except InputError as error:
            error.index = index
            raise
        ids, full_length = self.tokenizer.truncated(content, options.max_tokens, self.cuts_left)
        return ModelInput(ids, truncated=full_length > options.max_tokens and cut(index, full_length, options))

    def pair(self, first: str, second: str, index: int, options: CheckedOptions) -> ModelInput:
        """Turn two texts into a row. Where they are too long together, the longer one is cut first."""
        for text in (first, second):
            if not isinstance(text, str):
                raise InputError(f"is a pair with {type(text).__name__} in it, not two of str", index=index)
        left, right = (self.content(text, index, options) for text in (first, second))
        return self.joined(left, right, index, options)

    def encoding(
        self,
        text: str,
        index: int | None,
        reading: ReadsTexts,
        item: str = "text",
        part: str | tuple[str, int] | None = None,
    ) -> Any:
        """Return the ``tokenizers.Encoding`` of a text that can be tokenized, without the special tokens around it.

        Errors name the text by ``index``, ``item`` and ``part``.

        Raises:
            InputError: if the tokenizer has no token for a character of it.
        """
        try:
            return self.tokenizer.content(text, reading.special_tokens)
        except InputError as error:
            error.index, error.item, error.part = index, item, part
            raise

    def content(
        self,
        text: str,
        index: int | None,
        reading: ReadsTexts,
        item: str = "text",
        part: str | tuple[str, int] | None = None,
    ) -> list[int]:
        """Return the token ids of a text without those around it; errors name it as in :meth:`encoding`."""
        text = check_text(text, index, reading.encoding_errors, item, part)
        return self.tokenizer.in_vocabulary(self.encoding(text, index, reading, item, part).ids)

    def joined(self, first: list[int], second: list[int], index: int, options: CheckedOptions) -> ModelInput:
        """Turn the token ids of two texts into a row, the longer one cut first."""
        template = self.tokenizer.pair
        full_length = len(first) + len(second) + template.num_special_tokens
        left, right = fit_pair(len(first), len(second), max(0, options.max_tokens - template.num_special_tokens))
        truncated = full_length > options.max_tokens and cut(index, full_length, options)
        if self.cuts_left:
            return ModelInput(*template.join(first[len(first) - left :], second[len(second) - right :]), truncated)
        return ModelInput(*template.join(first[:left], second[:right]), truncated)


def cut(index: int, full_length: int, options: CheckedOptions) -> bool:
    """Return True: a text of ``full_length`` tokens is cut.

    Raises:
        LimitError: if it must not be.
    """
    if not options.truncate:
        raise LimitError(
            f"has {full_length} tokens, the limit is {options.max_tokens}",
            index=index,
            hint="split it, raise {max_tokens}, or leave out {truncate}",
            options={"max_tokens": ..., "truncate": False},
        )
    return True


def token_windows(length: int, room: int, stride: int | None) -> list[tuple[int, int]]:
    """Plan windows of ``room`` tokens that share ``stride`` (None: a quarter, at most 128).

    Raises:
        InputError: if ``stride`` leaves no way forward.
    """
    if stride is None:
        return plan_windows(length, room, min(MAX_DEFAULT_STRIDE, room // 4))
    return plan_windows(length, room, check_whole("stride", stride, 0, room - 1))
