"""Every option of every engine takes what its type says, NumPy's kind too, and refuses all else with our error."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgebert_runtime
from edgebert_runtime import ENGINES
from edgebert_runtime.errors import EdgebertError

# A call of each method: positional arguments, and options without which it would do nothing.
CALLS: dict[tuple[str, str], tuple[tuple[Any, ...], dict[str, Any]]] = {
    ("embed", "embed"): ((["the cat"],), {}),
    ("embed", "embed_query"): ((["the cat"],), {}),
    ("embed", "embed_documents"): ((["the cat"],), {}),
    ("embed", "embed_detailed"): ((["the cat"],), {}),
    ("embed", "stream"): ((["the cat"],), {}),
    ("classify", "classify"): ((["the cat"],), {}),
    ("classify", "stream"): ((["the cat"],), {}),
    ("rerank", "rerank"): (("the cat", ["a", "b"]), {}),
    ("rerank", "score"): (([("the cat", "a")],), {}),
    ("multiple-choice", "choose"): (("the cat", ["a", "b"]), {}),
    ("multiple-choice", "choose_many"): (([("the cat", ["a", "b"])],), {}),
    ("tag", "tag"): ((["the cat"],), {}),
    ("tag", "stream"): ((["the cat"],), {}),
    ("answer", "answer"): (("the cat", "the cat sat"), {}),
    ("answer", "answer_many"): (([("the cat", "the cat sat")],), {}),
    ("fill-mask", "fill"): ((["the [MASK]"],), {}),
    ("fill-mask", "stream"): ((["the [MASK]"],), {}),
    ("generate", "generate"): (([[5, 6]],), {"max_new_tokens": 2}),
    ("generate", "stream"): (([5, 6],), {"max_new_tokens": 2}),
    ("generate", "prepare"): (([5, 6],), {"max_new_tokens": 2}),
    ("generate", "score"): (([[5, 6]],), {}),
    ("generate", "prefix"): (([5, 6],), {}),
    ("translate", "translate"): (([[5, 6]],), {"max_new_tokens": 2}),
    ("translate", "stream"): (([5, 6],), {"max_new_tokens": 2}),
    ("translate", "score"): (([([5, 6], [7])],), {}),
}
# Values that at most a few options take.
WILD: tuple[Any, ...] = (
    7, -1, 0, 1.5, float("nan"), 10**30, "x", "", b"x", True, [], [1], [[1]], ["x"], [None], {}, {"a": 1}, set(),
    object(), 1j, range(2), np.int64(3), np.uint8(2), np.float32(0.5), np.float64("nan"), np.bool_(True),
    np.array(3), np.array([1, 2]), np.array([[1], [2]]), np.array([]), np.array("x"), np.array([0.5]), np.str_("x"),
    np.datetime64("2026-01-01"), np.ma.masked, np.ma.array([1, 2], mask=[True, False]),
)  # fmt: skip


@functools.cache
def options_of(task: str, method: str) -> tuple[str, ...]:
    """Return the names of the options of a method, from its signature."""
    function = getattr(ENGINES[task], method)
    names = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            text = str(parameter.annotation).removeprefix("Unpack[").removesuffix("]")
            names += typing.get_type_hints(getattr(inspect.getmodule(ENGINES[task]), text)).keys()
    return tuple(dict.fromkeys(names))


def public_methods() -> Iterator[tuple[str, str]]:
    """Yield each method of the engines that takes inputs and options."""
    for task, kind in ENGINES.items():
        for name, function in inspect.getmembers(kind, inspect.isfunction):
            if name.startswith("_") or task == "next-sentence":  # whose engine is that of classify
                continue
            if any(p.kind is p.KEYWORD_ONLY for p in inspect.signature(function).parameters.values()):
                yield task, name


@pytest.fixture(scope="module")
def engine(task_bundle: Callable[[str], Path]) -> Callable[[str], Any]:
    """Return a function from a task to its engine."""
    return functools.cache(lambda task: edgebert_runtime.load(task_bundle(task), threads=1))


def call(engine: Any, task: str, method: str, **options: Any) -> Any:
    """Call a method with one option more, and compute all of a stream."""
    inputs, needed = CALLS[task, method]
    result = getattr(engine, method)(*inputs, **{**needed, **options})
    return list(result) if inspect.isgenerator(result) or isinstance(result, Iterator) else result


@pytest.mark.parametrize(("task", "method"), CALLS, ids="-".join)
def test_any_value_of_any_option_is_taken_or_refused_by_name(
    engine: Callable[[str], Any], task: str, method: str
) -> None:
    names = options_of(task, method)
    assert len(names) >= 1
    messages: list[str] = []
    for name in names:
        for value in WILD:
            try:
                call(engine(task), task, method, **{name: value})
            except EdgebertError as error:
                messages.append(str(error))
            except Exception as error:
                pytest.fail(f"{method}({name}={value!r}): {type(error).__name__}: {error}")
    assert len(messages) > len(names)
    assert not [message for message in messages if "\n" in message]
