"""The QDQ form of linear layers, against NumPy in whole numbers, and on a model that was trained for it."""

from __future__ import annotations

import itertools
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
from onnx_ir.passes.common import RemoveUnusedNodesPass

from edgebert_exporters.graphs.graph_editor import GraphEditor
from edgebert_exporters.quantization.activation_ranges import Histogram, uint8_params
from edgebert_exporters.quantization.static_qdq import (
    MAX_BIAS,
    capping,
    quantize_static,
    quantize_static_embedding,
    to_static_int8,
)
from edgebert_exporters.quantization.weight_discovery import linears, weights

Floats = npt.NDArray[np.float32]
RNG = np.random.default_rng


def value(name: str, array: npt.NDArray[Any]) -> ir.Value:
    kind = ir.TensorType(ir.DataType.from_numpy(array.dtype))
    return ir.Value(name=name, const_value=ir.tensor(array, name=name), shape=ir.Shape(array.shape), type=kind)


def layer(kind: str, weight: Floats, bias: Floats | None) -> ir.Model:
    """Build ``x -> Identity -> Gemm or MatMul -> y``; of a ``transposed`` one the weight is (out, in)."""
    x = ir.val("x", ir.DataType.FLOAT, ["rows", weight.shape[0]])
    holds = [value("w", np.ascontiguousarray(weight.T) if kind == "transposed" else weight)]
    holds += [value("b", bias)] if bias is not None else []
    first = ir.node("Identity", [x])
    options = {"transB": 1} if kind == "transposed" else {}
    second = ir.node("MatMul" if kind == "MatMul" else "Gemm", [*first.outputs, *holds], attributes=options)
    (y,) = second.outputs
    y.name, y.type, y.shape = "y", ir.TensorType(ir.DataType.FLOAT), ir.Shape(["rows", weight.shape[1]])
    body = ir.Graph([x], [y], nodes=[first, second], initializers=holds, opset_imports={"": 21}, name="g")
    return ir.Model(body, ir_version=10)


def opened(model: ir.Model, optimized: Path | None = None) -> ort.InferenceSession:
    """Open a model as it is, or optimized with a copy of that written to a file."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if optimized is not None:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.optimized_model_filepath = str(optimized)
    return ort.InferenceSession(ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"])


def operators(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


def by_hand(x: Floats, weight: Floats, bias: Floats | None, low: float, high: float) -> npt.NDArray[np.float64]:
    """Multiply as the integer kernels do."""
    step, zero = uint8_params(low, high)
    integers, scale = to_static_int8(weight, step, [] if bias is None else [bias])
    whole = np.clip(np.rint(x / np.float32(step)) + zero, 0, 255).astype(np.int64) - zero
    units = scale.astype(np.float64) * step
    biased = 0 if bias is None else np.rint(bias / units)
    result: npt.NDArray[np.float64] = (whole @ integers.astype(np.int64) + biased) * units
    return result


@pytest.mark.parametrize(
    ("kind", "biased", "limits"),
    [
        *itertools.product(("Gemm", "transposed"), (True, False), ((-3.0, 5.0), (0.0, 4.0))),
        ("MatMul", False, (-4.0, 4.0)),
    ],
)
def test_a_layer_is_one_integer_kernel(kind: str, biased: bool, limits: tuple[float, float], tmp_path: Path) -> None:
    """For rows of any number, each of which gives the same bits alone and among others; as the arithmetic has it."""
    rng = RNG(1)
    weight = (rng.standard_normal((48, 20)) * rng.uniform(0.01, 3, 20)).astype(np.float32)
    bias = rng.standard_normal(20).astype(np.float32) if biased else None
    x = (3 * rng.standard_normal((300, 48))).astype(np.float32)  # some of which are cut off
    model = layer(kind, weight, bias)
    quantize_static(GraphEditor(model), list(linears(model)), limits, None)
    RemoveUnusedNodesPass()(model)
    assert {node.domain for node in model.graph} == {""}
    session = opened(model, tmp_path / "optimized.onnx")
    kernels = operators(ir.load(tmp_path / "optimized.onnx"))
    assert (kernels["QuantizeLinear"], kernels["QGemm"]) == (1, 1)
    assert kernels.keys() <= {"QuantizeLinear", "QGemm", "Identity"}
    expected = by_hand(x, weight, bias, *limits)
    together = session.run(None, {"x": x})[0]
    for rows in (together, opened(model).run(None, {"x": x})[0]):
        np.testing.assert_allclose(rows, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    for row in (0, 7, 299):
        np.testing.assert_array_equal(session.run(None, {"x": x[row : row + 1]})[0][0], together[row])


def test_layers_that_share_a_weight_have_one() -> None:
    weight = RNG(2).standard_normal((16, 8)).astype(np.float32)
    model = layer("transposed", weight, np.ones(8, np.float32))
    first = next(linear for linear in linears(model))
    second = ir.node("Gemm", [first.input, *first.node.inputs[1:]], attributes={"transB": 1})
    model.graph.append(second)
    quantize_static(GraphEditor(model), list(linears(model)), (-1, 1), None)
    RemoveUnusedNodesPass()(model)
    arrays = [v.const_value.numpy() for v in model.graph.initializers.values() if v.const_value is not None]
    assert [array.dtype.name for array in arrays if array.size == weight.size] == ["int8"]


def test_a_bias_always_fits() -> None:
    """That of a column without weights, with hardly any, and with some, in a step that makes it large."""
    rng = RNG(3)
    weight = rng.standard_normal((32, 4)).astype(np.float32)
    weight[:, 0], weight[:, 1] = 0, weight[:, 1] * 1e-12
    bias = np.array([3, -5, 7, 1e-3], np.float32)
    x = (rng.standard_normal((9, 32)) * 1e-4).astype(np.float32)
    model = layer("Gemm", weight, bias)
    quantize_static(GraphEditor(model), list(linears(model)), (-4e-4, 4e-4), None)
    output = opened(model).run(None, {"x": x})[0]
    exact = x.astype(np.float64) @ weight + bias
    np.testing.assert_allclose(output[:, :2], exact[:, :2], rtol=1e-6)
    assert np.abs(output - exact)[:, 2:].max() < 0.02 * np.abs(exact - bias).max()


@given(
    arrays(np.float32, (5, 3), elements=st.floats(-100, 100, width=32)),
    arrays(np.float32, (3,), elements=st.floats(-1e4, 1e4, width=32)),
    st.floats(1e-6, 10),
)
def test_columns_are_off_by_half_a_step_at_most(weight: Floats, bias: Floats, step: float) -> None:
    integers, scale = to_static_int8(weight, step, [bias])
    assert scale.dtype == np.float32
    assert integers.min() >= -127
    assert (np.abs(integers * scale.astype(np.float64) - weight) <= scale * 0.5001).all()
    assert (np.abs(bias) <= scale.astype(np.float64) * step * MAX_BIAS * 1.001 + 1e-30).all()


def test_a_bias_that_is_computed_is_added() -> None:
    model = layer("Gemm", np.eye(4, dtype=np.float32), np.ones(4, np.float32))
    (linear,) = linears(model)
    doubled = ir.node("Add", [linear.bias, linear.bias])
    model.graph.insert_before(linear.node, doubled)
    linear.node.replace_input_with(2, doubled.outputs[0])
    quantize_static(GraphEditor(model), list(linears(model)), (0, 255), None)
    output = opened(model).run(None, {"x": np.array([[0, 1, 100, 255]], np.float32)})[0]
    np.testing.assert_allclose(output, [[2, 3, 102, 257]], rtol=1e-5)


def test_capping_by_hand() -> None:
    largest = np.concatenate([[24.0, 3.0], np.linspace(1, 2, 98)]).astype(np.float32)
    factor = capping(largest)  # of a hundred channels the largest one comes down to the second
    assert factor[0] == 8
    assert (factor[1:] == 1).all()
    assert (capping(np.zeros(4, np.float32)) == 1).all()


def test_a_factor_makes_a_large_channel_cost_the_others_less() -> None:
    rng = RNG(5)
    weight, x = rng.standard_normal((200, 16)).astype(np.float32), rng.standard_normal((50, 200)).astype(np.float32)
    x[:, 3] += 60
    errors = []
    for factor in (None, capping(np.abs(x).max(0))):
        model, histogram = layer("Gemm", weight, None), Histogram(factor)
        histogram.observe(x)
        quantize_static(GraphEditor(model), list(linears(model)), histogram.range_by("min-max"), factor)
        errors.append(np.abs(opened(model).run(None, {"x": x})[0] - x @ weight).mean())
    assert errors[1] < 0.5 * errors[0]


def test_a_table_serves_lookup_and_product() -> None:
    rng = RNG(6)
    weight = (rng.standard_normal((50, 16)) * rng.uniform(0.01, 10, (50, 1))).astype(np.float32)
    ids, table = ir.val("x", ir.DataType.INT64, ["n"]), value("t", weight)
    gather = ir.node("Gather", [table, ids], attributes={"axis": 0})
    product = ir.node("Gemm", [gather.outputs[0], table], attributes={"transB": 1})
    for node, name, width in ((gather, "rows", 16), (product, "y", 50)):
        (output,) = node.outputs
        output.name, output.type, output.shape = name, ir.TensorType(ir.DataType.FLOAT), ir.Shape(["n", width])
    outputs = [*product.outputs, *gather.outputs]
    body = ir.Graph([ids], outputs, nodes=[gather, product], initializers=[table], opset_imports={"": 21}, name="g")
    model = ir.Model(body, ir_version=10)
    quantize_static_embedding(GraphEditor(model), weights(model)["t"], (float(weight.min()), float(weight.max())))
    RemoveUnusedNodesPass()(model)
    logits, rows = opened(model).run(None, {"x": np.arange(50)})
    assert (np.abs(rows - weight).max(1) <= np.abs(weight).max(1) / 254 * 1.001).all()
    expected = by_hand(rows, rows.T.copy(), None, float(weight.min()), float(weight.max()))
    np.testing.assert_allclose(logits, expected, atol=1e-4 * np.abs(expected).max())
    constants = [v.const_value.numpy() for v in model.graph.initializers.values() if v.const_value is not None]
    assert [array.dtype.name for array in constants if array.size == weight.size] == ["int8"]
    assert {node.domain for node in model.graph} == {""}
