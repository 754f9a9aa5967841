"""Bundles with static layers: a model that was trained for a task, and those of every family."""

from __future__ import annotations

import shutil
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
import torch
from onnx_ir.passes.common import RemoveUnusedNodesPass
from safetensors.torch import save_file
from torch.nn import functional

from edgebert.checkpoints.config.head_tables import HEADS
from edgebert.checkpoints.config.model_factory import CONFIGS
from edgebert.checkpoints.weights.name_mapping import to_published
from edgebert_exporters import export_checkpoint
from edgebert_exporters.graphs.graph_editor import GraphEditor
from edgebert_exporters.inference.batch import Batch
from edgebert_exporters.inference.graph_runner import bundle_signature, open_graphs
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.inference.sample_texts import sample_rows, to_batches
from edgebert_exporters.quantization.activation_ranges import METHODS, Histogram
from edgebert_exporters.quantization.calibration import (
    AbsMaxObserver,
    CompositeObserver,
    Observer,
    observe_graph,
)
from edgebert_exporters.quantization.schemes import INT8_PER_CHANNEL
from edgebert_exporters.quantization.static_qdq import quantize_static, quantize_static_embedding, static_factor
from edgebert_exporters.quantization.weight_discovery import linears
from edgebert_exporters.quantization.weight_selection import make_plans
from edgebert_runtime.bundle.reader import Bundle
from tests.support.tiny import LABELS, sizes, tiny_model, write_checkpoint


def counted(model: ir.Model) -> Counter[str]:
    """Count the operators of a graph."""
    return Counter(node.op_type for node in model.graph)


def quantized(bundle: Bundle, batches: Sequence[Batch], method: str, folder: Path) -> dict[str, ir.Model]:
    """Write a copy of a bundle whose layers, and tables that a layer shares, are static; return its graphs."""
    shutil.copytree(bundle.path, folder)
    models = {name: ir.load(bundle.path / spec.file) for name, spec in bundle.manifest.graphs.items()}
    plans = make_plans(models, [], True, INT8_PER_CHANNEL)
    for name, model in models.items():
        shared = [weight for weight in plans[name].weights if weight.linears]
        largest = {linear.input_name: AbsMaxObserver() for weight in shared for linear in weight.linears}
        observe_graph(OpenedBundle(bundle), name, largest, batches)
        channels = {name: histograms.channels for name, histograms in largest.items()}
        factors = {w.name: None if w.lookups else static_factor(w.linears, channels) for w in shared}
        histograms = {weight.name: Histogram(factors[weight.name]) for weight in shared}
        shown: dict[str, list[Observer]] = {name: [] for name in largest}
        for weight in shared:
            for linear in weight.linears:
                shown[linear.input_name].append(histograms[weight.name])
        shows = {name: CompositeObserver(observers) for name, observers in shown.items()}
        observe_graph(OpenedBundle(bundle), name, shows, batches)
        editor = GraphEditor(model)
        for weight in shared:
            limits = histograms[weight.name].range_by(method)
            if weight.lookups:
                quantize_static_embedding(editor, weight, limits)
            else:
                quantize_static(editor, weight.linears, limits, factors[weight.name])
        RemoveUnusedNodesPass()(model)
        ir.save(ir.external_data.load_to_model(model), folder / bundle.manifest.graphs[name].file)
    return models


def toy_batches(count: int, seed: int) -> tuple[list[Batch], npt.NDArray[np.int64]]:
    """Return texts in padded batches of 8, and of each which of the words 5, 6 and 7 is in it."""
    rng, batches, answers = np.random.default_rng(seed), [], []
    for _ in range(count // 8):
        mask = (np.arange(24) < rng.integers(4, 25, (8, 1))).astype(np.int64)
        ids = rng.integers(8, 60, (8, 24)) * mask
        ids[:, 0] = 2
        answers.append(rng.integers(0, 3, 8))
        ids[np.arange(8), rng.integers(1, mask.sum(1))] = 5 + answers[-1]
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        batches.append(Batch("toy", feeds))
    return batches, np.concatenate(answers)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Bundle]:
    """Return a function from a target to a bundle of a classifier that learned which word is in a text."""
    folder = tmp_path_factory.mktemp("toy")
    checkpoint = write_checkpoint(folder / "checkpoint", task="classify")
    names = HEADS["bert"]["classify"][0]
    model = tiny_model(CONFIGS["bert"](**sizes("bert")), names, len(LABELS["classify"])).train()
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    batches, answers = toy_batches(8000, seed=0)
    for start in range(0, len(batches), 4):
        drawn = [batch.feeds for batch in batches[start : start + 4]]
        inputs = {name: torch.from_numpy(np.concatenate([feeds[name] for feeds in drawn])) for name in drawn[0]}
        loss = functional.cross_entropy(model(**inputs), torch.from_numpy(answers[start * 8 : start * 8 + 32]))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    tensors = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    save_file(to_published(tensors, "bert", names), checkpoint / "model.safetensors")
    return cache(lambda target: export_checkpoint(checkpoint, folder / target, task="classify", target=target))


def chosen(bundle: Bundle, folder: Path, batches: Sequence[Batch]) -> npt.NDArray[np.int64]:
    session = open_graphs(folder, bundle.manifest)
    return np.concatenate([session.run(None, batch.feeds)[0].argmax(1) for batch in batches])


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "portable"])
def test_a_trained_model_still_answers(toy: Callable[[str], Bundle], target: str, tmp_path: Path) -> None:
    """By every method, from 500 texts in padded batches; the mask and what attends are as they were."""
    bundle, (watched, _), (questions, answers) = toy(target), toy_batches(504, seed=1), toy_batches(504, seed=2)
    before = chosen(bundle, bundle.path, questions)
    assert (before == answers).mean() > 0.95, "nothing was learned that could be lost"
    model = ir.load(bundle.path / "model.onnx")
    float32, layers = counted(model), len([x for x in linears(model) if not x.name.startswith("head.")])
    for method in METHODS:
        operators = counted(quantized(bundle, watched, method, tmp_path / method)["model"])
        after = chosen(bundle, tmp_path / method, questions)
        assert (after == before).mean() >= 0.95, method
        assert operators["QuantizeLinear"] == layers
        for kind in ("Where", "Softmax", "Equal", "Not", "LayerNormalization", "Gelu"):
            assert operators[kind] == float32[kind], kind


def test_calibration_has_the_same_memory_for_any_number_of_texts(toy: Callable[[str], Bundle]) -> None:
    bundle, peaks = toy("cpu"), []
    model = ir.load(bundle.path / "model.onnx")
    for count in (48, 504):
        batches, _ = toy_batches(count, seed=3)
        histograms = {linear.input_name: Histogram() for linear in linears(model)}
        tracemalloc.start()
        observe_graph(OpenedBundle(bundle), "model", histograms, batches)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["embed", "generate", "translate", "albert"])
def test_portable_bundles_stay_portable(
    kind: str,
    portable_bundle: Path,
    decoder_bundle: Callable[[str], Path],
    translator_bundle: Callable[..., Path],
    tmp_path: Path,
) -> None:
    """Every layer becomes static, in standard operators, and the outputs stay close."""
    if kind == "albert":
        folder = export_checkpoint(
            write_checkpoint(tmp_path / "source", model_type="albert"), tmp_path / "albert", target="portable"
        ).path
    else:
        ways: dict[str, Callable[[], Path]] = {
            "embed": lambda: portable_bundle,
            "generate": lambda: decoder_bundle("portable"),
            "translate": lambda: translator_bundle("portable"),
        }
        folder = ways[kind]()
    bundle = Bundle.open(folder)
    inputs = bundle_signature(bundle.manifest).input_names
    batches = [batch for _, batch in to_batches(OpenedBundle(bundle).samples(sample_rows(bundle, None)[:12]), inputs)]
    models = quantized(bundle, batches, "min-max", tmp_path / "static")
    for model in models.values():
        assert {node.domain for node in model.graph} == {""}
        assert not [linear for linear in linears(model) if not linear.name.startswith("head.")]
    before, after = (open_graphs(path, bundle.manifest) for path in (folder, tmp_path / "static"))
    for batch in batches:
        old, new = (session.run(None, batch.feeds)[0].reshape(-1) for session in (before, after))
        assert old @ new / np.linalg.norm(old) / np.linalg.norm(new) > 0.99
