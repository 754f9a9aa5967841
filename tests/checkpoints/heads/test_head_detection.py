"""What a checkpoint is for is found, its outputs are named, and what does not fit is refused in one line."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import click
import pytest
from safetensors.torch import load_file, save_file

from edgebert.checkpoints import Checkpoint, open_checkpoint
from edgebert.checkpoints.config.head_tables import HEADS
from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert.cli.param_types import TaskType
from edgebert_runtime.errors import ConfigError
from edgebert_runtime.task_specs import TASKS
from tests.checkpoints.broken import message, write_task
from tests.support.tiny import write_checkpoint


def keep(folder: Path, *beginnings: str) -> None:
    """Keep only the tensors of the weights whose names have one of these beginnings."""
    file = folder / "model.safetensors"
    save_file({name: value for name, value in load_file(file).items() if name.startswith(beginnings)}, file)


@pytest.mark.parametrize(
    ("kind", "task"),
    [(kind, task) for kind in HEADS for task in {MODEL_TYPES[kind].headless_task: None, **HEADS[kind]}],
)
def test_task_is_found(tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, task: str) -> None:
    caplog.set_level(logging.INFO, "edgebert")
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, task=task, model_type=kind))
    assert (checkpoint.task, checkpoint.model_type, checkpoint.family) == (task, kind, MODEL_TYPES[kind].family)
    assert (checkpoint.head is None) == (task in ("embed", "translate"))
    assert (checkpoint.mask_token is None) == (task != "fill-mask")
    assert "passed over" not in caplog.text
    assert checkpoint.notes == ()


ARCHITECTURES: dict[str, tuple[str, dict[str, Any], str]] = {
    "nothing but an encoder": ("embed", {"architectures": None}, "embed"),
    "an architecture of nobody": ("fill-mask", {"architectures": ["AntiBERTy"]}, "fill-mask"),
    "none": ("answer", {"architectures": None}, "answer"),
    "an empty list": ("answer", {"architectures": []}, "answer"),
    "no names": ("answer", {"architectures": [7]}, "answer"),
    "no list": ("answer", {"architectures": "BertModel"}, "answer"),
    "pre-training": ("fill-mask", {"architectures": ["BertForPreTraining"]}, "fill-mask"),
    "a CrossEncoder for three labels": (
        "classify",
        {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
        "classify",
    ),
}


@pytest.mark.parametrize("case", ARCHITECTURES)
def test_other_ways_to_say_the_task(tmp_path: Path, case: str) -> None:
    written, settings, expected = ARCHITECTURES[case]
    assert open_checkpoint(write_task(tmp_path, task=written, settings=settings, pooling=None)).task == expected


def test_one_checkpoint_for_two_tasks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Those of BERT's pre-training, with or without an architecture."""
    write_task(tmp_path, task="next-sentence", settings={"architectures": ["BertForPreTraining"]})
    second = load_file(write_task(tmp_path / "other", task="fill-mask") / "model.safetensors")
    heads = {name: value for name, value in second.items() if name.startswith("cls.")}
    save_file({**load_file(tmp_path / "model.safetensors"), **heads}, tmp_path / "model.safetensors")
    caplog.set_level(logging.INFO, "edgebert")
    words = open_checkpoint(tmp_path)
    pairs = open_checkpoint(tmp_path, task="next-sentence")
    assert (words.task, words.mask_token, words.labels) == ("fill-mask", "[MASK]", ())
    assert (pairs.labels, pairs.mask_token, pairs.problem_type) == (("is_next", "not_next"), None, "")
    assert "passed over heads that fill-mask does not use: cls.seq_relationship" in caplog.messages
    assert any(line.startswith("passed over heads that next-sent") and "cls.pred" in line for line in caplog.messages)
    assert words.notes == pairs.notes == ()
    data = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**data, "architectures": None}))
    assert open_checkpoint(tmp_path).task == "fill-mask"


def test_sentence_modules_go_before_the_architecture(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, settings={"architectures": ["BertForMaskedLM"]})
    assert open_checkpoint(tmp_path).task == "embed"


ACTIVATIONS = {
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.linear.Identity": "identity",
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("older", [True, False])
def test_activation_of_a_reranker(tmp_path: Path, name: str, older: bool) -> None:
    said = (
        {"sbert_ce_default_activation_function": name} if older else {"sentence_transformers": {"activation_fn": name}}
    )
    checkpoint = open_checkpoint(write_task(tmp_path, task="rerank", settings={"sentence_transformers": None, **said}))
    assert (checkpoint.task, checkpoint.activation) == ("rerank", ACTIVATIONS[name])


def test_reranker_that_says_nothing(tmp_path: Path) -> None:
    first = write_task(tmp_path / "one", task="rerank", settings={"sentence_transformers": None})
    two = write_task(tmp_path / "two", task="classify", labels=("no", "yes"))
    assert open_checkpoint(first).task == "classify"
    assert open_checkpoint(first, task="rerank").activation == "sigmoid"
    assert open_checkpoint(two, task="rerank").activation == "softmax"
    three = message(write_task(tmp_path / "three", task="classify"), task="rerank")
    assert "classifier has 3 outputs, rerank needs 1 or 2; the tensors fit embed, classify, tag" in three


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "a head of an encoder": (
        {},
        {"task": "classify"},
        (
            "tensors missing for classify: pooler.dense.weight",
            "classifier.weight",
            "the tensors fit embed;",
            "give task",
        ),
    ),
    "a head of the wrong kind": (
        {"task": "answer"},
        {"task": "fill-mask"},
        ("tensors missing for fill-mask: cls.predictions.transform.dense.weight", "the tensors fit embed, answer;"),
    ),
    "a head that the type has not": (
        {"task": "fill-mask", "model_type": "roberta"},
        {"task": "next-sentence"},
        ("a roberta has no head for next-sentence; the tensors fit embed, fill-mask",),
    ),
    "a head for one token of each text": (
        {"task": "classify"},
        {"task": "tag"},
        ("the head of BertForSequenceClassification was trained for classify and not for tag", "leave out task"),
    ),
    "a choice among labels": (
        {"task": "classify"},
        {"task": "multiple-choice"},
        ("classifier has 3 outputs, multiple-choice needs 1; the tensors fit embed, classify, tag",),
    ),
    "an architecture with another head": (
        {"task": "answer", "settings": {"architectures": ["BertForMaskedLM"]}},
        {},
        ("tensors missing for fill-mask", "the tensors fit embed, answer"),
    ),
    "several heads, and nothing that says which": (
        {"task": "classify", "settings": {"architectures": ["MyBert"]}},
        {},
        ("architectures names 'MyBert', which does not say the task; give task", "one of embed, classify, tag"),
    ),
    "problem_type": (
        {"task": "classify", "settings": {"problem_type": "ranking"}},
        {},
        ("problem_type='ranking' is not one of single_label_classification", "give problem_type"),
    ),
    "activation": (
        {"task": "rerank", "settings": {"sentence_transformers": {"activation_fn": "torch.nn.GELU"}}},
        {},
        ("activation 'torch.nn.GELU' is not supported; supported: Identity, Sigmoid,",),
    ),
    "problem_type of another task": (
        {"task": "tag"},
        {"problem_type": "regression"},
        ("problem_type was given, which tag does not have; only classify",),
    ),
    "summary of electra": (
        {"task": "multiple-choice", "model_type": "electra", "settings": {"summary_type": "mean"}},
        {},
        ("summary_type='mean' is not supported, only 'first'",),
    ),
    "groups of albert": (
        {"model_type": "albert", "settings": {"num_hidden_groups": 2}},
        {},
        ("num_hidden_groups=2 is not supported, only 1",),
    ),
    "inner groups of albert": (
        {"model_type": "albert", "settings": {"inner_group_num": 3}},
        {},
        ("inner_group_num=3 is not supported, only 1",),
    ),
    "padding of roberta": (
        {"model_type": "roberta", "settings": {"pad_token_id": -1}},
        {},
        ("pad_token_id=-1 is not an id below vocab_size",),
    ),
    "positions of roberta": (
        {"model_type": "roberta", "settings": {"max_position_embeddings": 2}},
        {},
        ("max_position_embeddings=2 leaves no position after the first 2",),
    ),
    "size of distilbert": (
        {"model_type": "distilbert", "settings": {"dim": "768", "n_heads": 0}},
        {},
        ("dim='768' is not a whole number", "n_heads=0"),
    ),
    "size of distilbert missing": (
        {"model_type": "distilbert", "settings": {"dim": None}},
        {},
        ("config.json lacks dim; use",),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_named(tmp_path: Path, case: str) -> None:
    written, options, expected = REFUSED[case]
    text = message(write_task(tmp_path, **written), **options)
    for part in expected:
        assert part in text


@pytest.mark.parametrize("count", [1, 3])
def test_answers_have_a_start_and_an_end(tmp_path: Path, count: int) -> None:
    file = write_task(tmp_path, task="answer") / "model.safetensors"
    weights = load_file(file)
    head = {f"qa_outputs.{leaf}": weights[f"qa_outputs.{leaf}"][[0] * count] for leaf in ("weight", "bias")}
    save_file({**weights, **head}, file)
    assert f"qa_outputs has {count} outputs, answer needs 2; the tensors fit embed" in message(tmp_path)


def test_half_a_head(tmp_path: Path) -> None:
    keep(write_task(tmp_path, task="fill-mask"), "bert.", "cls.predictions.transform")
    assert "tensors missing for fill-mask: cls.predictions.bias; the tensors fit embed" in message(tmp_path)
    assert open_checkpoint(tmp_path, task="embed").task == "embed"


@pytest.mark.parametrize("option", [{"task": "summarize"}, {"task": ""}, {"problem_type": "ranking"}])
def test_names_of_nothing(tmp_path: Path, option: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="is not one of ") as caught:
        open_checkpoint(tmp_path, **option)  # type: ignore[arg-type]
    assert str(caught.value).isprintable()


def test_mask_token(tmp_path: Path) -> None:
    def found(**settings: Any) -> Checkpoint:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, **settings}))
        return open_checkpoint(tmp_path)

    write_task(tmp_path, task="fill-mask")
    assert found().mask_token == "[MASK]"
    assert found(mask_token={"content": "[MASK]", "lstrip": False}).mask_token == "[MASK]"
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text(vocabulary.read_text().replace("[MASK]", "<blank>"))
    assert found(mask_token="<blank>").mask_token == "<blank>"
    for settings in ({}, {"mask_token": None}, {"mask_token": "[MASK]"}):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
        assert "the tokenizer has no mask token, which fill-mask needs; name it" in message(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    assert "the tokenizer has no mask token" in message(tmp_path)
    assert open_checkpoint(tmp_path, task="embed").mask_token is None


def test_two_mask_tokens(tmp_path: Path) -> None:
    write_task(tmp_path, task="fill-mask")
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text(vocabulary.read_text().replace("\nschool\n", "\n<mask>\n"))
    assert open_checkpoint(tmp_path).mask_token == "[MASK]"  # <mask> is read as three signs


def test_table_of_tasks() -> None:
    assert {task for tasks in HEADS.values() for task in tasks} | {"embed"} == set(TASKS)


def test_tasks_have_the_names_of_pipelines(tmp_path: Path) -> None:
    write_task(tmp_path, task="tag")
    assert open_checkpoint(tmp_path, task="token-classification").task == "tag"
    assert TaskType().convert("question-answering", None, None) == "answer"
    with pytest.raises(click.BadParameter, match="'ner-tagging' is not one of 'embed', 'classify', "):
        TaskType().convert("ner-tagging", None, None)
