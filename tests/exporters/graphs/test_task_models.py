"""Every task, model type and target: the graph gives what PyTorch gives, and takes what it says."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from safetensors.torch import load_file

import edgebert_exporters.export as export_module
import edgebert_runtime
from edgebert_exporters import export_checkpoint, verify_bundle
from edgebert_exporters.graphs.onnx_export import render
from edgebert_exporters.graphs.signatures import ENCODER_TASKS
from edgebert_exporters.inference.pytorch_reference import load_reference
from edgebert_runtime import Bundle
from edgebert_runtime.errors import CheckpointError, ExportError, ParityError
from edgebert_runtime.task_specs import ALIASES, TASKS, canonical_task
from tests.conftest import LABELS
from tests.support.tiny import CONFIG, write_checkpoint

Feeds = dict[str, npt.NDArray[np.int64]]
HEADS = tuple(task for task in ENCODER_TASKS if task != "embed")
# Padding on the right, on the left, with holes, and nothing but padding.
MASK = np.array([[1, 1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1, 1], [1, 0, 1, 1, 0, 1, 1], [0] * 7])
CHOSEN = np.array([8 + 7, 2, 9, 0])  # tokens of the first two rows in no order: row * 7 + position
SEQUENCE = ["batch", "sequence"]
OUTPUTS: dict[str, dict[str, list[int | str]]] = {
    "embed": {"sentence_embedding": ["batch", CONFIG["hidden_size"]]},
    "classify": {"logits": ["batch", 3]},
    "next-sentence": {"logits": ["batch", 2]},
    "rerank": {"logits": ["batch", 1]},
    "multiple-choice": {"logits": ["batch", 1]},
    "tag": {"logits": [*SEQUENCE, 5]},
    "answer": {"start_logits": [*SEQUENCE], "end_logits": [*SEQUENCE]},
    "fill-mask": {"logits": ["rows", CONFIG["vocab_size"]]},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "embed": {"pooling": "mean", "normalize": True, "dim": CONFIG["hidden_size"]},
    "classify": {"labels": list(LABELS["classify"]), "problem_type": "single_label", "activation": "softmax"},
    "next-sentence": {"labels": ["is_next", "not_next"], "problem_type": "single_label"},
    "rerank": {"activation": "sigmoid", "prompt": ""},
    "multiple-choice": {},
    "tag": {"labels": list(LABELS["tag"])},
    "answer": {},
    "fill-mask": {"mask_token": "[MASK]"},
}


def run(bundle: Path, feeds: Feeds, optimize: bool = True) -> list[npt.NDArray[np.float32]]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(bundle / "model.onnx"), options, providers=["CPUExecutionProvider"])
    outputs: list[npt.NDArray[np.float32]] = session.run(None, feeds)
    return outputs


def feeds_for(bundle: Path, seed: int = 1) -> Feeds:
    manifest, rng = Bundle.open(bundle).manifest, np.random.default_rng(seed)
    feeds = {
        "input_ids": rng.integers(0, manifest.limits.vocab_size, MASK.shape),
        "attention_mask": MASK,
        "token_type_ids": rng.integers(0, max(1, manifest.config["type_vocab_size"]), MASK.shape),
        "logits_indices": CHOSEN,
    }
    return {spec.name: feeds[spec.name] for spec in manifest.graphs["model"].inputs}


def expected(module: torch.nn.Module, feeds: Feeds) -> list[npt.NDArray[np.float32]]:
    with torch.no_grad():
        outputs = module(**{name: torch.from_numpy(array) for name, array in feeds.items()})
    return [output.numpy() for output in (outputs if isinstance(outputs, tuple) else (outputs,))]


def assert_same(outputs: list[npt.NDArray[np.float32]], reference: list[npt.NDArray[np.float32]]) -> None:
    """Compare outputs; those of tokens (batch, seq, ...) where the tokens are real."""
    assert len(outputs) == len(reference)
    for actual, expected in zip(outputs, reference, strict=True):
        assert actual.shape == expected.shape
        assert np.isfinite(actual).all()
        real = MASK == 1 if actual.shape[:2] == MASK.shape else np.ones(len(actual), bool)
        np.testing.assert_allclose(actual[real], expected[real], rtol=1e-4, atol=1e-5)


def test_the_table_of_tasks() -> None:
    assert set(OUTPUTS) == set(SETTINGS) == set(ENCODER_TASKS)
    assert [name for name, spec in TASKS.items() if spec.generative] == ["generate", "translate"]
    assert {spec.engine for spec in TASKS.values()} == {kind.__name__ for kind in edgebert_runtime.ENGINES.values()}
    assert all(edgebert_runtime.ENGINES[name].__name__ == spec.engine for name, spec in TASKS.items())
    assert all(hasattr(edgebert_runtime.ENGINES[name], spec.method) for name, spec in TASKS.items())
    assert not ALIASES.keys() & TASKS.keys()
    assert canonical_task("text-classification") == canonical_task("classify") == "classify"
    assert canonical_task("sing") == "sing"


@pytest.mark.parametrize(("task", "target"), list(itertools.product(ENCODER_TASKS, ("cpu", "portable"))))
def test_graph_gives_what_pytorch_gives(
    task: str, target: str, task_bundle: Callable[..., Path], task_checkpoint: Callable[[str], Path]
) -> None:
    bundle = task_bundle(task, target)
    module = load_reference(task_checkpoint(task), task=task)
    for seed, optimize in ((1, True), (2, False)):
        feeds = feeds_for(bundle, seed)
        assert_same(run(bundle, feeds, optimize), expected(module, feeds))


@pytest.mark.parametrize("task", ENCODER_TASKS)
def test_manifest_says_what_the_engine_needs(task: str, task_bundle: Callable[[str], Path]) -> None:
    data = json.loads((task_bundle(task) / "edgebert.json").read_text())
    assert (data["task"], data["settings"]) == (task, SETTINGS[task])
    graph = data["graphs"]["model"]
    names = ["input_ids", "attention_mask", "token_type_ids", *(["logits_indices"] if task == "fill-mask" else [])]
    assert [spec["name"] for spec in graph["inputs"]] == names
    assert {spec["name"]: spec["shape"] for spec in graph["outputs"]} == OUTPUTS[task]
    assert {tuple(spec["shape"]) for spec in graph["inputs"]} <= {("batch", "sequence"), ("rows",)}
    model = ir.load(task_bundle(task) / "model.onnx")
    assert [value.name for value in model.graph.inputs] == names
    assert [value.name for value in model.graph.outputs] == list(OUTPUTS[task])
    assert set(data["verification"]["outputs"]) == set(OUTPUTS[task])


@pytest.mark.parametrize("task", HEADS)
def test_verified_again_with_the_checkpoint(
    task: str, task_bundle: Callable[[str], Path], task_checkpoint: Callable[[str], Path]
) -> None:
    figures = verify_bundle(task_bundle(task), task_checkpoint(task))
    assert figures["golden_cosine"] == pytest.approx(1)
    assert figures["batch_invariance"]["rows"] > 40
    assert 0 < figures["batch_invariance"]["max_difference"] < 1e-5
    assert set(figures["reference"]["outputs"]) == set(OUTPUTS[task])
    assert 0 < figures["reference"]["max_error"] < 1e-5


@pytest.mark.parametrize("task", ["classify", "fill-mask"])
def test_inputs_are_known_by_name(
    task: str, task_bundle: Callable[[str], Path], task_checkpoint: Callable[[str], Path]
) -> None:
    module, feeds = load_reference(task_checkpoint(task), task=task), feeds_for(task_bundle(task))
    before = run(task_bundle(task), feeds)[0]
    mask = MASK.copy()
    mask[:2, 3] = 0
    for name, array in (("token_type_ids", (feeds["token_type_ids"] + 1) % 3), ("attention_mask", mask)):
        changed = {**feeds, name: array}
        after = run(task_bundle(task), changed)[0]
        np.testing.assert_allclose(after, expected(module, changed)[0], rtol=1e-4, atol=1e-5)
        assert np.abs(after - before).max() > 0.01, f"{name} has no effect"


@pytest.mark.parametrize(
    ("model_type", "task"),
    [("distilbert", "classify"), ("roberta", "fill-mask"), ("electra", "tag")],
)
def test_other_model_types(model_type: str, task: str, tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", task=task, model_type=model_type)
    exported = export_checkpoint(source, tmp_path / "bundle")
    assert exported.manifest.task == task
    feeds = feeds_for(exported.path)
    assert ("token_type_ids" in feeds) == (model_type == "electra")
    assert exported.manifest.limits.max_tokens == 40
    assert_same(run(exported.path, feeds), expected(load_reference(source), feeds))
    assert verify_bundle(exported.path, source)["reference"]["max_error"] < 1e-5


@pytest.mark.parametrize(("task", "weight"), [("answer", "head.out.bias"), ("fill-mask", "bert.layers.1.qkv.bias")])
def test_a_wrong_graph_never_becomes_a_bundle(
    task: str, weight: str, task_checkpoint: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*args: Any) -> ir.Model:
        model = render(*args)
        value = model.graph.initializers[weight]
        assert value.const_value is not None
        array = value.const_value.numpy().copy()
        array[-1] += 0.05
        value.const_value = ir.tensor(array, name=value.name)
        return model

    monkeypatch.setattr(export_module, "render", wrong)
    with pytest.raises(ParityError, match=r"the cpu graph differs from the PyTorch reference by .* at batch"):
        export_checkpoint(task_checkpoint(task), tmp_path / "bundle", task=task)
    assert not list(tmp_path.iterdir())


MISPLACED: list[tuple[str, dict[str, Any], str]] = [
    ("classify", {"pooling": "mean"}, "pooling='mean' means nothing for the task classify, only for embed; leave it"),
    ("fill-mask", {"normalize": False}, "normalize=False means nothing for the task fill-mask, only for embed"),
    (
        "tag",
        {"problem_type": "regression"},
        "problem_type='regression' means nothing for the task tag, only for classify",
    ),
    ("rerank", {"labels": ["no"]}, r"labels=\['no'\] means nothing for the task rerank, only for classify and tag"),
]


@pytest.mark.parametrize(("task", "options", "message"), MISPLACED)
def test_options_of_other_tasks_are_refused_by_name(
    task: str, options: dict[str, Any], message: str, task_checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=message):
        export_checkpoint(task_checkpoint(task), tmp_path / "bundle", task=task, **options)
    if "labels" not in options and "problem_type" not in options:  # these two the checkpoint refuses by itself
        with pytest.raises(ExportError, match=message):
            export_checkpoint(task_checkpoint(task), tmp_path / "bundle", **options)
    assert not list(tmp_path.iterdir())


def test_options_of_the_caller_reach_the_checkpoint(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", task="classify", num_hidden_layers=1)
    torch.save(load_file(source / "model.safetensors"), source / "pytorch_model.bin")
    (source / "model.safetensors").unlink()
    options: dict[str, Any] = {"problem_type": "multi_label", "labels": ("sport", "politics", "weather")}
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        export_checkpoint(source, tmp_path / "bundle", **options)
    exported = export_checkpoint(source, tmp_path / "bundle", allow_pickle=True, **options)
    expected = {"problem_type": "multi_label", "labels": ["sport", "politics", "weather"], "activation": "sigmoid"}
    assert exported.manifest.settings == expected
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        verify_bundle(exported.path, source)
    assert verify_bundle(exported.path, source, allow_pickle=True)["reference"]["max_error"] < 1e-5


def test_a_tied_table_is_stored_once(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", task="fill-mask", vocab_size=3000, num_hidden_layers=1)
    parameters = sum(p.numel() * 4 for p in load_reference(source).parameters())  # each parameter once
    assert parameters < 2 * 3000 * 4 * CONFIG["hidden_size"]
    exported = export_checkpoint(source, tmp_path / "bundle", target="portable")
    assert parameters < exported.manifest.files["model.onnx"].bytes < 1.1 * parameters
