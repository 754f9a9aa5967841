"""An ELMo that was saved opens again, and what does not fit is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from edgebert.checkpoints import open_checkpoint
from edgebert.models.elmo.model import Elmo, ElmoConfig
from edgebert.training import save_checkpoint
from edgebert_runtime.errors import CheckpointError, InputError
from tests.checkpoints.broken import message
from tests.models.tiny_seq2seq import words
from tests.support.tiny import tiny_model, write_checkpoint

CONFIG = ElmoConfig(vocab_size=29, hidden_size=20, num_hidden_layers=2, max_tokens=33)
ARCHITECTURE = {"architectures": ["ElmoModel"]}


def save(folder: Path, model: Any, **options: Any) -> Path:
    return save_checkpoint(
        folder, model, words(29), **{"model_type": "elmo", "task": "embed", "config": ARCHITECTURE, **options}
    )


def test_a_saved_model_opens_again(tmp_path: Path) -> None:
    model = tiny_model(CONFIG)
    actual = open_checkpoint(save(tmp_path / "new", model))
    assert (actual.task, actual.family, actual.model_type, actual.config) == ("embed", "elmo", "elmo", CONFIG)
    assert (actual.max_tokens, actual.default_tokens, actual.pooling, actual.head) == (33, 33, None, None)
    assert (actual.ignored, actual.notes) == ((), ())
    reopened = actual.load_model()
    assert isinstance(reopened, Elmo)
    assert not reopened.training
    assert reopened.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in reopened.state_dict().items())


def test_files_are_what_a_reader_expects(tmp_path: Path) -> None:
    folder = save(tmp_path / "new", tiny_model(CONFIG))
    assert json.loads((folder / "config.json").read_text()) == {
        "model_type": "elmo",
        "vocab_size": 29,
        "hidden_size": 20,
        "num_hidden_layers": 2,
        "max_tokens": 33,
        "dtype": "float32",
        **ARCHITECTURE,
    }
    names = load_file(folder / "model.safetensors").keys()
    assert {name.partition(".")[0] for name in names} == {"token", "layers", "mix"}
    assert {name for name in names if name.startswith("layers.1.backwards")} == {
        f"layers.1.backwards.{leaf}" for leaf in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    }


def test_half_precision_and_prefixes(tmp_path: Path) -> None:
    model = tiny_model(CONFIG)
    folder = save(tmp_path / "half", model, half=True)
    file = folder / "model.safetensors"
    save_file({f"module.elmo.{name}": tensor for name, tensor in load_file(file).items()}, file)
    actual = open_checkpoint(folder).load_model().state_dict()
    assert all(torch.equal(actual[name], tensor.half().float()) for name, tensor in model.state_dict().items())


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "odd": ({"hidden_size": 35}, "config.json: hidden_size=35 is not even, and each direction has one half of it"),
    "layers": ({"num_hidden_layers": "two"}, "num_hidden_layers='two' is not a whole number from 1 to 1000"),
    "tokens": ({"max_tokens": 0}, "max_tokens=0 is not a whole number from 1 to 16777216"),
    "misspelt": ({"max_token": 3}, "unknown key 'max_token', did you mean 'max_tokens'? Correct or remove it"),
    "padding": ({"pad_token_id": 900}, "pad_token_id=900 is not an id below vocab_size=83"),
    "code": ({"auto_map": {"AutoModel": "modeling.Elmo"}}, "auto_map asks for program code from the folder"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_values_that_make_no_sense_are_named(tmp_path: Path, case: str) -> None:
    changed, expected = FAULTS[case]
    text = message(write_checkpoint(tmp_path / "elmo", model_type="elmo", settings=changed))
    assert expected in text


@pytest.mark.parametrize("key", ["vocab_size", "hidden_size", "num_hidden_layers", "max_tokens"])
def test_a_missing_size_is_named_and_nothing_else(tmp_path: Path, key: str) -> None:
    folder = write_checkpoint(tmp_path, model_type="elmo")
    config = json.loads((folder / "config.json").read_text())
    del config[key]
    (folder / "config.json").write_text(json.dumps(config))
    assert message(folder) == f"{folder}: config.json lacks {key}; use the config.json that came with the weights"


def test_tensors_that_do_not_fit_are_named(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, model_type="elmo")
    tensors = load_file(folder / "model.safetensors")
    del tensors["layers.1.forwards.bias_hh_l0"]
    tensors["mix.weight"] = torch.zeros(2)
    tensors["char_embedding.weight"] = torch.zeros(3)
    save_file(tensors, folder / "model.safetensors")
    text = message(folder)
    assert "tensors missing: layers.1.forwards.bias_hh_l0; " in text
    assert "tensors unexpected: char_embedding.weight; " in text
    assert "mix.weight has shape [2], should have [3]" in text


@pytest.mark.parametrize("task", ["classify", "fill-mask", "generate"])
def test_there_are_no_heads(tmp_path: Path, task: str) -> None:
    folder = write_checkpoint(tmp_path, model_type="elmo")
    expected = f"an elmo has no head for {task}; the tensors fit embed; give task"
    with pytest.raises(CheckpointError, match=expected):
        open_checkpoint(folder, task=task)


def test_only_a_whole_checkpoint_takes_a_place(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is there already and is no checkpoint"):
        save(tmp_path, tiny_model(CONFIG))
    folder = save(tmp_path / "new", tiny_model(CONFIG))
    before = (folder / "model.safetensors").read_bytes()
    with pytest.raises(CheckpointError, match="config.json lacks vocab_size"):
        save(folder, tiny_model(CONFIG), files={"config.json": {"model_type": "elmo"}})
    assert [file.name for file in tmp_path.iterdir()] == ["new"]
    assert (folder / "model.safetensors").read_bytes() == before
