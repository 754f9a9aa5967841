"""The same weights in every layout that published checkpoints come in give the same model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from edgebert.checkpoints import Checkpoint, open_checkpoint
from edgebert.checkpoints.config.model_factory import Reference
from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert.checkpoints.weights.name_mapping import canonical, published_names, to_published
from edgebert.models.bert.model import Bert, BertConfig
from edgebert_runtime.errors import CheckpointError
from tests.models.tiny_bert import SIZES, randomized, save


def same(model: Reference, second: Reference) -> bool:
    """Say whether two models have the same weights, bit for bit."""
    ours, theirs = model.state_dict(), second.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def rewrite(folder: Path, name: Callable[[str], str], change: Callable[[Tensor], Tensor] = torch.clone) -> None:
    """Give the tensors of a folder other names and values."""
    file = folder / "model.safetensors"
    tensors = {name(key): change(tensor).contiguous() for key, tensor in load_file(file).items()}
    save_file(tensors, file)


def old_name(name: str) -> str:
    """Return the name that conversion from TensorFlow gave to a parameter of a layer norm."""
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


def shard(folder: Path) -> Checkpoint:
    save(transformers.BertModel.from_pretrained(folder), folder, max_shard_size="8KB")
    (folder / "model.safetensors").unlink()
    assert len(list(folder.glob("model-*-of-*.safetensors"))) > 2
    return open_checkpoint(folder)


NAMES: dict[str, Callable[[str], str]] = {
    "no prefix": lambda name: name,
    "bert.": lambda name: f"bert.{name}",
    "module.": lambda name: f"module.{name}",
    "module.bert.": lambda name: f"module.bert.{name}",
    **{
        prefix: lambda name, prefix=prefix: f"{prefix}{name}"  # type: ignore[misc]
        for prefix in (
            "_orig_mod.",
            "module._orig_mod.",
            "0.auto_model.",
            "base_model.model.",
            "model.",
            "student.bert.",
            "bert.bert.",
            "encoder.",
            "net.0.bert.",
        )
    },
    "wrapped layers": lambda name: f"_fsdp_wrapped_module.{name}".replace(".0.", ".0._checkpoint_wrapped_module."),
    "gamma and beta": old_name,
    "all of them": lambda name: f"module.bert.{old_name(name)}",
}


@pytest.fixture
def copy(reference: transformers.BertModel, tmp_path: Path) -> Path:
    return save(reference, tmp_path / "copy")


@pytest.mark.parametrize("names", NAMES)
def test_names(copy: Path, folder: Path, names: str) -> None:
    rewrite(copy, NAMES[names])
    assert same(open_checkpoint(copy).load_model(), open_checkpoint(folder).load_model())


@pytest.mark.parametrize("kind", ["BertForMaskedLM", "BertForSequenceClassification"])
def test_prefixes_before_a_head(tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str) -> None:
    headed = randomized(getattr(transformers, kind))
    plain = open_checkpoint(save(headed, tmp_path)).load_model()
    for prefix in ("_orig_mod.", "base_model.model.", "model."):
        rewrite(tmp_path, lambda name, prefix=prefix: f"{prefix}{name}")  # type: ignore[misc]
        with caplog.at_level("INFO", logger="edgebert"):
            assert same(open_checkpoint(tmp_path).load_model(), plain)
    assert "tensors are read without the prefix 'model.base_model.model.' that all names have" in caplog.text


def test_a_prefix_that_not_all_names_have(copy: Path) -> None:
    rewrite(copy, lambda name: f"student.{name}" if "encoder" in name else name)
    with pytest.raises(CheckpointError, match="tensors unexpected: student.encoder.layer.0"):
        open_checkpoint(copy)


def test_shards(copy: Path, folder: Path) -> None:
    assert same(shard(copy).load_model(), open_checkpoint(folder).load_model())


def test_buffers_of_older_versions_are_dropped(copy: Path, folder: Path) -> None:
    file = copy / "model.safetensors"
    save_file({**load_file(file), "embeddings.position_ids": torch.arange(19)[None]}, file)
    checkpoint = open_checkpoint(copy)
    plain = open_checkpoint(folder)
    assert (checkpoint.ignored, checkpoint.notes) == (plain.ignored, plain.notes)
    assert same(checkpoint.load_model(), open_checkpoint(folder).load_model())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(copy: Path, folder: Path, dtype: torch.dtype) -> None:
    rewrite(copy, str, lambda tensor: tensor.to(dtype))
    expected = open_checkpoint(folder).load_model().to(dtype).float()
    assert same(open_checkpoint(copy).load_model(), expected)


HEADS = {
    "BertForMaskedLM": "cls.predictions",
    "BertForPreTraining": "cls.predictions",
    "BertForSequenceClassification": "classifier",
    "BertForTokenClassification": "classifier",
    "BertForQuestionAnswering": "qa_outputs",
    "BertForMultipleChoice": "classifier",
    "BertForNextSentencePrediction": "cls.seq_relationship",
}


@pytest.mark.parametrize("kind", HEADS)
def test_encoder_below_a_head(tmp_path: Path, kind: str) -> None:
    headed = randomized(getattr(transformers, kind))
    checkpoint = open_checkpoint(save(headed, tmp_path / "headed"), task="embed")
    assert checkpoint.head is None
    assert any(HEADS[kind] in name for name in checkpoint.ignored)
    alone = open_checkpoint(save(headed.bert, tmp_path / "alone"))
    assert checkpoint.notes == alone.notes
    assert same(checkpoint.load_model(), alone.load_model())


def test_names_run_backwards(copy: Path, folder: Path) -> None:
    model = open_checkpoint(folder).load_model()
    published = to_published(model.state_dict())
    stored = load_file(folder / "model.safetensors")
    assert published.keys() == {name for name in stored if not name.startswith("pooler.")}
    save_file({name: tensor.contiguous() for name, tensor in published.items()}, copy / "model.safetensors")
    assert same(open_checkpoint(copy).load_model(), model)


CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {"position_offset": 2},
    "distilbert": {"type_vocab_size": 0},
    "electra": {"embedding_size": 7},
    "albert": {"embedding_size": 7, "shared_layers": True},
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_row_of_the_table_is_in_use(kind: str) -> None:
    model = Bert(BertConfig(**{**SIZES, **CONFIGS[kind]}))
    names = [name for ours in model.state_dict() for name in published_names(ours, kind)]
    assert len(set(names)) == len(names)
    prefix = f"module.{MODEL_TYPES[kind].prefix}"
    assert [canonical(prefix + old_name(name), kind) for name in names] == names
    used = {published_names(ours, kind)[0].rpartition(".")[0] for ours in model.state_dict()}
    layers = range(len(model.layers))
    assert used == {row[0].format(layer) for row in MODEL_TYPES[kind].tensors.values() for layer in layers}


POOLINGS = {
    "mean": {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False},
    "cls": {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True},
    "max": {"embedding_dimension": 24, "pooling_mode": "max", "include_prompt": True},
    "last": {"embedding_dimension": 24, "pooling_mode": ["lasttoken"]},
}


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_sentence_modules(copy: Path, pooling: str, normalize: bool) -> None:
    kinds = ["Transformer", "Pooling", "Normalize"][: 3 if normalize else 2]
    (copy / "1_Pooling").mkdir()
    (copy / "1_Pooling" / "config.json").write_text(json.dumps(POOLINGS[pooling]))
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (copy / "modules.json").write_text(json.dumps(modules))
    (copy / "sentence_bert_config.json").write_text('{"max_seq_length": 11, "do_lower_case": false}')
    (copy / "config_sentence_transformers.json").write_text(
        '{"prompts": {"query": "q: "}, "default_prompt_name": null}'
    )
    checkpoint = open_checkpoint(copy)
    assert (checkpoint.pooling, checkpoint.normalize) == (pooling, normalize)
    assert (checkpoint.max_tokens, checkpoint.default_tokens) == (19, 11)


def test_folder_that_does_not_say_how_to_pool(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    assert (checkpoint.pooling, checkpoint.normalize) == (None, None)
    assert (checkpoint.max_tokens, checkpoint.default_tokens) == (19, 19)


@pytest.mark.parametrize(("query", "expected"), [(7, 7), (19, 19), (1000, 19), (10**30, 19), (1e30, 19)])
def test_length_of_the_tokenizer(copy: Path, query: float, expected: int) -> None:
    (copy / "tokenizer_config.json").write_text(json.dumps({"model_max_length": query, "do_lower_case": True}))
    checkpoint = open_checkpoint(copy)
    assert checkpoint.default_tokens == expected
    assert checkpoint.notes == ()
