"""A call goes through the files of the runtime in order, and seldom back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgebert_runtime import Embedder, Generator
from tests.support.walks import Walk, walk

# The most returns to a file that was left before.
EMBED, GENERATE = 8, 60


def test_a_text_is_embedded_with_few_returns(fp32_bundle: Path) -> None:
    engine = Embedder.load(fp32_bundle)
    engine.embed(["A text."])
    assert walk(lambda: engine.embed(["A text."])).returns <= EMBED


def test_tokens_are_generated_with_few_returns(task_bundle: Callable[[str], Path]) -> None:
    engine = Generator.load(task_bundle("generate"))
    options: dict[str, Any] = {"max_new_tokens": 3, "eos_token_id": None}
    (generation,) = engine.generate(["A text."], **options)
    assert len(generation.tokens) == 3
    assert walk(lambda: engine.generate(["A text."], **options)).returns <= GENERATE


def test_returns_are_counted() -> None:
    assert walk(lambda: None) == Walk(0, 0, 0)
