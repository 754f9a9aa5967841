"""Texts are cut on the side that the checkpoint names, in every task that cuts them, as transformers cuts them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertTokenizerFast

from edgebert.checkpoints import open_checkpoint
from tests.support.sentence_models import assert_equal, engine_of, put

LONG = "the cat sat on a mat and dog ran in rain , sun moon farm ship mail school " * 2
SHORT = "a ship in the sun"
PAIRS = [(LONG, SHORT), (SHORT, LONG), (LONG, LONG + "farm"), (SHORT, SHORT)]


@pytest.fixture(params=["left", "right"])
def side(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(task_checkpoint: Callable[[str], Path], tmp_path: Path, side: str) -> Callable[[str], Path]:
    """Return a function from a task to a checkpoint that cuts texts at 20 tokens on one side."""

    def make(task: str) -> Path:
        copy = Path(shutil.copytree(task_checkpoint(task), tmp_path / task))
        put(copy, "tokenizer_config.json", {"do_lower_case": True, "model_max_length": 20, "truncation_side": side})
        return copy

    return make


def logits(folder: Path, task: str, *texts: Any) -> Any:
    """Return what our PyTorch model gives for the tokens of transformers."""
    tokenizer = BertTokenizerFast.from_pretrained(folder)
    inputs = tokenizer(*texts, truncation=True, return_tensors="pt")
    with torch.no_grad():
        model = open_checkpoint(folder, task=task).load_model()
        return model(inputs.input_ids, inputs.attention_mask, inputs.token_type_ids)[0].numpy()


@pytest.mark.parametrize("task", ["classify", "next-sentence"])
def test_texts_and_pairs(folder: Callable[[str], Path], task: str) -> None:
    checkpoint = folder(task)
    engine = engine_of(checkpoint, task)
    for first, second in PAIRS:
        calls = [(first,), (first, second)] if task == "classify" else [(first, second)]
        for texts in calls:
            (result,) = engine.classify(*([text] for text in texts))
            numbers = np.exp(logits(checkpoint, task, *texts))
            assert_equal(result.scores, numbers / numbers.sum())


def test_passages(folder: Callable[[str], Path]) -> None:
    checkpoint = folder("rerank")
    engine = engine_of(checkpoint, "rerank")
    expected = [1 / (1 + np.exp(-logits(checkpoint, "rerank", *pair)[0])) for pair in PAIRS]
    assert_equal(engine.score(PAIRS), expected)
    scores = {result.index: result.score for result in engine.rerank(LONG, [SHORT, LONG + "farm"])}
    assert_equal([scores[1]], expected[2:3])


def test_choices(folder: Callable[[str], Path]) -> None:
    checkpoint = folder("multiple-choice")
    choices = engine_of(checkpoint, "multiple-choice").choose(LONG, [SHORT, LONG])
    numbers = np.exp([logits(checkpoint, "multiple-choice", LONG, text)[0] for text in (SHORT, LONG)])
    scores = {choice.index: choice.score for choice in choices}
    assert_equal([scores[0], scores[1]], numbers / numbers.sum())
