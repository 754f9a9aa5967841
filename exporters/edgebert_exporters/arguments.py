"""The arguments of the library's functions, as plain Python values of the types that they say.

Callers hand in NumPy scalars, arrays of labels, and paths as strings. A manifest and a test for None need Python's own
values.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

import numpy as np

from edgebert_runtime.errors import InputError
from edgebert_runtime.inputs.validation import check_flag

P = ParamSpec("P")
R = TypeVar("R")
Parser = Callable[[str, Any], Any]


def typed(**parsers: Parser) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that parses arguments by name; a default is left as it is.

    Raises:
        InputError: from the function, for an argument that its parser refuses.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        unknown = parsers.keys() ^ signature.parameters.keys()
        assert not unknown, f"{function.__name__} and its parsers differ in {sorted(unknown)}"

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            bound = signature.bind(*args, **kwargs)
            for name, value in bound.arguments.items():
                if value is not signature.parameters[name].default:
                    bound.arguments[name] = parsers[name](name, value)
            return function(*bound.args, **bound.kwargs)

        return checked

    return decorate


def scalar(value: Any) -> Any:
    """Return a NumPy scalar, or an array of no dimensions, as Python's own."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.ndim):
        return value if np.ma.is_masked(value) else value.item()
    return value


def path(name: str, value: Any) -> str | os.PathLike[str]:
    """Return a path as it is given."""
    if isinstance(value, (str, os.PathLike)):
        return value
    raise InputError("is not a path", option=name, value=value)


def text(name: str, value: Any) -> str:
    """Return one text."""
    value = scalar(value)
    if isinstance(value, str):
        return value
    raise InputError("is not a text", option=name, value=value)


def texts(name: str, value: Any) -> list[str]:
    """Return several texts."""
    single = isinstance(value, np.ndarray) and not value.ndim
    if single or isinstance(value, (str, bytes, Mapping, set, frozenset)) or not isinstance(value, Iterable):
        raise InputError("is not a list of texts", option=name, value=value)
    return [text(name, item) for item in value]


def flag(name: str, value: Any) -> bool:
    """Return True or False."""
    return check_flag(name, scalar(value))


def whole(name: str, value: Any) -> int:
    """Return a whole number."""
    value = scalar(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise InputError("is not a whole number", option=name, value=value)


def number(name: str, value: Any) -> float:
    """Return a number that is not NaN."""
    value = scalar(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value:
        return value
    raise InputError("is not a number", option=name, value=value)


def function(name: str, value: Any) -> Any:
    """Return a callable."""
    if callable(value):
        return value
    raise InputError("is not a function", option=name, value=value)
