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
            if any(p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in inspect.signature(function).parameters.values()):
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


@pytest.mark.parametrize(("task", "method"), CALLS, ids=[f"{task}-{method}" for task, method in CALLS])
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


# Each option that takes numbers, flags or lists: a value of Python, one of NumPy, and the options that it needs.
PAIRS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "max_tokens": (16, np.int64(16), {}),
    "max_batch_tokens": (9, np.uint16(9), {}),
    "truncate": (False, np.bool_(False), {}),
    "special_tokens": (True, np.bool_(True), {}),
    "stride": (1, np.int8(1), {}),
    "dim": (8, np.int64(8), {}),
    "normalize": (False, np.bool_(False), {}),
    "top_k": (2, np.int32(2), {}),
    "targets": (["cat", 7], np.array(["cat", 7], object), {}),
    "max_answer_tokens": (2, np.int64(2), {}),
    "handle_impossible_answer": (True, np.bool_(True), {}),
    "prompt_lookup": (True, np.bool_(True), {}),
    "split_sentences": (True, np.bool_(True), {}),
    "num_return_sequences": (2, np.int64(2), {"do_sample": True, "seed": 1}),
    "max_new_tokens": (3, np.int64(3), {}),
    "min_new_tokens": (2, np.uint8(2), {"eos_token_id": 5}),
    "max_length": (6, np.int64(6), {"max_new_tokens": None}),
    "min_length": (3, np.int64(3), {"eos_token_id": 5}),
    "num_beams": (2, np.int64(2), {}),
    "length_penalty": (0.5, np.float32(0.5), {"num_beams": 2}),
    "early_stopping": (True, np.bool_(True), {"num_beams": 2}),
    "do_sample": (True, np.bool_(True), {"seed": 1}),
    "temperature": (0.5, np.float16(0.5), {"do_sample": True, "seed": 1}),
    "top_p": (0.5, np.float64(0.5), {"do_sample": True, "seed": 1}),
    "min_p": (0.25, np.float32(0.25), {"do_sample": True, "seed": 1}),
    "typical_p": (0.5, np.float32(0.5), {"do_sample": True, "seed": 1}),
    "seed": (3, np.uint64(3), {"do_sample": True}),
    "repetition_penalty": (1.5, np.float32(1.5), {}),
    "no_repeat_ngram_size": (2, np.int64(2), {}),
    "bad_words_ids": ([[5], [6, 7]], [np.array([5]), np.array([6, 7])], {}),
    "forced_bos_token_id": (7, np.int64(7), {}),
    "forced_eos_token_id": ([7], np.array([7]), {}),
    "suppress_tokens": ([5, 6], np.array([5, 6]), {}),
    "begin_suppress_tokens": (5, np.array(5), {}),
    "eos_token_id": ([5, 6], np.array([5, 6]), {}),
}
# Options whose values are texts, functions or objects of edgebert.
OTHERS = {
    "prompt", "prompt_text", "long_texts", "aggregation", "encoding_errors", "progress", "pairs", "prefix", "stop",
    "source_language", "target_language", "target_prefix", "prefix_allowed_tokens_fn",
}  # fmt: skip


def test_every_option_stands_in_a_table() -> None:
    assert sorted(public_methods()) == sorted(CALLS)
    names = {name for task, method in CALLS for name in options_of(task, method)}
    assert names - OTHERS <= PAIRS.keys(), "give a pair of values for a new option, or put it among OTHERS"
    assert not PAIRS.keys() - names


def comparable(result: Any) -> Any:
    """Return the result of a call with arrays as lists."""
    if isinstance(result, (list, tuple)):
        return [comparable(part) for part in result]
    if isinstance(result, np.ndarray):
        return result.tolist()
    if hasattr(result, "vectors"):
        return comparable([result.vectors, result.token_counts, result.truncated])
    return repr(result)


@pytest.mark.parametrize(("task", "method"), CALLS, ids=[f"{task}-{method}" for task, method in CALLS])
def test_values_of_numpy_do_what_those_of_python_do(engine: Callable[[str], Any], task: str, method: str) -> None:
    names = options_of(task, method)
    for name in names:
        if name not in PAIRS:
            continue
        plain, numpy, needed = PAIRS[name]
        needed = {key: value for key, value in needed.items() if key in names}
        outcomes = []
        for value in (plain, numpy):
            try:
                outcomes.append(comparable(call(engine(task), task, method, **needed, **{name: value})))
            except EdgebertError as error:
                outcomes.append(error.message)
        assert outcomes[0] == outcomes[1], name


def test_masked_token_ids_are_refused(engine: Callable[[str], Any]) -> None:
    ids = np.ma.array([5, 6, 7], mask=[False, True, False])
    with pytest.raises(EdgebertError, match="text 0 is an array with masked elements; give its compressed"):
        engine("embed").embed([ids])
    expected = engine("embed").embed([[5, 7]])
    np.testing.assert_array_equal(engine("embed").embed([ids.compressed()]), expected)
    np.testing.assert_array_equal(engine("embed").embed([np.ma.array([5, 7])]), expected)


def test_a_question_without_room_is_told_the_least(engine: Callable[[str], Any]) -> None:
    pattern = r"which leaves 7 of 16 for the context of \d+; the least is 8; shorten the question"
    with pytest.raises(EdgebertError, match=pattern):
        engine("answer").answer("the cat sat on the mat", "the cat sat on the mat " * 9, max_tokens=16)
