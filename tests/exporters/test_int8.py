"""The arithmetic of int8, against arrays worked out by hand and against NumPy in float64."""

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

from edgebert_exporters.int8 import Rewriter, capping, quantize_columns, smoothing
from edgebert_exporters.linears import linears, weights

Floats = npt.NDArray[np.float32]


def test_columns_by_hand() -> None:
    weight = np.array([[1.27, -0.5, 0.0], [-0.635, 0.25, 0.0]], np.float32)
    integers, scale = quantize_columns(weight)
    assert integers.tolist() == [[127, -127, 0], [-64, 64, 0]]  # 63.5 rounds to the even 64
    np.testing.assert_allclose(scale, [0.01, 0.5 / 127, 1], rtol=1e-6)


@given(arrays(np.float32, (5, 3), elements=st.floats(-100, 100, width=32)))
def test_columns_are_off_by_half_a_step_at_most(weight: Floats) -> None:
    integers, scale = quantize_columns(weight)
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


def test_capping_by_hand() -> None:
    largest = np.concatenate([[24.0, 3.0], np.linspace(1, 2, 98)]).astype(np.float32)
    factor = capping(largest)  # of a hundred channels the largest one comes down to the second
    assert factor[0] == 8
    assert (factor[1:] == 1).all()
    assert (capping(np.zeros(4, np.float32)) == 1).all()


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
    rewriter = Rewriter(model)
    for linear in list(linears(model)):
        rewriter.linear([linear], largest)
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
    after = quantized(graph(producer, weight, bias, transposed), np.full(24, 9, np.float32))
    assert "Gemm" not in {node.op_type for node in after.graph}
    for optimize in (True, False):
        found = run(after, x, optimize)
        assert 1e-7 < np.abs(found - expected).max() < 0.02 * np.abs(expected).max()


@pytest.mark.parametrize(("producer", "outlier", "gain"), [("Gelu", 60.0, 0.5), ("LayerNormalization", 0.0, 0.85)])
def test_channels_with_large_numbers_cost_the_others_less(producer: str, outlier: float, gain: float) -> None:
    rng = np.random.default_rng(5)
    weight = rng.standard_normal((200, 16)).astype(np.float32)
    x = rng.standard_normal((50, 200)).astype(np.float32)
    x[:, 3] += outlier
    float32 = graph(producer, weight, None, True)
    watched = run(graph(producer, np.eye(200, dtype=np.float32), None, True), x)
    errors = []
    for largest in (np.abs(watched).max(0), np.ones(200, np.float32)):  # told about the channels, and not
        after = quantized(graph(producer, weight, None, True), largest)
        errors.append(np.abs(run(after, x) - run(float32, x)).mean())
    assert errors[0] < gain * errors[1]


@pytest.mark.parametrize("with_bias", [True, False])
def test_each_row_has_a_scale_of_its_own(with_bias: bool) -> None:
    """What NumPy makes of rows of any size by whole numbers, and the same beside any others, bit for bit."""
    rng = np.random.default_rng(4)
    weight = rng.standard_normal((32, 20)).astype(np.float32)
    bias = rng.standard_normal(20).astype(np.float32) if with_bias else None
    x = np.abs(rng.standard_normal((6, 32))) * np.array([1e-12, 1, 1e6, 0.03, 0, 40])[:, None]
    x = x.astype(np.float32)  # a Relu keeps it
    model = graph("Relu", weight, bias, True)
    Rewriter(model).in_rows(list(linears(model)))
    assert Counter(node.op_type for node in model.graph)["QGemm"] == 1
    integers, scale = quantize_columns(weight)
    largest = np.maximum(x.max(1, keepdims=True), 1e-30).astype(np.float64)
    whole = np.rint(x / largest * 127).astype(np.int64) @ integers.astype(np.int64)
    exact = whole / 127 * largest * scale + (0 if bias is None else bias)
    for optimize in (True, False):
        found = run(model, x, optimize)
        size = np.abs(exact - (0 if bias is None else bias)).max(1, keepdims=True)  # a number halfway may round anyhow
        assert (np.abs(found - exact) <= 0.01 * size + 1e-6 * np.abs(exact) + 1e-30).all()
        assert np.median(np.abs(found - exact) / np.maximum(size, 1e-30)) < 1e-6
        for row in range(len(x)):
            np.testing.assert_array_equal(run(model, x[row : row + 1], optimize)[0], found[row])


def test_a_table_of_many_rows_serves_lookup_and_product() -> None:
    """Both give the rows that the one array of whole numbers holds, each with a scale of its own."""
    rng = np.random.default_rng(2)
    weight = (rng.standard_normal((50, 16)) * rng.uniform(0.01, 10, (50, 1))).astype(np.float32)
    ids = ir.val("x", ir.DataType.INT64, ["n"])
    held = ir.Value(name="t", const_value=ir.tensor(weight, name="t"), shape=ir.Shape(weight.shape))
    found = ir.node("Gather", [held, ids], attributes={"axis": 0})
    product = ir.node("Gemm", [found.outputs[0], held], attributes={"transB": 1})
    for node, name, width in ((found, "rows", 16), (product, "y", 50)):
        (output,) = node.outputs
        output.name, output.shape = name, ir.Shape(["n", width])
        output.type = ir.TensorType(ir.DataType.FLOAT)
    body = ir.Graph(
        [ids],
        [*product.outputs, *found.outputs],
        nodes=[found, product],
        initializers=[held],
        opset_imports={"": 21},
        name="g",
    )
    model = ir.Model(body, ir_version=10)
    Rewriter(model).tied_rows(weights(model)["t"])
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    logits, rows = session.run(None, {"x": np.arange(50)})
    integers, scale = quantize_columns(weight.T)
    np.testing.assert_allclose(rows, (integers * scale).T, rtol=1e-6)
    wanted = rows.astype(np.float64) @ rows.T
    assert 0 < np.abs(logits - wanted).max() < 0.01 * np.abs(wanted).max()
    kept = [v.const_value.numpy() for v in model.graph.initializers.values() if v.uses() and v.const_value is not None]
    assert [array.dtype for array in kept if array.size == weight.size] == [np.int8]


def test_table_is_close_row_by_row(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    weight = (rng.standard_normal((300, 64)) * rng.uniform(0.01, 10, (300, 1))).astype(np.float32)
    weight[7] = 0
    ids = ir.val("x", ir.DataType.INT64, ["n"])
    held = ir.Value(name="t", const_value=ir.tensor(weight, name="t"))
    node = ir.node("Gather", [held, ids], attributes={"axis": 0})
    node.outputs[0].name, node.outputs[0].shape = "y", ir.Shape(["n", 64])
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    body = ir.Graph([ids], list(node.outputs), nodes=[node], initializers=[held], opset_imports={"": 21}, name="g")
    model = ir.Model(body, ir_version=10)
    rewriter = Rewriter(model)
    for table in weights(model).values():
        rewriter.table(table)
    found = run(model, np.arange(300))  # type: ignore[arg-type]
    error = np.abs(found - weight).max(1) / np.maximum(np.abs(weight).max(1), 1e-9)
    assert 0 < error.max() <= 0.5 / 127 * 1.01
    assert not found[7].any()


def saturating(activations: npt.NDArray[np.uint8], weights: npt.NDArray[np.int8]) -> npt.NDArray[np.int32]:
    """Multiply as CPUs without VNNI do: pairs of u8 x s8 products are added in 16 bits that saturate."""
    products = activations.astype(np.int32)[:, :, None] * weights.astype(np.int32)[None]  # (m, k, n)
    pairs = products[:, ::2] + products[:, 1::2]
    sums: npt.NDArray[np.int32] = np.clip(pairs, -32768, 32767).sum(1)
    return sums


def test_why_the_engine_must_ask_for_exact_products() -> None:
    activations, weights = np.full((1, 4), 255, np.uint8), np.full((4, 1), 127, np.int8)
    exact = activations.astype(np.int32) @ weights.astype(np.int32)
    assert saturating(activations, weights)[0, 0] == 2 * 32767 < exact[0, 0] == 4 * 255 * 127
