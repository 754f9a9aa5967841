"""Parsers of single options: each checks a value and returns it in one form."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from edgebert_runtime.errors import InputError
from edgebert_runtime.inputs.validation import check_whole

LEAST_TEMPERATURE = 1e-5
MOST_BEAMS = 1024
MOST_TOKENS = 1_000_000


def real(name: str, value: object, low: float, high: float, above: bool = False) -> float:
    """Return a number from ``low`` to ``high``, greater than ``low`` with ``above``."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InputError("is not a number", option=name, value=value)
    number = float(value) if abs(value) <= sys.float_info.max else math.nan
    if not low <= number <= high or (above and number == low):
        span = f"more than {low:g} and at most {high:g}" if above else f"from {low:g} to {high:g}"
        raise InputError(f"is not a number that is {span}", option=name, value=value)
    return number


def flag(name: str, value: object) -> bool:
    """Return True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError("is not True or False", option=name, value=value)
    return bool(value)


def stopping(name: str, value: object) -> bool | str:
    """Return the early-stopping rule of a beam search."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if value == "never" and isinstance(value, str):
        return value
    raise InputError("is not False, True or 'never'", option=name, value=value)


def listed(name: str, value: object, what: str) -> list[Any]:
    """Return the items of a list or other ordered iterable, at least one."""
    if isinstance(value, (str, bytes, bytearray, Mapping)) or not isinstance(value, Iterable):
        raise InputError(f"is not a list of {what}", option=name, value=value)
    items = list(value)
    if not items:
        raise InputError(f"is an empty list of {what}", option=name, hint="leave it out, or pass None")
    return items


def token(name: str, value: object) -> int:
    """Return a token id."""
    return check_whole(name, value, 0, None)


def tokens(name: str, value: object) -> tuple[int, ...]:
    """Return token ids in rising order, each once. One id may stand for a list."""
    if isinstance(value, (int, np.integer)):
        return (token(name, value),)
    return tuple(sorted({token(name, item) for item in listed(name, value, "token ids")}))


def sequences(name: str, value: object) -> tuple[tuple[int, ...], ...]:
    """Return sequences of token ids, each once."""
    items = [listed(name, item, "token ids") for item in listed(name, value, "lists of token ids")]
    return tuple(dict.fromkeys(tuple(token(name, index) for index in item) for item in items))


def strings(name: str, value: object) -> tuple[str, ...]:
    """Return non-empty strings. One string may stand for a list."""
    items = [value] if isinstance(value, str) else listed(name, value, "strings")
    for item in items:
        if not isinstance(item, str) or not item:
            raise InputError(f"holds {item!r:.60}, not a string of at least one character", option=name)
    return tuple(dict.fromkeys(items))


def function(name: str, value: object) -> object:
    """Return a callable."""
    if not callable(value):
        raise InputError("is not a function of a prompt's number and its tokens so far", option=name, value=value)
    return value


CHECKS: dict[str, Callable[[str, object], object]] = {
    "max_new_tokens": partial(check_whole, low=1, high=MOST_TOKENS),
    "min_new_tokens": partial(check_whole, low=0, high=MOST_TOKENS),
    "max_length": partial(check_whole, low=1, high=MOST_TOKENS),
    "min_length": partial(check_whole, low=0, high=MOST_TOKENS),
    "num_beams": partial(check_whole, low=1, high=MOST_BEAMS),
    "num_return_sequences": partial(check_whole, low=1, high=MOST_BEAMS),
    "length_penalty": partial(real, low=-10, high=10),
    "early_stopping": stopping,
    "do_sample": flag,
    "temperature": partial(real, low=LEAST_TEMPERATURE, high=1e5),
    "top_k": partial(check_whole, low=1, high=MOST_TOKENS),
    "top_p": partial(real, low=0, high=1, above=True),
    "min_p": partial(real, low=0, high=1, above=True),
    "typical_p": partial(real, low=0, high=1, above=True),
    "seed": partial(check_whole, low=0, high=None),
    "repetition_penalty": partial(real, low=0, high=1e5, above=True),
    "no_repeat_ngram_size": partial(check_whole, low=0, high=MOST_TOKENS),
    "bad_words_ids": sequences,
    "forced_bos_token_id": token,
    "forced_eos_token_id": tokens,
    "suppress_tokens": tokens,
    "begin_suppress_tokens": tokens,
    "prefix_allowed_tokens_fn": function,
    "stop": strings,
    "eos_token_id": tokens,
}
