"""Folders of other formats are recognized, and the way to a checkpoint is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from edgebert.checkpoints.weights.other_formats import FORMATS
from tests.checkpoints.broken import message

# A file, the format that it is, and a part of the remedy.
FILES: dict[str, tuple[str, str]] = {
    "model-q4_k_m.gguf": ("a GGUF file of llama.cpp", "gguf_file='model-q4_k_m.gguf'"),
    "tf_model.h5": ("TensorFlow weights of transformers", "from_tf=True"),
    "tf_model-00001-of-00002.h5": ("TensorFlow weights of transformers", "from_tf=True"),
    "flax_model.msgpack": ("Flax weights", "from_flax=True"),
    "bert_model.ckpt.index": ("a TensorFlow checkpoint", "convert_bert_original_tf_checkpoint_to_pytorch"),
    "bert_model.ckpt.data-00000-of-00001": ("a TensorFlow checkpoint", "vocab.txt"),
    "translator.keras": ("a Keras model", "docs/own_transformer.md"),
    "weights.h5": ("a Keras model", "state dict"),
    "saved_model.pb": ("a graph of TensorFlow", "export the PyTorch checkpoint"),
    "model.tflite": ("a graph of TensorFlow", "export the PyTorch checkpoint"),
    "model.onnx": ("an ONNX graph", "edgebert makes its own graph"),
    "openvino_model.xml": ("a graph of OpenVINO", "edgebert makes its own graph"),
    "Bert.mlpackage": ("a Core ML model", "edgebert makes its own graph"),
    "bert.engine": ("an engine of TensorRT", "export the PyTorch checkpoint"),
    "stt_en.nemo": ("an archive of NVIDIA NeMo", "scripts of NeMo"),
    "consolidated.00.pth": ("an original checkpoint of Meta", "no model of its family"),
    "shared_vocabulary.json": ("a part of a model of CTranslate2", "export the PyTorch checkpoint"),
    "model.npz": ("a model of Marian", "convert_marian_to_pytorch"),
    "rust_model.ot": ("a file of weights for rust-bert", "export the PyTorch checkpoint"),
    "model.fp16.safetensors": ("a safetensors file under another name", "rename it to model.safetensors"),
    "epoch=3-step=900.ckpt": ("a checkpoint of PyTorch Lightning", "['state_dict']"),
    "transformer.pt": (
        "a pickle of PyTorch",
        "docs/own_transformer.md says how",
    ),
    "checkpoint-500": ("a folder inside", "/checkpoint-500"),
}


@pytest.mark.parametrize("name", FILES)
def test_formats(tmp_path: Path, name: str) -> None:
    """With a config.json and without one, as a folder and where the file itself is given."""
    kind, route = FILES[name]
    (tmp_path / name).write_bytes(b"\x80\x02nothing")
    (tmp_path / "training_args.bin").touch()
    texts = [message(tmp_path), message(tmp_path / name)]
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    texts.append(message(tmp_path))
    for text in texts:
        assert f"{name} is {kind}" in text
        assert route in text
        assert "download" not in text


def test_every_format_has_an_example() -> None:
    assert {kind for _, kind, _ in FORMATS} == {
        next(kind for _, kind, _ in FORMATS if kind.startswith(said)) for said, _ in FILES.values()
    }


def test_a_folder_of_nothing_known(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    text = message(tmp_path)
    assert "config.json is missing; download it with the checkpoint, or write it for a model of your own" in text
    assert "model.safetensors is missing (found notes.txt); download it, or save the model with save_pretrained" in text


ADAPTERS: dict[str, tuple[dict[str, Any], str]] = {
    "for labels": (
        {"peft_type": "LORA", "task_type": "SEQ_CLS", "base_model_name_or_path": "bert-base-uncased"},
        "this is an adapter to bert-base-uncased, and not a whole model; merge it first: python -c "
        '"from peft import PeftModel; from transformers import AutoTokenizer, AutoModelForSequenceClassification; '
        "PeftModel.from_pretrained(AutoModelForSequenceClassification.from_pretrained('bert-base-uncased'), ",
    ),
    "that says little": ({"peft_type": "LORA"}, "AutoModel.from_pretrained('BASE')"),
    "of prompts": ({"peft_type": "PROMPT_TUNING"}, "an adapter of the kind 'PROMPT_TUNING' cannot be merged"),
    "of the older library": ({"config": {"reduction_factor": 16}}, "an adapter of the library adapters"),
}


@pytest.mark.parametrize("case", ADAPTERS)
@pytest.mark.parametrize("beside", [True, False])
def test_adapters(folder: Path, case: str, beside: bool) -> None:
    """Alone, and beside the weights, where transformers would add it."""
    data, expected = ADAPTERS[case]
    (folder / "adapter_config.json").write_text(json.dumps(data))
    if not beside:
        (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    text = message(folder)
    assert f"adapter_config.json: {expected}" in text or expected in text
    assert ("merge_and_unload().save_pretrained('merged')" in text) == (data.get("peft_type") == "LORA")


def test_an_adapter_that_is_not_merged(folder: Path) -> None:
    tensors = {
        name.replace(".query.", ".query.base_layer."): tensor
        for name, tensor in load_file(folder / "model.safetensors").items()
    }
    tensors["encoder.layer.0.attention.self.query.lora_A.default.weight"] = torch.zeros(2, 8)
    save_file(tensors, folder / "model.safetensors")
    assert "3 tensors are of an adapter that is not merged, such as encoder.layer.0.attention" in message(folder)
