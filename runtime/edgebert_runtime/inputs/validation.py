"""Checks of the arguments of a call, before anything else reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.errors import InputError, LimitError

MAX_CHARACTERS = 1_000_000
T = TypeVar("T")
Errors = Literal["strict", "replace"]
TokenIds: TypeAlias = "list[int] | tuple[int, ...] | NDArray[np.integer[Any]]"
Item: TypeAlias = "str | TokenIds"


def check_whole(name: str, value: object, low: int, high: int | None) -> int:
    """Return an option that must be a whole number from ``low`` to ``high`` (None: without end).

    Raises:
        InputError: naming the option and the value.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise InputError("is not a whole number", option=name, value=value)
    number = int(value)  # NumPy's may not compare with numbers outside of their range
    if high is None and number < low:
        raise InputError(f"is less than {low}", option=name, value=number)
    if high is not None and not low <= number <= high:
        raise InputError(f"is not between {low} and {high}", option=name, value=number)
    return number


def check_batch_tokens(value: int | None, default: int) -> int:
    """Return the tokens of a batch: ``value``, or ``default`` if it is None.

    Raises:
        InputError: if it is no whole number from 1.
    """
    return default if value is None else check_whole("max_batch_tokens", value, 1, None)


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Make sure that an option is one of ``choices``.

    Raises:
        InputError: naming the option and the value.
    """
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"is not one of {', '.join(choices)}", option=name, value=value)


def check_flag(name: str, value: object) -> bool:
    """Return an option that must be True or False.

    Raises:
        InputError: naming the option and the value.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise InputError("is not True or False", option=name, value=value)
    return bool(value)


def check_progress(progress: Callable[[int, int | None], None] | None) -> None:
    """Make sure that ``progress`` can be called, before any work.

    Raises:
        InputError: if it cannot.
    """
    if progress is not None and not callable(progress):
        raise InputError("is not a function of the number done and the total", option="progress", value=progress)


def iterate(items: Iterable[T], example: str) -> Iterator[T]:
    """Return an iterator over ``items``; ``example`` is a correct call, for the error.

    Raises:
        InputError: if ``items`` is one text, or has no order.
    """
    if isinstance(items, (str, bytes, bytearray)):
        raise InputError(f"one {type(items).__name__} was given where several texts go; write {example}")
    try:
        if not isinstance(items, (Mapping, set, frozenset)):
            return iter(items)
    except TypeError:
        pass
    raise InputError(f"{type(items).__name__} was given where several texts go; write {example}")


def check_text(
    text: str, index: int | None, errors: Errors, item: str = "text", part: str | tuple[str, int] | None = None
) -> str:
    """Return a text that can be tokenized; errors name it by ``index``, ``item`` and ``part``.

    ``errors`` of ``"replace"`` puts U+FFFD in the place of each lone surrogate, as they come out of damaged files.

    Raises:
        InputError: for a lone surrogate.
        LimitError: for more than ``MAX_CHARACTERS`` characters.
    """
    if len(text) > MAX_CHARACTERS:
        raise LimitError(
            f"has {len(text)} characters, the limit is {MAX_CHARACTERS}",
            index=index,
            item=item,
            part=part,
            hint="split it",
        )
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        if errors == "replace":
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        raise InputError(
            f"has the lone surrogate U+{ord(text[error.start]):04X} at character {error.start}",
            index=index,
            item=item,
            part=part,
            hint="repair it, or pass {encoding_errors}",
            options={"encoding_errors": "replace"},
        ) from None
    return text


def check_ids(ids: TokenIds, index: int, vocab_size: int, max_tokens: int | None) -> NDArray[np.int64]:
    """Return token ids as an array (seq,) of int64, ``max_tokens`` at most (None: any number).

    Raises:
        InputError: if they are not whole numbers from 0 to ``vocab_size - 1``, or there are none.
        LimitError: if there are more than ``max_tokens``.
    """
    if np.ma.is_masked(ids):
        raise InputError("is an array with masked elements", index=index, hint="give its compressed()")
    array = np.asarray(ids) if isinstance(ids, np.ndarray) else listed(ids, index)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"is an array of {array.dtype} with shape {array.shape}, not a list of token ids", index=index)
    if not array.size:
        raise InputError("is an empty list of token ids", index=index, hint="give at least one")
    if max_tokens is not None and array.size > max_tokens:
        raise LimitError(f"has {array.size} token ids, the limit is {max_tokens}", index=index)
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= vocab_size:
        wrong = low if low < 0 else high
        at = int(np.flatnonzero(array == wrong)[0])
        raise InputError(f"has token id {wrong} at position {at}, the vocabulary is 0 to {vocab_size - 1}", index=index)
    return array.astype(np.int64)


def listed(ids: list[int] | tuple[int, ...], index: int) -> NDArray[Any]:
    """Return an array of a list of whole numbers."""
    for position, value in enumerate(ids) if set(map(type, ids)) != {int} else ():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise InputError(
                f"holds {value!r:.40} ({type(value).__name__}) at position {position}, not a token id", index=index
            )
    try:
        return np.array(ids, dtype=np.int64)
    except OverflowError:
        raise InputError("holds a token id of more than 63 bits", index=index) from None


def refuse(item: object, index: int) -> InputError:
    """Return the error for an item that is neither a text nor token ids."""
    hint = "put the ids of one text in a list of their own" if isinstance(item, (int, np.integer)) else None
    return InputError(f"is {type(item).__name__}, not str or a list of token ids", index=index, hint=hint)
