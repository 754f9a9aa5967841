"""What was saved opens again, here and in transformers, and computes what was trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer
from torch import Tensor

from edgebert.checkpoints import Checkpoint, open_checkpoint
from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert.models.gpt2.heads import Gpt2LanguageModel
from edgebert.training import save_checkpoint
from edgebert_runtime.errors import CheckpointError, InputError
from tests.support.tiny import CLASSES, ENDINGS, write_checkpoint

KINDS = [
    *[(model_type, "embed") for model_type in CLASSES if MODEL_TYPES[model_type].family == "bert"],
    *[("bert", task) for task in ("classify", "next-sentence", "multiple-choice", "answer", "fill-mask")],
    ("roberta", "fill-mask"),
    ("gpt2", "generate"),
    ("gpt2", "classify"),
]
IDS = torch.tensor([[5, 9, 13, 4, 7, 6], [8, 3, 17, 20, 11, 10]])


def describe(model_type: str, task: str) -> dict[str, Any]:
    return {"architectures": [f"{CLASSES[model_type]}{ENDINGS[task]}"]}


def logits(model: object) -> Tensor:
    assert isinstance(model, Gpt2LanguageModel)
    past = model.gpt2.empty_past(len(IDS))
    with torch.no_grad():
        actual: Tensor = model(IDS, torch.ones_like(IDS), torch.arange(IDS.numel()), past)[0]
    return actual


@pytest.fixture
def gpt(tmp_path: Path) -> Checkpoint:
    return open_checkpoint(write_checkpoint(tmp_path / "given", task="generate", model_type="gpt2"))


def save(folder: Path, gpt: Checkpoint, **options: Any) -> Path:
    options = {"config": describe("gpt2", "generate") | {"eos_token_id": 1}, **options}
    tokenizer = options.pop("tokenizer", Tokenizer.from_str(gpt.tokenizer_json))
    return save_checkpoint(folder, gpt.load_model(), tokenizer, model_type="gpt2", task="generate", **options)


@pytest.mark.parametrize(("model_type", "task"), KINDS)
def test_weights_and_sizes_come_back(model_type: str, task: str, tmp_path: Path) -> None:
    inputs = open_checkpoint(write_checkpoint(tmp_path / "given", task=task, model_type=model_type), task=task)
    model = inputs.load_model()
    folder = save_checkpoint(
        tmp_path / "new" / "saved",
        model,
        Tokenizer.from_str(inputs.tokenizer_json),
        model_type=model_type,
        task=task,
        config=describe(model_type, task),
    )
    actual = open_checkpoint(folder)
    assert (actual.model_type, actual.task, actual.config) == (model_type, task, inputs.config)
    state = actual.load_model().state_dict()
    assert state.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(state[name], tensor), name
    assert [file.name for file in folder.parent.iterdir()] == ["saved"]


def test_logits_are_those_of_the_model_and_of_transformers(gpt: Checkpoint, tmp_path: Path) -> None:
    folder = save(tmp_path / "saved", gpt)
    expected = logits(gpt.load_model())
    assert torch.equal(logits(open_checkpoint(folder).load_model()), expected)
    reference = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    with torch.no_grad():
        theirs = reference(IDS).logits.flatten(0, 1)
    torch.testing.assert_close(theirs, expected, rtol=1e-4, atol=1e-4)


def test_float16_costs_half_the_bytes_and_little_else(gpt: Checkpoint, tmp_path: Path) -> None:
    whole, half = save(tmp_path / "whole", gpt), save(tmp_path / "half", gpt, half=True)
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (whole, half)]
    assert 1.7 < sizes[0] / sizes[1] < 2
    assert json.loads((half / "config.json").read_text())["dtype"] == "float16"
    exact = gpt.load_model().state_dict()
    for name, tensor in open_checkpoint(half).load_model().state_dict().items():
        assert torch.equal(tensor, exact[name].half().float()), name
    expected, actual = logits(gpt.load_model()), logits(open_checkpoint(half).load_model())
    assert 0 < float((actual - expected).abs().max()) < 5e-3 * float(expected.abs().max())


def test_further_files_are_written(gpt: Checkpoint, tmp_path: Path) -> None:
    generation = {"do_sample": True, "temperature": 0.7}
    folder = save(tmp_path / "saved", gpt, files={"generation_config.json": generation, "README.md": "Trained.\n"})
    assert (folder / "README.md").read_text() == "Trained.\n"
    actual = open_checkpoint(folder)
    assert actual.decoding["temperature"] == 0.7
    assert actual.decoding["eos_token_id"] == 1
    assert actual.tokenizer_json == gpt.tokenizer_json


def test_only_a_checkpoint_that_opens_replaces_another(gpt: Checkpoint, tmp_path: Path) -> None:
    folder = save(tmp_path / "saved", gpt, files={"README.md": "old"})
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    larger = Tokenizer.from_str(gpt.tokenizer_json)
    larger.add_tokens([f"more{number}" for number in range(50)])
    with pytest.raises(CheckpointError, match="saved"):
        save(folder, gpt, tokenizer=larger)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    save(folder, gpt, half=True)
    assert {file.name for file in folder.iterdir()} == {*before} - {"README.md"}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["given", "saved"]


def test_what_is_no_checkpoint_stays(gpt: Checkpoint, tmp_path: Path) -> None:
    folder = tmp_path / "letters"
    folder.mkdir()
    (folder / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match=r"letters is there already and is no checkpoint; give another folder$"):
        save(folder, gpt)
    assert [file.name for file in folder.iterdir()] == ["letter.txt"]
