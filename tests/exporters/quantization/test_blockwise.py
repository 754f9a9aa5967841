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

from edgebert_exporters.graphs.graph_editor import GraphEditor
from edgebert_exporters.quantization.blockwise import (
    BLOCK_SIZES,
    Blocks,
    dequantize,
    fit_params,
    fitting_block,
    quantization_error,
    quantize_blocks,
)
from edgebert_exporters.quantization.embeddings import quantize_blockwise
from edgebert_exporters.quantization.weight_discovery import linears

Floats = npt.NDArray[np.float32]


def numbers(blocks: Blocks, bits: int, inputs: int) -> npt.NDArray[np.float64]:
    """Return the weight (out, in) that blocks stand for, taken apart number by number."""
    integers, zeros = blocks.integers, blocks.zeros
    if bits == 4:
        integers = np.stack([integers % 16, integers // 16], -1).reshape(*integers.shape[:2], -1)
        zeros = None if zeros is None else np.stack([zeros % 16, zeros // 16], -1).reshape(len(zeros), -1)
    middle = np.full(integers.shape[:2], 2 ** (bits - 1)) if zeros is None else zeros[:, : integers.shape[1]]
    values = (integers.astype(np.float64) - middle[..., None]) * blocks.scale[..., None]
    return values.reshape(len(integers), -1)[:, :inputs]


def test_eight_bits_by_hand() -> None:
    weight = np.zeros((2, 32), np.float32)
    weight[0, :3], weight[1, 31] = (1.27, -1.27, 0.01), 127
    integers, scale, zeros = quantize_blocks(weight, 8, 16)
    assert (integers.shape, scale.shape) == ((2, 2, 16), (2, 2))
    assert integers[0, 0, :4].tolist() == [255, 1, 129, 128]
    assert (integers[1, 0] == 128).all()
    np.testing.assert_allclose(scale, np.array([[0.01, 1], [1, 1]]), rtol=1e-6)
    assert zeros is None


def test_four_bits_by_hand() -> None:
    weight = np.zeros((1, 16), np.float32)
    weight[0, :4] = (-8, 7, 1, -3)  # whole numbers that four bits hold
    integers, scale, _ = quantize_blocks(weight, 4, 16)
    assert integers.shape == (1, 1, 8)
    assert scale.tolist() == [[1]]
    assert integers[0, 0].tolist() == [0 + 16 * 15, 9 + 16 * 5, *[8 + 16 * 8] * 6]
    turned, negative, _ = quantize_blocks(-weight, 4, 16)  # the largest number gets the side with one more
    assert turned.tolist() == integers.tolist()
    assert negative.tolist() == [[-1]]


def test_asymmetric_blocks_by_hand() -> None:
    weight = np.zeros((2, 40), np.float32)
    weight[0, :3] = (-3, 12, 5)
    weight[0, 16:18] = (0, 15)
    weight[0, 32:34] = (-15, -4)
    integers, scale, zeros = quantize_blocks(weight, 4, 16, asymmetric=True)
    assert integers[0, 0].tolist() == [0 + 16 * 15, 8 + 16 * 3, *[3 + 16 * 3] * 6]
    assert integers[0, 1, :2].tolist() == [0 + 16 * 15, 0]
    assert integers[0, 2, :2].tolist() == [0 + 16 * 11, 15 + 16 * 15]
    assert scale[0].tolist() == [1, 1, 1]
    assert zeros is not None
    assert zeros[0].tolist() == [3 + 16 * 0, 15]  # three blocks, and a half byte with nothing in it
    weight[1, :2] = (-0.55, 2)
    integers, scale, zeros = quantize_blocks(weight[1:], 8, 64, asymmetric=True)
    assert zeros is not None
    assert (integers.shape, zeros.tolist()) == ((1, 1, 64), [[55]])
    assert integers[0, 0, :3].tolist() == [0, 255, 55]
    np.testing.assert_allclose(scale, [[0.01]], rtol=1e-6)


ONES = np.ones((3, 40), np.float32)
ONES[0, 0] = -1


@example(ONES, 4, False)
@example(ONES, 4, True)
@given(arrays(np.float32, (3, 40), elements=st.floats(-100, 100, width=32)), st.sampled_from([4, 8]), st.booleans())
def test_numbers_are_off_by_little(weight: Floats, bits: int, asymmetric: bool) -> None:
    blocks = quantize_blocks(weight, bits, 16, asymmetric)
    assert blocks.integers.shape == (3, 3, 16 * bits // 8)
    assert np.isfinite(blocks.scale).all()
    assert (blocks.scale != 0).all()
    rounded = numbers(blocks, bits, 40)
    np.testing.assert_allclose(dequantize(blocks, bits, 40), rounded, rtol=1e-6)
    cut = np.pad(weight, [(0, 0), (0, 8)]).reshape(3, 3, 16)
    error = np.sqrt(((np.pad(rounded - weight, [(0, 0), (0, 8)])).reshape(3, 3, 16) ** 2).mean(2))
    if asymmetric:  # zero is a whole number of steps, for which one is wider by 1 / 14 at most
        step, most = (np.maximum(cut.max(2), 0) - np.minimum(cut.min(2), 0)) / (2**bits - 1), 0.5358
    else:  # of 4 bits the shorter side ends at 7, with the largest scale tried at 7.42 of the 8 steps
        step, most = np.abs(cut).max(2) / (127 if bits == 8 else 8), 0.5001 if bits == 8 else 0.5801
    assert (error <= most * step + 1e-30).all()


def test_the_best_scale_is_no_worse_than_the_usual_ones() -> None:
    weight = np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32)
    rounded = numbers(quantize_blocks(weight, 4, 32), 4, 96)
    blocks = weight.reshape(64, 3, 32).astype(np.float64)
    signed = np.take_along_axis(blocks, np.abs(blocks).argmax(2)[..., None], 2)
    errors = []
    for scale in (np.abs(signed) / 7, signed / -8):  # the symmetric range, and the full one
        errors.append(((np.clip(np.rint(blocks / scale), -8, 7) * scale - blocks) ** 2).mean())
    assert ((rounded - weight) ** 2).mean() < 0.93 * min(errors)


@pytest.mark.parametrize(("bits", "share"), [(4, 0.95), (8, 0.85)])
def test_asymmetric_blocks_are_better_where_blocks_lean_to_one_side(bits: int, share: float) -> None:
    rng = np.random.default_rng(0)
    for middle, most in ((0, share), (1, 0.7)):
        weight = (rng.standard_normal((64, 96)) + middle).astype(np.float32)
        even, lopsided = (
            numbers(quantize_blocks(weight, bits, 32, asymmetric), bits, 96) for asymmetric in (False, True)
        )
        assert ((lopsided - weight) ** 2).mean() < most * ((even - weight) ** 2).mean()


def test_important_numbers_get_the_smaller_errors() -> None:
    values = np.random.default_rng(0).standard_normal((200, 1, 32)).astype(np.float32)
    importance = np.where(np.arange(32) < 8, 100, 1).astype(np.float32)[None]
    for asymmetric in (False, True):
        plain, weighted = (
            quantization_error(values, fit_params(values, 4, asymmetric, counts), 4) ** 2
            for counts in (None, importance)
        )
        assert weighted[..., :8].mean() < 0.9 * plain[..., :8].mean()
        assert plain.mean() < weighted.mean()


def test_long_weights_are_quantized_in_parts_that_fit_together() -> None:
    weight = np.random.default_rng(0).standard_normal((1100, 32)).astype(np.float32)
    whole = quantize_blocks(weight, 4, 16, asymmetric=True)
    ends = [quantize_blocks(part, 4, 16, asymmetric=True) for part in (weight[:10], weight[-10:])]
    for whole_array, first, last in zip(whole, *ends, strict=True):
        assert whole_array is not None
        np.testing.assert_array_equal(whole_array[:10], first)
        np.testing.assert_array_equal(whole_array[-10:], last)


def test_blocks_are_no_longer_than_needed() -> None:
    assert [fitting_block(128, inputs) for inputs in (8, 16, 17, 32, 64, 65, 128, 768)] == [16, 16, 32, 32, 64] + [
        128
    ] * 3
    assert fitting_block(16, 768) == 16


def multiplied(x: Floats, blocks: Blocks, bits: int, block: int, level: int) -> npt.NDArray[np.float64]:
    """Multiply rows (n, in) by a weight in blocks with the kernel itself."""
    options = {"bits": bits, "block_size": block, "K": x.shape[1], "N": len(blocks.scale), "accuracy_level": level}
    named = zip(("weight", "scale", "zeros"), blocks, strict=True)
    holds = [ir.tensor(array, name=name) for name, array in named if array is not None]
    values = [ir.Value(name=tensor.name, const_value=tensor) for tensor in holds]
    source = ir.val("x", ir.DataType.FLOAT, ["rows", x.shape[1]])
    node = ir.node("MatMulNBits", [source, *values], attributes=options, domain="com.microsoft")
    result = node.outputs[0]
    result.name, result.type = "y", ir.TensorType(ir.DataType.FLOAT)
    opsets = {"": 21, "com.microsoft": 1}
    graph = ir.Graph([source], [result], nodes=[node], initializers=values, opset_imports=opsets, name="g")
    data = ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString()
    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    product: npt.NDArray[np.float64] = session.run(None, {"x": x})[0].astype(np.float64)
    return product


@pytest.mark.parametrize(("bits", "block"), list(itertools.product((8, 4), BLOCK_SIZES)))
@pytest.mark.parametrize("asymmetric", [False, True])
def test_the_kernel_reads_the_layout(bits: int, block: int, asymmetric: bool) -> None:
    """Odd widths and odd numbers of blocks as well, with inputs in float32 and rounded to 8 bits, few rows and many."""
    rng = np.random.default_rng(bits + block)
    for inputs, outputs in ((48, 7), (101, 64), (384, 33), (777, 18)):
        weight = (rng.standard_normal((outputs, inputs)) + 0.5).astype(np.float32)
        blocks = quantize_blocks(weight, bits, block, asymmetric)
        for rows in (1, 9):
            x = rng.standard_normal((rows, inputs)).astype(np.float32)
            expected = x.astype(np.float64) @ numbers(blocks, bits, inputs).T
            for level, most in ((0, 1e-5), (4, 0.02)):
                product = multiplied(x, blocks, bits, block, level)
                assert np.abs(product - expected).max() < most * np.abs(expected).max()


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
@pytest.mark.parametrize("asymmetric", [False, True])
def test_product_is_that_of_the_stored_numbers(bits: int, block: int, asymmetric: bool) -> None:
    """With a bias and without, what a row gives is the same alone and among others."""
    rng = np.random.default_rng(bits + block)
    weight = rng.standard_normal((100, 64)).astype(np.float32)
    blocks = quantize_blocks(weight.T, bits, block, asymmetric)
    for bias in (rng.standard_normal(64).astype(np.float32), None):
        model = graph(weight, bias)
        quantize_blockwise(GraphEditor(model), list(linears(model)), blocks, bits)
        session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
        x = rng.standard_normal((9, 100)).astype(np.float32)
        product = session.run(None, {"x": x})[0]
        expected = x.astype(np.float64) @ numbers(blocks, bits, 100).T + (0 if bias is None else bias)
        assert np.abs(product - expected).max() < 0.02 * np.abs(expected).max()  # inputs are rounded to 8 bits
        alone = np.concatenate([session.run(None, {"x": row[None]})[0] for row in x])
        np.testing.assert_allclose(product, alone, atol=1e-4)
