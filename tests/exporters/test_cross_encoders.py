"""Scores of classifiers and rerankers are those of sentence-transformers and of the pipeline of transformers."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import CrossEncoder

from edgebert.checkpoints import Checkpoint, open_checkpoint
from edgebert.checkpoints.config.cross_encoder import ACTIVATIONS
from edgebert_exporters import export_checkpoint
from edgebert_runtime import Classifier, Reranker
from edgebert_runtime.errors import CheckpointError
from edgebert_runtime.tasks import activations
from tests.support.tiny import write_checkpoint

PAIRS = [("the school", "a green tree"), ("mail", "the mail was late"), ("green", "school")]
SETTINGS = "config_sentence_transformers.json"
SIGMOID, IDENTITY = "torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"


def write(folder: Path, count: int = 1, **settings: Any) -> Path:
    """Write a classifier with so many outputs, of which config.json says nothing more."""
    labels = [f"label {number}" for number in range(count)]
    return write_checkpoint(folder, task="classify", labels=labels, settings=settings)


def saved(folder: Path, count: int = 1, **options: Any) -> Path:
    """Save a CrossEncoder as sentence-transformers does."""
    CrossEncoder(str(write(folder / "plain", count)), device="cpu", **options).save_pretrained(str(folder / "saved"))
    return folder / "saved"


def change(folder: Path, name: str, **changed: Any) -> Path:
    """Change keys of a JSON file; None removes one."""
    data = {**json.loads((folder / name).read_text()), **changed}
    (folder / name).write_text(json.dumps({key: value for key, value in data.items() if value is not None}))
    return folder


def scores(checkpoint: Checkpoint) -> Any:
    """Return the scores (pairs, outputs) of a checkpoint's own model and activation."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint.path)
    firsts = [checkpoint.prompt + first for first, _ in PAIRS]
    inputs = tokenizer(firsts, [second for _, second in PAIRS], padding=True, return_tensors="pt")
    with torch.no_grad():
        model: Any = checkpoint.load_model()
        logits = model(inputs["input_ids"], inputs["attention_mask"], inputs["token_type_ids"])
    return activations.ACTIVATIONS[checkpoint.activation](logits.numpy())


def assert_as_predicted(folder: Path, task: str) -> Checkpoint:
    checkpoint = open_checkpoint(folder)
    assert checkpoint.task == task
    expected = CrossEncoder(str(folder), device="cpu").predict(PAIRS)
    np.testing.assert_allclose(scores(checkpoint), expected.reshape(len(PAIRS), -1), atol=2e-6)
    return checkpoint


def test_rerankers_of_every_activation(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    assert assert_as_predicted(folder, "rerank").activation == "sigmoid"
    for name in ACTIVATIONS:
        change(folder, SETTINGS, activation_fn=f"torch.nn.{name}")
        if name in ("Softmax", "LogSoftmax"):
            with pytest.raises(
                CheckpointError, match="gives the same score for every input of a model with one output"
            ):
                open_checkpoint(folder)
        else:
            assert_as_predicted(folder, "rerank")
    change(folder, SETTINGS, activation_fn="torch.nn.GELU")
    with pytest.raises(
        CheckpointError, match=rf"{SETTINGS}: activation 'torch.nn.GELU' is not supported; supported: I"
    ):
        open_checkpoint(folder, task="rerank")


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
@pytest.mark.parametrize("name", [None, IDENTITY, SIGMOID, "torch.nn.Softmax", "torch.nn.LogSoftmax", "torch.nn.Tanh"])
def test_classifiers(tmp_path: Path, name: str | None) -> None:
    folder = change(saved(tmp_path, 3), SETTINGS, activation_fn=name)
    assert_as_predicted(folder, "classify")
    assert open_checkpoint(folder, problem_type="single_label").activation == "softmax"


# The activation of each place; "" is a place without one.
PLACES = list(product(["", IDENTITY, "my.Sigmoid"], ["", None, IDENTITY, "other.Identity"], ["", IDENTITY, SIGMOID]))


def test_places_of_an_activation(tmp_path: Path) -> None:
    """The three keys in every combination, alone and together, with classes that are code among them."""
    folder = saved(tmp_path)
    config, settings = (json.loads((folder / name).read_text()) for name in ("config.json", SETTINGS))
    for newest, newer, older in PLACES:
        (folder / SETTINGS).write_text(json.dumps({**settings, "activation_fn": newest or None}))
        keys: dict[str, Any] = (
            {} if newer == "" else {"sentence_transformers": {"activation_fn": newer, "version": "4"}}
        )
        keys |= {"sbert_ce_default_activation_function": older} if older else {}
        (folder / "config.json").write_text(json.dumps({**config, **keys}))
        checkpoint = assert_as_predicted(folder, "rerank")
        taken = next((name for name in (newest, newer if newer != "" else older) if name), "")
        assert ("is code that is not run" in " ".join(checkpoint.notes)) == taken.startswith(("my.", "other."))


def test_folders_of_older_versions(tmp_path: Path) -> None:
    """Without modules.json only config.json counts, and without any of its keys the folder is a classifier."""
    folder = write(tmp_path, sentence_transformers={"activation_fn": IDENTITY})
    assert_as_predicted(folder, "rerank")
    (folder / SETTINGS).write_text(json.dumps({"model_type": "CrossEncoder", "activation_fn": "torch.nn.Tanh"}))
    assert assert_as_predicted(folder, "rerank").activation == "identity"
    change(folder, "config.json", sentence_transformers=None)
    assert open_checkpoint(folder).task == "classify"
    assert open_checkpoint(folder, task="rerank").activation == "sigmoid"


@pytest.mark.parametrize(
    "modules", [["Transformer", "LogitScore"], ["Transformer", "Pooling"], ["Transformer", "Pooling", "Dense"], []]
)
def test_modules_that_change_the_score(tmp_path: Path, modules: list[str]) -> None:
    folder = saved(tmp_path)
    paths = ["", *(f"{number}_{name}" for number, name in enumerate(modules[1:], 1))]
    entries = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.{name}"}
        for number, (name, path) in enumerate(zip(modules, paths, strict=False))
    ]
    (folder / "modules.json").write_text(json.dumps(entries))
    listed = ", ".join(modules) or "no modules"
    with pytest.raises(
        CheckpointError, match=f"modules.json lists {listed}, which make the score of this CrossEncoder"
    ):
        open_checkpoint(folder)


def test_prompts(tmp_path: Path) -> None:
    folder = saved(tmp_path, prompts={"q": "school: ", "other": "mail: "}, default_prompt_name="q")
    checkpoint = assert_as_predicted(folder, "rerank")
    assert checkpoint.prompt == "school: "
    assert any("the prompts other are left out" in note for note in checkpoint.notes)
    many = saved(tmp_path / "many", 3, prompts={"q": "school: "}, default_prompt_name="q")
    assert any("without the prompt 'school: '" in note for note in open_checkpoint(many).notes)
    change(folder, SETTINGS, default_prompt_name="none")
    with pytest.raises(CheckpointError, match="default_prompt_name='none' is none of its prompts"):
        open_checkpoint(folder)


def test_bundle_of_a_reranker(tmp_path: Path) -> None:
    """From a folder of sentence-transformers to ranked passages."""
    folder = saved(
        tmp_path, activation_fn=torch.nn.Tanh(), max_length=20, prompts={"q": "mail "}, default_prompt_name="q"
    )
    engine = Reranker(export_checkpoint(folder, tmp_path / "bundle"))
    assert (engine.activation, engine.prompt, engine.default_tokens) == ("tanh", "mail ", 20)
    passages = ["a green tree", "the mail was late", "school"]
    theirs = CrossEncoder(str(folder), device="cpu")
    ranked, expected = engine.rerank("the school", passages), theirs.rank("the school", passages)
    assert [result.index for result in ranked] == [result["corpus_id"] for result in expected]
    np.testing.assert_allclose([result.score for result in ranked], [result["score"] for result in expected], atol=1e-5)
    np.testing.assert_allclose(engine.score(PAIRS), theirs.predict(PAIRS), atol=1e-5)


PROBLEMS = [None, "single_label_classification", "multi_label_classification", "regression"]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_scores_of_the_pipeline(tmp_path: Path, count: int) -> None:
    """Every problem type, and what the pipeline does not read of config.json."""
    folder = write(tmp_path, count)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    logits = None
    for problem, function in product(PROBLEMS, [None, "none", "softmax"]):
        specific = {"text-classification": {"function_to_apply": function, "problem_type": "regression"}}
        change(folder, "config.json", problem_type=problem, function_to_apply=function, task_specific_params=specific)
        if count == 1 and problem == "single_label_classification":  # which transformers 5 does not open
            assert open_checkpoint(folder, task="classify").activation == "sigmoid"
            continue
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
        pipeline = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
        expected = {result["label"]: result["score"] for result in pipeline(["the green school"])[0]}
        checkpoint = open_checkpoint(folder, task="classify")
        if logits is None:
            inputs = tokenizer("the green school", return_tensors="pt")
            with torch.no_grad():
                own: Any = checkpoint.load_model()
                logits = own(inputs["input_ids"], inputs["attention_mask"], inputs["token_type_ids"]).numpy()
        actual = activations.ACTIVATIONS[checkpoint.activation](logits)[0]
        np.testing.assert_allclose(actual, [expected[label] for label in checkpoint.labels], atol=1e-6)


def test_bundle_of_one_output(tmp_path: Path) -> None:
    folder = write(tmp_path / "plain")
    engine = Classifier(export_checkpoint(folder, tmp_path / "bundle"))
    assert (engine.problem_type, engine.activation) == ("single_label", "sigmoid")
    theirs = transformers.pipeline("text-classification", model=str(folder))
    (result,), (expected,) = engine.classify(["the green school"]), theirs(["the green school"])
    assert result.label == expected["label"] == "label 0"
    assert result.score == pytest.approx(expected["score"], abs=1e-5)
    number = open_checkpoint(folder, problem_type="regression")
    assert (number.problem_type, number.activation) == ("regression", "identity")
