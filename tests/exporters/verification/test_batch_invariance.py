"""A row gives the same alone and in a batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgebert_exporters import quantize_bundle
from edgebert_exporters.graphs.signatures import ENCODER_TASKS
from edgebert_exporters.inference.graph_runner import open_graphs
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.verification.batch_invariance import ROWS, batch_invariance, random_batches
from edgebert_exporters.verification.parity import check_rows_alone
from edgebert_runtime import Bundle
from edgebert_runtime.inputs.batching import pad
from tests.support.tiny import CONFIG

NORMS = ("LayerNormalization", "SkipLayerNormalization")
LAST = f"bert.layers.{CONFIG['num_hidden_layers'] - 1}.ffn_norm.weight"
LENGTHS = st.lists(st.integers(1, CONFIG["max_position_embeddings"]), min_size=1, max_size=6)
PROPERTY = settings(max_examples=25, deadline=None)
Maker = Callable[[str], Path]
Rows = list[list[int]]


@pytest.fixture(scope="module")
def encoder(fp32_bundle: Path, int8_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """Return a function from fp32, int8 or int4 to a bundle that embeds, to be read only."""

    @cache
    def make(form: str) -> Path:
        if form != "int4":
            return {"fp32": fp32_bundle, "int8": int8_bundle}[form]
        folder = tmp_path_factory.mktemp("forms") / form
        return quantize_bundle(fp32_bundle, folder, scheme="int4", min_fidelity=0.5).path

    return make


@cache
def with_hidden_states(file: Path) -> Any:
    """Open a graph, with the hidden states behind its last layer as the first output."""
    model = ir.load(file)
    norms = [node for node in model.graph if node.op_type in NORMS]
    (last,) = [node for node in norms if LAST in {value.name for value in node.inputs if value is not None}]
    model.graph.outputs.insert(0, last.outputs[0])
    data = ir.to_proto(model).SerializeToString()
    return ort.InferenceSession(data, providers=["CPUExecutionProvider"])


def run_padded(session: Any, rows: Rows, more: int = 0) -> tuple[list[Any], Any]:
    """Run rows in a batch with so many more columns of padding; return the hidden states of each, and vectors."""
    ids, mask = (np.pad(array, ((0, 0), (0, more))) for array in pad(rows))
    feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    hidden, vectors = session.run(None, feeds)
    hidden = hidden.reshape(*ids.shape, -1)
    return [hidden[i, : len(row)] for i, row in enumerate(rows)], vectors


@pytest.mark.parametrize("form", ["fp32", "int8"])
@PROPERTY
@given(lengths=LENGTHS, more=st.integers(0, 9), seed=st.integers(0, 99))
def test_encoders_mind_no_neighbours(form: str, lengths: list[int], more: int, seed: int, encoder: Maker) -> None:
    session, rng = with_hidden_states(encoder(form) / "model.onnx"), np.random.default_rng(seed)
    rows: Rows = [rng.integers(0, CONFIG["vocab_size"], length).tolist() for length in lengths]
    more = min(more, CONFIG["max_position_embeddings"] - max(lengths))
    together, vectors = run_padded(session, rows, more)
    for row, hidden, vector in zip(rows, together, vectors, strict=True):
        (alone,), (own,) = run_padded(session, [row])
        assert np.array_equal(hidden, alone)
        np.testing.assert_allclose(vector, own, atol=1e-6)


@PROPERTY
@given(lengths=LENGTHS, seed=st.integers(0, 99))
def test_blocks_mind_no_neighbours_but_for_rounding(lengths: list[int], seed: int, encoder: Maker) -> None:
    session, rng = with_hidden_states(encoder("int4") / "model.onnx"), np.random.default_rng(seed)
    rows: Rows = [rng.integers(0, CONFIG["vocab_size"], length).tolist() for length in lengths]
    together, _ = run_padded(session, rows)
    for row, hidden in zip(rows, together, strict=True):
        np.testing.assert_allclose(hidden, run_padded(session, [row])[0][0], atol=1e-4)


@pytest.mark.parametrize("task", [*ENCODER_TASKS, "generate", "translate"])
def test_every_task_is_checked(task: str, task_bundle: Maker) -> None:
    bundle = Bundle.open(task_bundle(task))
    figures = batch_invariance(OpenedBundle(bundle))
    assert figures.keys() == {"rows", "max_difference", "identical"}
    assert figures["rows"] == ROWS
    assert 0 <= figures["identical"] <= ROWS
    assert figures["max_difference"] <= 1e-6
    assert (figures["identical"] == ROWS) == (figures["max_difference"] == 0)


@pytest.mark.parametrize("form", ["cpu", "int8", "int4", "channel"])
def test_decoders_of_every_form(form: str, decoder_bundle: Maker) -> None:
    bundle = Bundle.open(decoder_bundle(form))
    figures = batch_invariance(OpenedBundle(bundle), rows=8, seed=3)
    assert figures["rows"] == 8
    assert figures["max_difference"] <= 1e-5


def test_the_difference_is_that_of_verification(task_bundle: Maker) -> None:
    bundle = Bundle.open(task_bundle("classify"))
    opened = OpenedBundle(bundle)
    batches = random_batches(opened, ROWS, np.random.default_rng(0))
    expected = check_rows_alone(opened, opened.signature.outputs, batches)
    assert batch_invariance(opened)["max_difference"] == expected.worst.relative


def test_a_model_that_minds_its_neighbours_is_found_out(fp32_bundle: Path) -> None:
    bundle = Bundle.open(fp32_bundle)
    inner = open_graphs(bundle.path, bundle.manifest)

    class Minding:
        """Adds, to what each row gives, a hundredth of the largest number of the batch, as a common scale would."""

        def run(self, names: Any, feeds: Any) -> list[Any]:
            (vectors,) = inner.run(names, feeds)
            return [vectors + np.float32(0.01) * np.abs(vectors).max() * (len(vectors) > 1)]

    figures = batch_invariance(OpenedBundle(bundle, lambda graph: Minding()))
    assert figures["identical"] == 0
    assert figures["max_difference"] == pytest.approx(0.01, rel=0.1)


def test_batches_are_padded_on_the_right(fp32_bundle: Path) -> None:
    batches = list(random_batches(OpenedBundle.open(fp32_bundle), ROWS, np.random.default_rng(0)))
    masks = [batch.attention_mask for batch in batches]
    assert sum(map(len, masks)) == ROWS
    assert all((np.diff(mask, axis=1) <= 0).all() for mask in masks)
    assert any(mask.sum() < mask.size for mask in masks)
