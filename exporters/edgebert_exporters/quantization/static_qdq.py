"""The ``int8-static`` scheme: static activation ranges, in standard operators.

Its form is called QDQ. The input of each linear layer goes through QuantizeLinear and DequantizeLinear, its weight and
its bias through DequantizeLinear, and a float32 Gemm multiplies them. An engine with integer kernels fuses all that
into one; an engine without computes what the operators say.

ONNX Runtime's CPU provider fuses it into a QGemm for any number of rows, if the weight has a zero point per channel and
the bias is int32 in the steps of the product. Nothing else of the graph is rounded: neither masks nor attention.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from edgebert_exporters.graphs.graph_editor import GraphEditor
from edgebert_exporters.quantization.activation_ranges import Range, uint8_params
from edgebert_exporters.quantization.embeddings import insert_gather_per_token
from edgebert_exporters.quantization.int8_per_channel import smoothing_factor, to_int8
from edgebert_exporters.quantization.weight_discovery import Floats, Linear, Weight

# Of a hundred channels behind a GELU, the number that is capped.
CAPPED_PERCENT = 1
# The largest integer of a bias: products are added to it in 32 bits.
MAX_BIAS = 1 << 30


def static_factor(linears: Sequence[Linear], peaks: Mapping[str, Floats]) -> Floats | None:
    """Return the factor (in,) for the inputs of layers with one weight.

    None smooths nothing.

    ``peaks`` has the largest magnitudes (in,) of the channels of the inputs on sample texts, by input name. Behind a
    GELU one channel may be five times larger than the next, and the others are alike. On all-MiniLM-L6-v2 capping it
    takes the mean cosine to float32 from 0.996 to 0.998; smoothing all channels takes it to 0.987 at a strength of 0.5
    and to 0.998 at 0.7.
    """
    if linears[-1].producer == "Gelu":
        return capping(np.maximum.reduce([peaks[linear.input_name] for linear in linears]))
    return smoothing_factor(linears, peaks)


def capping(peaks: Floats) -> Floats:
    """Return the factor (in,) that caps the largest channels."""
    rank = -(-len(peaks) * CAPPED_PERCENT // 100)
    ceiling = max(float(np.sort(peaks)[::-1][min(rank, len(peaks) - 1)]), 1e-5)
    factor: Floats = np.maximum(peaks / ceiling, 1).astype(np.float32)
    return factor


def quantize_static(editor: GraphEditor, linears: Sequence[Linear], limits: Range, factor: Floats | None) -> None:
    """Quantize layers that share one weight, whose inputs are in the range ``limits``.

    A ``factor`` (in,) divides the inputs, before the range, and multiplies the rows of the weight.
    """
    name, weight = linears[0].name, linears[0].weight
    step, _ = uint8_params(*limits)
    array, scale = to_static_int8(
        weight if factor is None else weight * factor[:, None], step, constant_biases(linears)
    )
    integers = editor.initializer(f"{name}.int8", np.ascontiguousarray(array.T))  # (out, in)
    for linear in linears:
        source = linear.input
        if factor is not None:
            source = editor.insert(linear.node, "Mul", source, editor.initializer(f"{name}.smoothing", 1 / factor))
        insert_qdq_gemm(editor, linear, source, integers, scale, limits)


def quantize_static_embedding(editor: GraphEditor, weight: Weight, limits: Range = (0.0, 0.0)) -> None:
    """Quantize an embedding (rows, dim) to int8 with a scale per row.

    Layers that multiply by it read inputs in the range ``limits``, and share its bytes.
    """
    step, _ = uint8_params(*limits)
    array, scale = to_static_int8(weight.lookups[0].weight.T, step, constant_biases(weight.linears))
    integers = editor.initializer(f"{weight.name}.int8", np.ascontiguousarray(array.T))  # (rows, dim)
    for lookup in weight.lookups:
        scales = editor.initializer(f"{weight.name}.scale", scale)
        insert_gather_per_token(editor, lookup, integers, scales)
    for linear in weight.linears:
        insert_qdq_gemm(editor, linear, linear.input, integers, scale, limits)


def constant_biases(linears: Sequence[Linear]) -> list[Floats]:
    """Return the constant biases (out,) of layers."""
    constants = [linear.bias.const_value for linear in linears if linear.bias is not None]
    return [tensor.numpy() for tensor in constants if tensor is not None]


def to_static_int8(weight: Floats, step: float, biases: Sequence[Floats]) -> tuple[npt.NDArray[np.int8], Floats]:
    """Round a weight (in, out) to int8 with a scale per channel (out,).

    A channel that is so small beside one of the ``biases`` (out,) that the bias would overflow 32 bits gets a larger
    scale; beside such a bias its weights hardly matter. A channel of zeros gets the scale that suits its bias.
    """
    integers, scale = to_int8(weight)
    largest = np.max([np.abs(bias) for bias in biases] or [np.zeros_like(scale)], axis=0)
    least = largest.astype(np.float64) / MAX_BIAS / step
    raised = (least > np.finfo(np.float32).tiny) & ((scale < least) | ~integers.any(0))
    scale[raised] = least[raised]
    integers[:, raised] = np.rint(weight[:, raised] / scale[raised])
    return integers, scale


def insert_qdq_gemm(
    editor: GraphEditor, linear: Linear, source: ir.Value, integers: ir.Value, scale: Floats, limits: Range
) -> None:
    """Multiply ``source`` by int8 ``integers`` (out, in), and add the bias.

    ``scale`` (out,) is that of the weight.
    """
    node, name, (dim, out) = linear.node, linear.name, linear.weight.shape
    step, zero = uint8_params(*limits)
    rows = editor.flat(node, source, dim) if node.op_type == "Attention" else source
    params = (
        editor.initializer(f"{name}.step", np.array(step, np.float32)),
        editor.initializer(f"zero.{zero}", np.array(zero, np.uint8)),
    )
    rounded = editor.insert(node, "DequantizeLinear", editor.insert(node, "QuantizeLinear", rows, *params), *params)
    channels = editor.initializer(f"{name}.scale", scale), editor.initializer(f"zeros.{out}", np.zeros(out, np.int8))
    inputs = [rounded, editor.insert(node, "DequantizeLinear", integers, *channels, axis=0)]
    constant = None if linear.bias is None else linear.bias.const_value
    if linear.bias is not None and constant is not None:
        units = scale * np.float32(step)
        whole = np.rint(constant.numpy() / units.astype(np.float64)).astype(np.int32)
        bias = editor.initializer(f"{linear.bias.name}.int32", whole), editor.initializer(f"{name}.bias_scale", units)
        inputs.append(editor.insert(node, "DequantizeLinear", *bias, axis=0))
    product = editor.insert(node, "Gemm", *inputs, transB=1)
    if linear.bias is not None and constant is None:
        product = editor.insert(node, "Add", product, linear.bias)
    editor.finish(node, product)
