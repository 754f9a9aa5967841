"""The arithmetic of weights in blocks, against arrays worked out by hand and against NumPy in float64."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgebert_exporters.blocks import BLOCK_SIZES, fitting_block, quantize_blocks
from edgebert_exporters.int8 import Rewriter
from edgebert_exporters.linears import linears

Floats = npt.NDArray[np.float32]


def numbers(integers: npt.NDArray[np.uint8], scale: Floats, bits: int, inputs: int) -> npt.NDArray[np.float64]:
    """Return the weight (out, in) that integers and scales stand for, taken apart number by number."""
    if bits == 4:
        integers = np.stack([integers % 16, integers // 16], -1).reshape(*integers.shape[:2], -1)
    half = 2 ** (bits - 1)
    values: npt.NDArray[np.float64] = (integers.astype(np.float64) - half) * scale[..., None]
    return values.reshape(len(integers), -1)[:, :inputs]


def test_eight_bits_by_hand() -> None:
    weight = np.zeros((2, 32), np.float32)
    weight[0, :3], weight[1, 31] = (1.27, -1.27, 0.01), 127
    integers, scale = quantize_blocks(weight, 8, 16)
    assert (integers.shape, scale.shape) == ((2, 2, 16), (2, 2))
    assert integers[0, 0, :4].tolist() == [255, 1, 129, 128]
    assert (integers[1, 0] == 128).all()
    np.testing.assert_allclose(scale, np.array([[0.01, 1], [1, 1]]), rtol=1e-6)


def test_four_bits_by_hand() -> None:
    weight = np.zeros((1, 16), np.float32)
    weight[0, :4] = (-8, 7, 1, -3)  # whole numbers that four bits hold
    integers, scale = quantize_blocks(weight, 4, 16)
    assert integers.shape == (1, 1, 8)
    assert scale.tolist() == [[1]]
    assert integers[0, 0].tolist() == [0 + 16 * 15, 9 + 16 * 5, *[8 + 16 * 8] * 6]
    turned, negative = quantize_blocks(-weight, 4, 16)  # the largest number gets the side with one more
    assert turned.tolist() == integers.tolist()
    assert negative.tolist() == [[-1]]


ONES = np.ones((3, 40), np.float32)
ONES[0, 0] = -1


@example(ONES, 4)
@given(arrays(np.float32, (3, 40), elements=st.floats(-100, 100, width=32)), st.sampled_from([4, 8]))
def test_numbers_are_off_by_little(weight: Floats, bits: int) -> None:
    integers, scale = quantize_blocks(weight, bits, 16)
    assert integers.shape == (3, 3, 16 * bits // 8)
    assert np.isfinite(scale).all()
    assert (scale != 0).all()
    found = numbers(integers, scale, bits, 40)
    largest = np.abs(np.pad(weight, [(0, 0), (0, 8)]).reshape(3, 3, 16)).max(2)
    error = np.sqrt(((np.pad(found - weight, [(0, 0), (0, 8)])).reshape(3, 3, 16) ** 2).mean(2))
    step = largest / (127 if bits == 8 else 8)
    # Of 4 bits the shorter side ends at 7, with the largest scale tried at 7.42 of the 8 steps.
    most = 0.5001 if bits == 8 else 0.5801
    assert (error <= most * step + 1e-30).all()


def test_the_best_scale_is_no_worse_than_the_usual_ones() -> None:
    weight = np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32)
    found = numbers(*quantize_blocks(weight, 4, 32), 4, 96)
    blocks = weight.reshape(64, 3, 32).astype(np.float64)
    signed = np.take_along_axis(blocks, np.abs(blocks).argmax(2)[..., None], 2)
    errors = []
    for scale in (np.abs(signed) / 7, signed / -8):  # the symmetric range, and the full one
        errors.append(((np.clip(np.rint(blocks / scale), -8, 7) * scale - blocks) ** 2).mean())
    assert ((found - weight) ** 2).mean() < 0.93 * min(errors)


def test_long_weights_are_quantized_in_parts_that_fit_together() -> None:
    weight = np.random.default_rng(0).standard_normal((1100, 32)).astype(np.float32)
    whole = quantize_blocks(weight, 4, 32)
    ends = [quantize_blocks(part, 4, 32) for part in (weight[:10], weight[-10:])]
    for index in (0, 1):
        np.testing.assert_array_equal(whole[index][:10], ends[0][index])
        np.testing.assert_array_equal(whole[index][-10:], ends[1][index])


def test_blocks_are_no_longer_than_needed() -> None:
    assert [fitting_block(128, inputs) for inputs in (8, 16, 17, 32, 64, 65, 128, 768)] == [16, 16, 32, 32, 64] + [
        128
    ] * 3
    assert fitting_block(16, 768) == 16


def graph(weight: Floats, bias: Floats | None) -> ir.Model:
    """Build ``x -> Gemm -> y`` with a weight (in, out) as PyTorch stores it."""
    holds = {"w": np.ascontiguousarray(weight.T)} | ({} if bias is None else {"b": bias})
    values = [ir.Value(name=name, const_value=ir.tensor(array, name=name)) for name, array in holds.items()]
    x = ir.val("x", ir.DataType.FLOAT, ["rows", weight.shape[0]])
    gemm = ir.node("Gemm", [x, *values], attributes={"transB": 1})
    y = gemm.outputs[0]
    y.name, y.type, y.shape = "y", ir.TensorType(ir.DataType.FLOAT), ir.Shape(["rows", weight.shape[1]])
    return ir.Model(
        ir.Graph([x], [y], nodes=[gemm], initializers=values, opset_imports={"": 21}, name="g"), ir_version=10
    )


@pytest.mark.parametrize(("bits", "block"), list(itertools.product((8, 4), BLOCK_SIZES)))
@pytest.mark.parametrize(("inputs", "outputs"), [(48, 7), (100, 64), (384, 33)])
def test_product_is_that_of_the_stored_numbers(bits: int, block: int, inputs: int, outputs: int) -> None:
    """Widths that are no multiple of a block as well, with a bias and without, for one row and for many."""
    rng = np.random.default_rng(bits + block)
    weight = rng.standard_normal((inputs, outputs)).astype(np.float32)
    for bias in (rng.standard_normal(outputs).astype(np.float32), None):
        model = graph(weight, bias)
        Rewriter(model).in_blocks(list(linears(model)), bits, block)
        held = {name: v.const_value.numpy() for name, v in model.graph.initializers.items() if v.const_value}
        exact = numbers(held[f"w.uint{bits}"], held["w.scale"], bits, inputs)
        session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
        for rows in (1, 9):
            x = rng.standard_normal((rows, inputs)).astype(np.float32)
            found = session.run(None, {"x": x})[0]
            expected = x.astype(np.float64) @ exact.T + (0 if bias is None else bias)
            assert np.abs(found - expected).max() < 0.02 * np.abs(expected).max()  # inputs are rounded to 8 bits
            alone = np.concatenate([session.run(None, {"x": row[None]})[0] for row in x])
            np.testing.assert_allclose(found, alone, atol=1e-4)
