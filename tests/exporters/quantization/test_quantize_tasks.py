"""Quantization of heads, of shared and tied weights, and of widths that kernels do not take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from safetensors.torch import load_file, save_file

from edgebert_exporters import export_checkpoint, quantize_bundle, verify_bundle
from edgebert_exporters.graphs.signatures import ENCODER_TASKS
from edgebert_exporters.quantization.blockwise import quantize_blocks
from edgebert_exporters.quantization.embeddings import embedding_block
from edgebert_runtime import Bundle
from edgebert_runtime.errors import QuantizationError
from tests.support.tiny import CONFIG, write_checkpoint

TOKENS = "bert.embeddings.token_embedding.weight"
VOCAB = 5000
SINGLE = ("rerank", "multiple-choice")
HEADS = tuple(task for task in ENCODER_TASKS if task != "embed")
# Products by a weight: four of each layer, and those of the head.
PRODUCTS = 4 * CONFIG["num_hidden_layers"]
IN_HEAD = {"tag": ["out"], "answer": ["out"], "fill-mask": ["dense"]}


Make = Callable[..., tuple[Bundle, Bundle]]


@pytest.fixture(scope="module")
def make_pair(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Return a function that makes a float32 and an int8 bundle with a vocabulary worth quantizing."""

    @cache
    def make(**changed: Any) -> tuple[Bundle, Bundle]:
        folder = tmp_path_factory.mktemp("made")
        source = write_checkpoint(folder / "source", vocab_size=VOCAB, **changed)
        before = export_checkpoint(source, folder / "fp32")
        after = quantize_bundle(before.path, folder / "int8", min_fidelity=0.95)
        verify_bundle(after.path, source)
        return before, after

    return make


def initializers(bundle: Bundle) -> dict[str, npt.NDArray[Any]]:
    constants = ir.load(bundle.path / "model.onnx").graph.initializers
    return {name: value.const_value.numpy() for name, value in constants.items() if value.const_value is not None}


def stored(bundle: Bundle) -> int:
    return sum(entry.bytes for name, entry in bundle.manifest.files.items() if name.endswith((".onnx", ".bin")))


@pytest.mark.parametrize("task", HEADS)
def test_every_task_with_its_own_figures(
    task: str, task_bundle: Callable[[str], Path], task_checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    manifest = quantize_bundle(task_bundle(task), tmp_path / "b").manifest
    fidelity = manifest.report["fidelity"]
    more = {"correlation"} if task in SINGLE else {"top1_agreement", "flip_rate", "kl_mean"}
    assert set(fidelity) == {"texts", "cosine_mean", "cosine_min", "cosines"} | more
    assert fidelity["texts"] > 50
    assert 0.99 < fidelity["cosine_mean"] < 1
    assert fidelity.get("correlation", 1) > 0.99
    assert fidelity.get("top1_agreement", 1) > 0.9
    assert 0 <= fidelity.get("kl_mean", 0) < 0.01
    heads = {f"head.{part}.weight" for part in IN_HEAD.get(task, ["dense", "out"])}
    skipped = manifest.weights.skipped
    assert {name for name in skipped if name.startswith("head.")} == heads
    assert all("only" in skipped[name] and "wide" in skipped[name] for name in heads)
    tied = task == "fill-mask"  # its table is small here, and the product by it stays with it
    assert manifest.weights.coverage == (PRODUCTS, PRODUCTS + len(heads) + tied)
    assert manifest.settings == Bundle.open(task_bundle(task)).manifest.settings
    assert verify_bundle(tmp_path / "b", task_checkpoint(task))["reference"]["cosine"] > 0.99


def test_agreement_of_one_number_is_a_correlation(task_bundle: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(QuantizationError, match=r"has a correlation of 0\.\d{4} to float32, less than 1"):
        quantize_bundle(task_bundle("rerank"), tmp_path / "b", min_fidelity=1)
    assert not list(tmp_path.iterdir())


def test_a_tied_table_is_quantized_once(make_pair: Make) -> None:
    before, after = make_pair(task="fill-mask")
    unique = sum(array.nbytes for array in initializers(before).values())
    assert Counter(array.shape for array in initializers(before).values())[VOCAB, CONFIG["hidden_size"]] == 1
    assert unique < stored(before) < 1.1 * unique
    assert after.manifest.report["coverage"]["embeddings"] == [TOKENS]
    assert after.manifest.weights.coverage == (PRODUCTS + 1, PRODUCTS + 2)
    constants = initializers(after)
    large = {name: array for name, array in constants.items() if array.size >= VOCAB * CONFIG["hidden_size"]}
    assert {name: array.dtype.name for name, array in large.items()} == {f"{TOKENS}.int8": "int8"}
    assert stored(after) < 0.4 * stored(before)
    nodes = ir.load(after.path / "model.onnx").graph
    users = Counter(n.op_type for n in nodes for v in n.inputs if v is not None and v.name == f"{TOKENS}.int8")
    assert users == {"Gather": 1, "QGemm": 1}


def test_a_tied_table_gives_what_its_numbers_say(make_pair: Make) -> None:
    before, after = make_pair(task="fill-mask")
    constants, table = initializers(after), initializers(before)[TOKENS]
    numbers = constants[f"{TOKENS}.int8"].astype(np.float64) * constants[f"{TOKENS}.scale"][:, None]
    assert (np.abs(numbers - table) <= constants[f"{TOKENS}.scale"][:, None] * 0.5001).all()
    model = ir.load(after.path / "model.onnx")
    used = [(node, v.name) for node in model.graph for v in node.inputs if v is not None]
    (product,) = (node for node, name in used if name == f"{TOKENS}.int8" and node.op_type == "QGemm")
    quantized = product.inputs[0]
    assert quantized is not None
    rounds = quantized.producer()
    assert rounds is not None
    (lookup,) = (node for node, name in used if name == f"{TOKENS}.int8" and node.op_type == "Gather")
    (cast,) = lookup.outputs[0].consumers()
    (scaled,) = cast.outputs[0].consumers()
    watched = [rounds.inputs[0], scaled.outputs[0]]
    model.graph.outputs.extend(value for value in watched if value is not None)
    session = ort.InferenceSession(
        ir.to_proto(ir.external_data.load_to_model(model)).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    ids = np.random.default_rng(0).integers(0, VOCAB, (2, 9))
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    logits, hidden, rows = session.run(None, {**feeds, "logits_indices": np.array([3, 17, 8])})
    np.testing.assert_allclose(rows.reshape(2, 9, -1), numbers[ids], rtol=1e-6)
    exact = hidden.astype(np.float64) @ numbers.T + constants["head.bias"]
    assert 0 < np.abs(logits - exact).max() < 0.02 * np.abs(exact).max()


def test_excluding_a_tied_table_leaves_both_uses(make_pair: Make, tmp_path: Path) -> None:
    before, _ = make_pair(task="fill-mask")
    after = quantize_bundle(before.path, tmp_path / "b", exclude=["*.token_embedding.weight"])
    assert after.manifest.weights.skipped[TOKENS] == "excluded by the user"
    users = Counter(
        n.op_type for n in ir.load(after.path / "model.onnx").graph for v in n.inputs if v and v.name == TOKENS
    )
    assert users == {"Gather": 1, "Gemm": 1}
    assert stored(after) < stored(before)


def test_an_untied_decoder_is_a_linear_layer(tmp_path: Path) -> None:
    settings = {"tie_word_embeddings": False}
    source = write_checkpoint(tmp_path / "source", task="fill-mask", vocab_size=VOCAB, settings=settings)
    weights = load_file(source / "model.safetensors")
    weights["cls.predictions.decoder.weight"] = torch.randn(VOCAB, CONFIG["hidden_size"])
    weights["cls.predictions.decoder.bias"] = weights["cls.predictions.bias"].clone()
    save_file(weights, source / "model.safetensors")
    before = export_checkpoint(source, tmp_path / "fp32")
    after = quantize_bundle(before.path, tmp_path / "int8")
    assert after.manifest.weights.coverage == (PRODUCTS + 1, PRODUCTS + 2)
    constants = initializers(after)
    assert constants["head.out.weight.int8"].shape == (VOCAB, CONFIG["hidden_size"])
    assert constants[f"{TOKENS}.uint8"].shape == (VOCAB, CONFIG["hidden_size"])
    assert "MatMulNBits" not in {node.op_type for node in ir.load(after.path / "model.onnx").graph}


def test_layers_that_share_weights_still_do(make_pair: Make) -> None:
    layers = 4  # an even number: weights that are turned around once for each layer would come out as they went in
    before, after = make_pair(task="fill-mask", model_type="albert", num_hidden_layers=layers, embedding_size=16)
    # Beside those of the layers there are the projection, the hidden layer of the head and the tied table.
    assert after.manifest.weights.coverage == (4 * layers + 2, 4 * layers + 3)
    constants, nodes = initializers(after), ir.load(after.path / "model.onnx").graph
    for part in ("qkv", "attention_output", "ffn_up", "ffn_down"):
        name = f"bert.layers.0.{part}.weight"
        assert f"{name}.int8" in constants
        assert name not in constants
        assert sum(v is not None and v.name == f"{name}.int8" for n in nodes for v in n.inputs) == layers
    assert sum(array.dtype == np.int8 and array.ndim == 2 for array in constants.values()) == 6  # and the tied table
    assert stored(after) < 0.5 * stored(before)
    assert after.manifest.report["fidelity"]["cosine_mean"] > 0.99


def test_widths_that_no_block_divides_stay_float32(make_pair: Make) -> None:
    before, after = make_pair(task="fill-mask", hidden_size=312, num_attention_heads=12)
    assert after.manifest.weights.skipped[TOKENS] == (
        "an embedding with rows of 312 numbers, which no block of 16 or a larger power of two divides"
    )
    assert after.manifest.weights.coverage == (PRODUCTS + 1, PRODUCTS + 2)  # the hidden layer of the head is wide
    assert stored(after) < stored(before)


def test_blocks_by_hand() -> None:
    assert [embedding_block(dim) for dim in (768, 384, 64, 48, 16, 312, 8, 100, 1)] == [128, 128, 64, 16, 16] + [
        None
    ] * 4
    table = np.zeros((2, 32), np.float32)
    table[0, :3], table[1, 31] = (1.27, -1.27, 0.01), 127
    integers, scale, _ = quantize_blocks(table, 8, 32)
    assert (integers.shape, scale.shape) == ((2, 1, 32), (2, 1))
    assert integers[0, 0, :4].tolist() == [255, 1, 129, 128]
    np.testing.assert_allclose(scale[:, 0], [0.01, 1], rtol=1e-6)
