"""Checkpoints of GPT-2 in every layout that published ones come in, and what they say about generating."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from edgebert.checkpoints import Checkpoint, open_checkpoint
from edgebert.checkpoints.weights.name_mapping import to_published
from edgebert.models.gpt2.heads import Gpt2Classifier, Gpt2LanguageModel
from edgebert_runtime.generation.options import Options
from tests.checkpoints.broken import message
from tests.models.tiny_bert import save
from tests.models.tiny_gpt2 import randomized
from tests.support.tiny import write_checkpoint
from tests.support.tiny_tokenizers import GPT2

END = GPT2.index("<|endoftext|>")


def write(folder: Path, **options: Any) -> Path:
    return write_checkpoint(folder, **{"task": "generate", "model_type": "gpt2", **options})


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Path:
    """Give a folder other tensors."""
    file = folder / "model.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in change(load_file(file)).items()}, file)
    return folder


def configure(folder: Path, **changed: Any) -> Path:
    """Change keys of config.json; None removes one."""
    data = {**json.loads((folder / "config.json").read_text()), **changed}
    (folder / "config.json").write_text(json.dumps({key: value for key, value in data.items() if value is not None}))
    return folder


def bare(name: str) -> str:
    return name.removeprefix("transformer.")


def with_constants(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add what older versions saved along: the causal mask, and the number that stands for minus infinity."""
    added: dict[str, Tensor] = {}
    for layer in range(2):
        added[f"transformer.h.{layer}.attn.bias"] = torch.ones(1, 1, 64, 64, dtype=torch.bool).tril()
        added[f"transformer.h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    return {**tensors, **added}


LAYOUTS: dict[str, Callable[[dict[str, Tensor]], dict[str, Tensor]]] = {
    "no prefix": lambda tensors: {bare(name): value for name, value in tensors.items()},
    "module.": lambda tensors: {f"module.{bare(name)}": value for name, value in tensors.items()},
    "module.transformer.": lambda tensors: {f"module.{name}": value for name, value in tensors.items()},
    "constants": with_constants,
    "the table twice": lambda tensors: {**tensors, "lm_head.weight": tensors["transformer.wte.weight"].clone()},
    "whole": lambda tensors: {name: value.double() for name, value in tensors.items()},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(tmp_path: Path, layout: str) -> None:
    expected = open_checkpoint(write(tmp_path / "plain")).load_model().state_dict()
    checkpoint = open_checkpoint(rewrite(write(tmp_path / "other"), LAYOUTS[layout]))
    actual = checkpoint.load_model().state_dict()
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)
    assert (checkpoint.ignored, checkpoint.notes) == ((), ())


def test_shards_and_pickles(tmp_path: Path) -> None:
    theirs = randomized()
    expected = open_checkpoint(save(theirs, tmp_path / "one")).load_model().state_dict()
    sharded = open_checkpoint(save(theirs, tmp_path / "many", max_shard_size="8KB"))
    assert len(set(sharded.weights.files.values())) > 2
    tensors = load_file(tmp_path / "one" / "model.safetensors")
    torch.save(tensors, tmp_path / "one" / "pytorch_model.bin")
    (tmp_path / "one" / "model.safetensors").unlink()
    for checkpoint in (sharded, open_checkpoint(tmp_path / "one", allow_pickle=True)):
        actual = checkpoint.load_model().state_dict()
        assert all(torch.equal(actual[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("ending", "config"),
    [("LMHeadModel", {}), ("LMHeadModel", {"tie_word_embeddings": False}), ("ForSequenceClassification", {})],
)
def test_names_run_backwards(tmp_path: Path, ending: str, config: dict[str, Any]) -> None:
    checkpoint = open_checkpoint(save(randomized(ending, **config), tmp_path))
    published = to_published(checkpoint.load_model().state_dict(), "gpt2", checkpoint.head_names)
    stored = load_file(tmp_path / "model.safetensors")
    assert published.keys() == stored.keys()
    assert all(torch.equal(published[name], stored[name]) for name in stored)
    assert ("lm_head.weight" in stored) == bool(config)


TASKS: dict[str, tuple[str, str | None, str]] = {
    "language model": ("LMHeadModel", "GPT2LMHeadModel", "generate"),
    "body": ("Model", "GPT2Model", "generate"),
    "nothing said": ("LMHeadModel", None, "generate"),
    "nothing said of a body": ("Model", None, "generate"),
    "two heads": ("DoubleHeadsModel", "GPT2DoubleHeadsModel", "generate"),
    "classifier": ("ForSequenceClassification", "GPT2ForSequenceClassification", "classify"),
    "nothing said of a classifier": ("ForSequenceClassification", None, "classify"),
}


@pytest.mark.parametrize("case", TASKS)
def test_task_is_found(tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str) -> None:
    caplog.set_level(logging.INFO, "edgebert")
    ending, architecture, task = TASKS[case]
    configure(save(randomized(ending, num_labels=1 if "Double" in ending else 4), tmp_path), architectures=architecture)
    configure(tmp_path, architectures=[architecture] if architecture else None)
    checkpoint = open_checkpoint(tmp_path)
    assert (checkpoint.family, checkpoint.model_type, checkpoint.task) == ("gpt2", "gpt2", task)
    assert isinstance(checkpoint.load_model(), Gpt2LanguageModel if task == "generate" else Gpt2Classifier)
    assert (checkpoint.max_tokens, checkpoint.default_tokens) == (19, 19)
    heads = ["passed over heads that generate does not use: multiple_choice_head.summary"]
    assert [line for line in caplog.messages if "heads" in line] == (heads if case == "two heads" else [])
    assert checkpoint.notes == ()


def test_classifier_can_still_generate(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "edgebert")
    save(randomized("ForSequenceClassification", num_labels=4), tmp_path)
    checkpoint = open_checkpoint(tmp_path, task="generate")
    assert isinstance(checkpoint.load_model(), Gpt2LanguageModel)
    assert "passed over heads that generate does not use: score" in caplog.messages


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "embed": ({}, {"task": "embed"}, ("a gpt2 has no head for embed; the tensors fit generate; give task",)),
    "classify": ({}, {"task": "classify"}, ("tensors missing for classify: score.weight; the tensors fit generate",)),
    "tagger": ({"architectures": ["GPT2ForTokenClassification"]}, {}, ("a gpt2 has no head for tag",)),
    "untied": ({"tie_word_embeddings": False}, {}, ("tensors missing for generate: lm_head.weight",)),
    "cross-attention": ({"add_cross_attention": True}, {}, ("add_cross_attention=True is not supported, only False",)),
    "no width": ({"n_embd": None}, {}, ("config.json lacks n_embd; use the config.json",)),
    "heads": ({"n_head": 5}, {}, ("n_embd=32 is not divisible by n_head=5",)),
    "width": ({"n_inner": 71}, {}, ("h.0.mlp.c_fc.weight has shape [32, 72], should have [32, 71]",)),
    "usual width": (
        {"n_inner": None},
        {},
        ("h.0.mlp.c_proj.weight has shape [72, 32], should have [128, 32]",),
    ),
    "turned": ({"n_embd": 36, "n_head": 3}, {}, ("h.0.attn.c_attn.weight has shape [32, 96], should have [36, 108]",)),
    "activation": ({"activation_function": "geglu"}, {}, ("activation_function='geglu' is not one of gelu",)),
    "flag": ({"scale_attn_weights": 1}, {}, ("scale_attn_weights=1 is neither true nor false",)),
    "misspelt": ({"n_head": None, "n_heads": 4}, {}, ("unknown key 'n_heads', did you mean 'n_head'?",)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_named(tmp_path: Path, case: str) -> None:
    changed, options, expected = REFUSED[case]
    configure(write(tmp_path), **changed)
    said = message(tmp_path, **options)
    for part in expected:
        assert part in said


def test_an_untied_head_differs_from_the_table(tmp_path: Path) -> None:
    theirs = randomized(tie_word_embeddings=False)
    checkpoint = open_checkpoint(save(theirs, tmp_path))
    model = checkpoint.load_model()
    assert isinstance(model, Gpt2LanguageModel)
    assert model.head is not None
    assert torch.equal(model.head.weight, theirs.lm_head.weight)
    assert not torch.equal(model.head.weight, model.gpt2.token_embedding.weight)


def opened(folder: Path, **options: Any) -> Checkpoint:
    checkpoint = open_checkpoint(write(folder, **options))
    Options.read(checkpoint.decoding)
    return checkpoint


DECODING: dict[str, tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any]]] = {
    "config.json": ({}, None, {"eos_token_id": END, "bos_token_id": END}),
    "padding": ({"pad_token_id": 3}, None, {"eos_token_id": END, "bos_token_id": END, "pad_token_id": 3}),
    "no end": ({"eos_token_id": None, "bos_token_id": None}, None, {}),
    "older versions": (
        {"max_length": 20, "min_length": 0, "no_repeat_ngram_size": 2, "bad_words_ids": None, "top_k": 50},
        None,
        {"eos_token_id": END, "bos_token_id": END, "no_repeat_ngram_size": 2, "top_k": 50},
    ),
    "the other file": (
        {"no_repeat_ngram_size": 2},
        {"eos_token_id": [4, 5], "do_sample": True, "temperature": 0.7, "max_new_tokens": 9, "top_k": 0},
        {"eos_token_id": [4, 5], "bos_token_id": END, "do_sample": True, "temperature": 0.7, "max_new_tokens": 9},
    ),
    "tokens from config.json": ({}, {"transformers_version": "5"}, {"eos_token_id": END, "bos_token_id": END}),
    "another name": (
        {},
        {"stop_strings": ["\n"], "suppress_tokens": [], "num_beam_groups": 1, "use_cache": True},
        {"eos_token_id": END, "bos_token_id": END, "stop": ["\n"]},
    ),
}


@pytest.mark.parametrize("case", DECODING)
def test_decoding(tmp_path: Path, case: str) -> None:
    settings, generation, expected = DECODING[case]
    checkpoint = opened(tmp_path, settings=settings, generation=generation)
    assert checkpoint.decoding == expected
    assert [note for note in checkpoint.notes if "names no eos_token_id" not in note] == []


LEFT_OUT: dict[str, tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any], list[str]]] = {
    "the ids of another vocabulary": (
        {"eos_token_id": 50256, "bos_token_id": 50256},
        None,
        {},
        [f"config.json: left out {name}=50256: the model has ids from 0 to {END}" for name in ("eos", "bos")],
    ),
    "one of two": (
        {},
        {"eos_token_id": [7, 50256], "bos_token_id": 1, "pad_token_id": -1},
        {"eos_token_id": [7], "bos_token_id": 1},
        ["left out eos_token_id=50256", "left out pad_token_id=-1"],
    ),
    "words": (
        {},
        {"bad_words_ids": [[4, 500], [5]], "suppress_tokens": [400]},
        {"eos_token_id": END, "bos_token_id": END, "bad_words_ids": [[5]]},
        ["left out bad_words_ids=[4, 500]", "left out suppress_tokens=400"],
    ),
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_ids_of_no_token_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str) -> None:
    """They change nothing: none of them can be generated."""
    settings, generation, expected, remarks = LEFT_OUT[case]
    caplog.set_level(logging.INFO, "edgebert")
    checkpoint = opened(tmp_path, settings=settings, generation=generation)
    assert checkpoint.decoding == expected
    assert [note for note in checkpoint.notes if "names no eos_token_id" not in note] == []
    lines = [line for line in caplog.messages if "left out" in line]
    assert len(lines) == len(remarks)
    for part in remarks:
        assert any(part.replace("eos=", "eos_token_id=").replace("bos=", "bos_token_id=") in line for line in lines)


IMPOSSIBLE: dict[str, tuple[dict[str, Any] | str, str]] = {
    "number": ({"temperature": -1}, "generation_config.json: temperature=-1 is not a number"),
    "text": ({"do_sample": "yes"}, "generation_config.json: do_sample='yes' is not True or False"),
    "an id that is none": ({"eos_token_id": "</s>"}, "generation_config.json: eos_token_id='</s>' is not a list"),
    "forced": ({"forced_eos_token_id": 999}, "forced_eos_token_id=999 is not an id below the vocabulary of 267"),
    "lengths": ({"max_new_tokens": 2, "min_new_tokens": 3}, "min_new_tokens=3 is more than max_new_tokens=2"),
    "a list": ("[]", "generation_config.json should hold an object, holds []"),
    "not JSON": ("{", "generation_config.json is not valid JSON"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_impossible_options_are_refused(tmp_path: Path, case: str) -> None:
    content, expected = IMPOSSIBLE[case]
    write(tmp_path)
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / "generation_config.json").write_text(text)
    assert expected in message(tmp_path)


def test_encoders_and_classifiers_do_not_generate(tmp_path: Path) -> None:
    """A file about generating beside a model that does not is not even looked at."""
    for kind, task in (("bert", "fill-mask"), ("gpt2", "classify")):
        write_checkpoint(tmp_path / kind, task=task, model_type=kind, generation={"temperature": -1})
        assert open_checkpoint(tmp_path / kind).decoding == {}


def test_greedy_text_of_transformers_varies(tmp_path: Path) -> None:
    """What the tiny model writes is no token again and again, so that a test which compares it can fail."""
    theirs = transformers.GPT2LMHeadModel.from_pretrained(write(tmp_path))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for prompt in ("the cat", "sing", "12"):
        ids = tokenizer(prompt, return_tensors="pt")
        actual = theirs.generate(**ids, do_sample=False, max_new_tokens=32, pad_token_id=END)[0]
        assert len(set(actual.tolist())) > 10
