"""The options that every method of an engine over batches takes by keyword."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypedDict

from edgebert_runtime.errors import InputError
from edgebert_runtime.inputs.validation import Errors, check_choice, check_flag, check_whole

MAX_BATCH_TOKENS = 1 << 24


class TextOptions(TypedDict, total=False):
    """The options that every method takes by keyword.

    ``max_tokens``: where a text is cut, or how long a window is. It counts special tokens, and is the bundle's
    ``default_tokens`` if left out. ``truncate=False`` refuses longer texts with a LimitError. ``max_batch_tokens``
    bounds the tokens computed at a time, padding included, and so the memory. ``encoding_errors="replace"`` puts
    U+FFFD in the place of lone surrogates. They are refused otherwise. ``special_tokens=True`` reads special tokens
    that stand in a text, such as ``[SEP]``, as tokens. Otherwise they are characters: text of strangers could end a
    segment, or speak for the system. Leave it so for text that you did not write.
    """

    max_tokens: int | None
    truncate: bool
    max_batch_tokens: int | None
    encoding_errors: Errors
    special_tokens: bool


@dataclass(frozen=True)
class TokenLimits:
    """Numbers of tokens: the default length of a text, the most of a text, and the default of a batch."""

    default_tokens: int
    max_tokens: int
    batch_tokens: int


@dataclass(frozen=True)
class CheckedOptions:
    """The options of a call, checked. ``max_ids`` is the most token ids that may stand for a text."""

    max_tokens: int
    max_ids: int
    truncate: bool
    max_batch_tokens: int
    encoding_errors: Errors
    special_tokens: bool

    @classmethod
    def read(
        cls,
        options: TextOptions,
        limits: TokenLimits,
        special_tokens: int,
        names: Collection[str] = TextOptions.__annotations__,
    ) -> CheckedOptions:
        """Check the options of a call whose rows have ``special_tokens`` each.

        ``names`` are the options of the method, those of the task among them.

        Raises:
            InputError: naming the option and its value.
        """
        if unknown := sorted(name for name in options if name not in names):
            raise unknown_option(unknown[0], names)
        truncate = check_flag("truncate", options.get("truncate", True))
        special, errors = options.get("special_tokens", False), options.get("encoding_errors", "strict")
        check_choice("encoding_errors", errors, ("strict", "replace"))
        max_tokens, max_ids = limits.default_tokens, limits.max_tokens
        if (longest := options.get("max_tokens")) is not None:
            max_tokens = max_ids = check_whole("max_tokens", longest, 1, limits.max_tokens)
        if max_tokens <= special_tokens:
            raise InputError(
                f"leaves no room beside {special_tokens} special tokens",
                option="max_tokens",
                value=max_tokens,
                hint=f"the least is {special_tokens + 1}",
            )
        batch_tokens = limits.batch_tokens
        if (budget := options.get("max_batch_tokens")) is not None:
            batch_tokens = check_whole("max_batch_tokens", budget, 1, MAX_BATCH_TOKENS)
        return cls(max_tokens, max_ids, truncate, batch_tokens, errors, check_flag("special_tokens", special))


def unknown_option(name: str, names: Collection[str]) -> InputError:
    """Return the error for an option that is none of ``names``."""
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"the options are {', '.join(names)}"
    return InputError(f"option {name!r:.60} is not known", hint=hint)
