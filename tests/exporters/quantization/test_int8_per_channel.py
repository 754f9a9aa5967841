"""The arithmetic of int8, against arrays worked out by hand and against NumPy in float64."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors import safe_open

from edgebert_exporters.graphs.graph_editor import GraphEditor
from edgebert_exporters.quantization.embeddings import quantize_embedding, quantize_embedding_per_token
from edgebert_exporters.quantization.int8_per_channel import (
    BOUNDED,
    MARGIN,
    DynamicPerToken,
    quantize_per_channel,
    smoothing,
    to_int8,
)
from edgebert_exporters.quantization.weight_discovery import linears, weights

Floats = npt.NDArray[np.float32]


def test_columns_by_hand() -> None:
    weight = np.array([[1.27, -0.5, 0.0], [-0.635, 0.25, 0.0]], np.float32)
    integers, scale = to_int8(weight)
    assert integers.tolist() == [[127, -127, 0], [-64, 64, 0]]  # 63.5 rounds to the even 64
    np.testing.assert_allclose(scale, [0.01, 0.5 / 127, 1], rtol=1e-6)


@given(arrays(np.float32, (5, 3), elements=st.floats(-100, 100, width=32)))
def test_columns_are_off_by_half_a_step_at_most(weight: Floats) -> None:
    integers, scale = to_int8(weight)
    assert integers.min() >= -127, "-128 has no positive counterpart"
    assert (np.abs(integers * scale.astype(np.float64) - weight) <= scale * 0.5001).all()


def test_smoothing_by_hand() -> None:
    weight = np.array([[1.0, -1.0], [1.0, 0.5]], np.float32)
    factor = smoothing(np.array([16.0, 1.0], np.float32), weight, strength=0.5)
    np.testing.assert_allclose(factor, [2, 0.5], rtol=1e-6)  # 16 and 1 move to 8 and 2


@given(arrays(np.float32, (6,), elements=st.floats(0, 1e4, width=32)), st.integers(0, 99))
def test_smoothing_changes_no_product(largest: Floats, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight, x = rng.standard_normal((6, 4)).astype(np.float32), rng.standard_normal((3, 6))
    factor = smoothing(largest, weight).astype(np.float64)
    assert (factor > 0).all()
    np.testing.assert_allclose((x / factor) @ (weight * factor[:, None]), x @ weight, rtol=1e-5, atol=1e-6)
    assert np.exp(np.log(factor).mean()) == pytest.approx(1, rel=1e-4)


def test_rows_behind_a_gelu_use_nearly_all_integers_for_what_is_above_zero() -> None:
    """The least that a Gelu gives, -0.17, is still a whole number in the row with the coarsest steps for its size."""
    gelu = BOUNDED["Gelu"]
    assert gelu.least_peak / gelu.levels * gelu.zero == pytest.approx(0.17)
    assert gelu.zero + gelu.levels == BOUNDED["Relu"].levels == DynamicPerToken().zero + DynamicPerToken().levels == 255
    x = np.linspace(-5, 5, 10001)
    assert -0.17 < (x * np.vectorize(math.erf)(x / math.sqrt(2)) / 2 + x / 2).min() < -0.1699


def graph(producer: str, weight: Floats, bias: Floats | None, transposed: bool) -> ir.Model:
    """Build ``x -> producer -> Gemm -> y``; LayerNormalization keeps x nearly as it is."""
    x = ir.val("x", ir.DataType.FLOAT, ["rows", weight.shape[0]])
    holds: dict[str, npt.NDArray[Any]] = {"w": np.ascontiguousarray(weight.T) if transposed else weight}
    if bias is not None:
        holds["b"] = bias
    if producer == "LayerNormalization":
        holds["gamma"] = np.linspace(0.1, 9, weight.shape[0]).astype(np.float32)
    values = {name: ir.Value(name=name, const_value=ir.tensor(array, name=name)) for name, array in holds.items()}
    inputs = [x, values["gamma"]] if producer == "LayerNormalization" else [x]
    first = ir.node(producer, inputs, domain="")
    gemm_inputs = [first.outputs[0], *(values[name] for name in ("w", "b") if name in values)]
    gemm = ir.node("Gemm", gemm_inputs, attributes={"transB": int(transposed)})
    y = gemm.outputs[0]
    y.name, y.type, y.shape = "y", ir.TensorType(ir.DataType.FLOAT), ir.Shape(["rows", weight.shape[1]])
    body = ir.Graph([x], [y], nodes=[first, gemm], initializers=list(values.values()), opset_imports={"": 21}, name="g")
    return ir.Model(body, ir_version=10)


def run(model: ir.Model, x: Floats, optimize: bool = True) -> Floats:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = ir.to_proto(model).SerializeToString()
    output: Floats = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    return output


def quantized(model: ir.Model, largest: Floats) -> ir.Model:
    editor = GraphEditor(model)
    for linear in list(linears(model)):
        quantize_per_channel(editor, [linear], {linear.input_name: largest})
    return model


PRODUCERS = ("Gelu", "LayerNormalization", "Relu")


@pytest.mark.parametrize(
    ("producer", "with_bias", "transposed"), list(itertools.product(PRODUCERS, [True, False], [True, False]))
)
def test_linear_is_close_to_float32(producer: str, with_bias: bool, transposed: bool) -> None:
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((24, 10)).astype(np.float32)
    bias = rng.standard_normal(10).astype(np.float32) if with_bias else None
    x = (rng.standard_normal((7, 24)) * 2).astype(np.float32)
    model = graph(producer, weight, bias, transposed)
    expected = run(model, x)
    peaks = np.abs(run(graph(producer, np.eye(24, dtype=np.float32), None, True), x)).max(0)
    after = quantized(graph(producer, weight, bias, transposed), peaks)
    assert "Gemm" not in {node.op_type for node in after.graph}
    for optimize in (True, False):
        output = run(after, x, optimize)
        assert 1e-7 < np.abs(output - expected).max() < 0.02 * np.abs(expected).max()


def test_channels_with_large_numbers_cost_the_others_less() -> None:
    rng = np.random.default_rng(5)
    weight = rng.standard_normal((200, 16)).astype(np.float32)
    x = rng.standard_normal((50, 200)).astype(np.float32)
    float32 = graph("LayerNormalization", weight, None, True)
    watched = np.abs(run(graph("LayerNormalization", np.eye(200, dtype=np.float32), None, True), x)).max(0)
    errors = []
    for largest in (watched, np.full(200, watched.max(), np.float32)):  # told about the channels, and not
        after = quantized(graph("LayerNormalization", weight, None, True), largest)
        errors.append(np.abs(run(after, x) - run(float32, x)).mean())
    assert errors[0] < 0.85 * errors[1]


def test_normalised_rows_have_one_scale_and_what_is_larger_is_cut_off() -> None:
    weight = np.random.default_rng(0).standard_normal((24, 10)).astype(np.float32)
    model = quantized(graph("LayerNormalization", weight, None, True), np.full(24, 2, np.float32))
    (quantize,) = (node for node in model.graph if node.op_type == "QuantizeLinear")
    assert quantize.inputs[1] is not None
    step, factor = quantize.inputs[1].const_value, model.graph.initializers["w.smoothing"].const_value
    assert step is not None
    assert factor is not None
    largest = 2 * factor.numpy().max()  # of what is left after smoothing
    assert step.numpy() == pytest.approx(largest * MARGIN / 127)
    x = np.zeros((1, 24), np.float32)
    x[0, 0] = 1e6  # which a normalisation makes as large as it can be, times gamma
    assert np.isfinite(run(model, x)).all()


@pytest.mark.parametrize("producer", ["Relu", "Gelu", "Sigmoid"])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("largest", [1, 3])
def test_other_rows_have_a_scale_of_their_own(producer: str, with_bias: bool, largest: float) -> None:
    """What NumPy makes of rows of any size by whole numbers, and the same beside any others, bit for bit."""
    rng = np.random.default_rng(4)
    weight = rng.standard_normal((32, 20)).astype(np.float32)
    bias = rng.standard_normal(20).astype(np.float32) if with_bias else None
    x = np.abs(rng.standard_normal((6, 32))) * np.array([1e-12, 1, 1e6, 0.03, 0, 40])[:, None]
    x[1] -= 1
    x = x.astype(np.float32)
    inputs = run(graph(producer, np.eye(32, dtype=np.float32), None, True), x).astype(np.float64)
    model = quantized(graph(producer, weight, bias, True), np.full(32, largest, np.float32))
    assert Counter(node.op_type for node in model.graph)["QGemm"] == 1
    how = BOUNDED[producer] if producer in BOUNDED and largest >= BOUNDED[producer].least_peak else DynamicPerToken()
    integers, scale = to_int8(weight)
    steps = np.maximum(np.abs(inputs).max(1, keepdims=True), how.least_peak) / how.levels
    whole = np.clip(np.rint(inputs / steps), -how.zero, how.levels).astype(np.int64) @ integers.astype(np.int64)
    exact = whole * steps * scale + (0 if bias is None else bias)
    for optimize in (True, False):
        output = run(model, x, optimize)
        size = np.abs(whole * steps * scale).max(1, keepdims=True)  # a number halfway may round anyhow
        assert (np.abs(output - exact) <= 0.01 * size + 1e-6 * np.abs(exact) + 1e-30).all()
        assert np.median(np.abs(output - exact) / np.maximum(size, 1e-30)) < 1e-6
        for row in range(len(x)):
            np.testing.assert_array_equal(run(model, x[row : row + 1], optimize)[0], output[row])


@pytest.mark.parametrize("bias", [1e-9, 1.0, 1e9])
def test_a_bias_is_as_exact_as_in_float32(bias: float) -> None:
    """One that whole numbers of the products' unit cannot express is added behind the product."""
    rng = np.random.default_rng(1)
    weight, biases = rng.standard_normal((16, 6)).astype(np.float32), np.full(6, bias, np.float32)
    weight[:, 2] = 0  # nothing but the bias comes out of this column
    model = quantized(graph("LayerNormalization", weight, biases, True), np.full(16, 9, np.float32))
    output = run(model, rng.standard_normal((5, 16)).astype(np.float32))
    np.testing.assert_allclose(output[:, 2], bias, rtol=1e-6)


def test_a_table_of_many_rows_serves_lookup_and_product() -> None:
    """Both give the rows that the one array of whole numbers holds, each with a scale of its own."""
    rng = np.random.default_rng(2)
    weight = (rng.standard_normal((50, 16)) * rng.uniform(0.01, 10, (50, 1))).astype(np.float32)
    ids = ir.val("x", ir.DataType.INT64, ["n"])
    table_value = ir.Value(name="t", const_value=ir.tensor(weight, name="t"), shape=ir.Shape(weight.shape))
    gather = ir.node("Gather", [table_value, ids], attributes={"axis": 0})
    product = ir.node("Gemm", [gather.outputs[0], table_value], attributes={"transB": 1})
    for node, name, width in ((gather, "rows", 16), (product, "y", 50)):
        (output,) = node.outputs
        output.name, output.shape = name, ir.Shape(["n", width])
        output.type = ir.TensorType(ir.DataType.FLOAT)
    body = ir.Graph(
        [ids],
        [*product.outputs, *gather.outputs],
        nodes=[gather, product],
        initializers=[table_value],
        opset_imports={"": 21},
        name="g",
    )
    model = ir.Model(body, ir_version=10)
    quantize_embedding_per_token(GraphEditor(model), weights(model)["t"], {"rows": np.abs(weight).max(0)})
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    logits, rows = session.run(None, {"x": np.arange(50)})
    integers, scale = to_int8(weight.T)
    np.testing.assert_allclose(rows, (integers * scale).T, rtol=1e-6)
    expected = rows.astype(np.float64) @ rows.T
    assert 0 < np.abs(logits - expected).max() < 0.01 * np.abs(expected).max()
    constants = [
        v.const_value.numpy() for v in model.graph.initializers.values() if v.uses() and v.const_value is not None
    ]
    assert [array.dtype for array in constants if array.size == weight.size] == [np.int8]


def test_table_is_close_row_by_row(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    weight = (rng.standard_normal((300, 64)) * rng.uniform(0.01, 10, (300, 1))).astype(np.float32)
    weight[7] = 0
    ids = ir.val("x", ir.DataType.INT64, ["n"])
    table_value = ir.Value(name="t", const_value=ir.tensor(weight, name="t"))
    node = ir.node("Gather", [table_value, ids], attributes={"axis": 0})
    node.outputs[0].name, node.outputs[0].shape = "y", ir.Shape(["n", 64])
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    body = ir.Graph(
        [ids], list(node.outputs), nodes=[node], initializers=[table_value], opset_imports={"": 21}, name="g"
    )
    model = ir.Model(body, ir_version=10)
    editor = GraphEditor(model)
    for table in weights(model).values():
        quantize_embedding(editor, table)
    output = run(model, np.arange(300))  # type: ignore[arg-type]
    error = np.abs(output - weight).max(1) / np.maximum(np.abs(weight).max(1), 1e-9)
    assert 0 < error.max() <= 0.5 / 127 * 1.01
    assert not output[7].any()


def saturating(activations: npt.NDArray[np.uint8], weights: npt.NDArray[np.int8]) -> npt.NDArray[np.int64]:
    """Multiply as CPUs without VNNI do: pairs of u8 x s8 products are added in 16 bits that saturate."""
    products = activations.astype(np.int64)[:, :, None] * weights.astype(np.int64)[None]  # (m, k, n)
    sums: npt.NDArray[np.int64] = np.clip(products[:, ::2] + products[:, 1::2], -32768, 32767).sum(1)
    return sums


def unsigned(activations: npt.NDArray[np.uint8], weights: npt.NDArray[np.int8]) -> npt.NDArray[np.int64]:
    """Multiply as they do when asked to be exact: weights become u8, pairs of products are added in 32 bits."""
    moved = (weights.astype(np.int64) + 128).astype(np.uint8).astype(np.int64)
    pairs = activations.astype(np.int64)[:, :, None] * moved[None]
    summed = pairs[:, ::2] + pairs[:, 1::2]
    assert summed.max() < 2**31
    sums: npt.NDArray[np.int64] = summed.sum(1) - 128 * activations.astype(np.int64).sum(1, keepdims=True)
    return sums


def real_layer() -> npt.NDArray[np.int8]:
    """Return a weight (in, out) of the trained GPT in samples/."""
    with safe_open(Path(__file__).parents[3] / "samples/sotu_gpt/model.safetensors", "np") as file:
        name = next(key for key in file.keys() if key.endswith("mlp.c_fc.weight"))  # noqa: SIM118
        return to_int8(file.get_tensor(name).astype(np.float32))[0]


@pytest.mark.parametrize("kind", ["adversarial", "real"])
def test_why_the_engine_must_ask_for_exact_products(kind: str) -> None:
    """Weights of 8 bits saturate without VNNI, unless they are made unsigned first; no bit of them is given up."""
    rng = np.random.default_rng(0)
    weights = real_layer() if kind == "real" else rng.choice(np.array([-127, 127], np.int8), (64, 8))
    rows = rng.integers(0, 256, (4, len(weights)), np.uint8)
    rows[0] = 255
    exact = rows.astype(np.int64) @ weights.astype(np.int64)
    assert (saturating(rows, weights) != exact).any()
    np.testing.assert_array_equal(unsigned(rows, weights), exact)


def test_the_engine_s_option_makes_every_weight_unsigned(int8_bundle: Path, tmp_path: Path) -> None:
    """What session.py asks for where a CPU would saturate reaches every integer product of a bundle."""
    options = ort.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    ort.InferenceSession(str(int8_bundle / "model.onnx"), options, providers=["CPUExecutionProvider"])
    place = {"QGemm": 3, "QAttention": 1}
    nodes = [node for node in ir.load(tmp_path / "optimized.onnx").graph if node.op_type in place]
    quantized_weights = [node.inputs[place[node.op_type]] for node in nodes]
    assert {node.op_type for node in nodes} == set(place)
    assert {v.const_value.dtype for v in quantized_weights if v is not None and v.const_value is not None} == {
        ir.DataType.UINT8
    }
