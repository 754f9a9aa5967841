"""Engines load, close, and refuse to be used afterwards."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgebert_runtime
from edgebert_runtime import ENGINES, Embedder, Generator, Tagger, Translator
from edgebert_runtime.errors import BundleError, EdgebertError, InputError
from edgebert_runtime.session import batch_executor

CALLS: dict[str, Callable[[Any], Any]] = {
    "embed": lambda engine: engine.embed(["a"]),
    "classify": lambda engine: engine.stream(["a"]),
    "next-sentence": lambda engine: engine.classify(["a"], ["b"]),
    "rerank": lambda engine: engine.score([("a", "b")]),
    "multiple-choice": lambda engine: engine.choose("a", ["b", "c"]),
    "tag": lambda engine: engine.tag([]),
    "answer": lambda engine: engine.answer("a", "b"),
    "fill-mask": lambda engine: engine.fill(["[MASK]"]),
    "generate": lambda engine: engine.generate(["a"], max_new_tokens=1),
    "translate": lambda engine: engine.score([]),
}


@pytest.mark.parametrize("task", CALLS)
def test_a_closed_engine_refuses_in_one_line(task_bundle: Callable[[str], Path], task: str) -> None:
    with ENGINES[task].load(task_bundle(task), threads=1) as engine:
        CALLS[task](engine)
    name = type(engine).__name__
    with pytest.raises(EdgebertError, match=f"^this {name} is closed; load the bundle again$"):
        CALLS[task](engine)
    engine.close()
    again = pickle.loads(pickle.dumps(engine))
    CALLS[task](again)


def test_streams_end_with_an_error_when_the_engine_is_closed(
    fp32_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_executor, "TOKENS_BEFORE_SECOND", 1)
    for threads in (1, 2):
        engine = Embedder.load(fp32_bundle, threads=threads)
        vectors = engine.stream(["the cat"] * 4000)
        next(vectors)
        engine.close()
        with pytest.raises(EdgebertError, match="closed while it ran; load the bundle again"):
            list(vectors)


def test_every_class_loads_its_own_bundles_only(task_bundle: Callable[[str], Path]) -> None:
    folder = task_bundle("embed")
    for engine_class in set(ENGINES.values()) - {Embedder}:
        with pytest.raises(BundleError, match="is a bundle of task 'embed', not of "):
            engine_class.load(folder)
    assert type(edgebert_runtime.load(task_bundle("tag"))) is type(Tagger.load(task_bundle("tag")))
    np.testing.assert_array_equal(
        Embedder.load(folder, device="auto", threads=1, verify="size").embed(["the cat"]),
        Embedder.load(str(folder), threads=1).embed(["the cat"]),
    )


def test_bundles_do_not_decide_the_type_of_results(task_bundle: Callable[[str], Path]) -> None:
    for task, engine_class in (("generate", Generator), ("translate", Translator)):
        engine: Any = engine_class.load(task_bundle(task))
        plain = CALLS_OF[task](engine, num_beams=3)
        engine.decoding |= {"num_beams": 3, "num_return_sequences": 3}
        assert CALLS_OF[task](engine) == plain
        assert [results[0] for results in CALLS_OF[task](engine, num_return_sequences=3)] == plain


CALLS_OF: dict[str, Callable[..., Any]] = {
    "generate": lambda engine, **options: engine.generate(["a", "the cat"], max_new_tokens=3, **options),
    "translate": lambda engine, **options: engine.translate(["a", "the cat"], max_new_tokens=3, **options),
}


@pytest.mark.parametrize("kind", [Embedder, Generator])
def test_a_folder_is_no_bundle(kind: type[Any], fp32_bundle: Path) -> None:
    for folder in (fp32_bundle, str(fp32_bundle)):
        with pytest.raises(InputError, match=rf"{kind.__name__}\(.*takes an opened Bundle; write {kind.__name__}.load"):
            kind(folder)
