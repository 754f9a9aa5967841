"""The ``int8-static`` scheme: int8 weights, and activations with one range for good, in standard operators only.

Each linear layer becomes what other engines know as the QDQ form: its input goes through QuantizeLinear and
DequantizeLinear, its weight and its bias through DequantizeLinear, and what multiplies them is a Gemm in float32. An
engine that has integer kernels puts one in the place of all that; one that has none computes what the operators say.

ONNX Runtime's CPU provider makes a QGemm of it for rows of any number, if the weight has a zero for each column and
the bias is int32 in the steps of the product. Nothing else of the graph is rounded: not the mask, nor what attends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from edgebert_exporters.graphs.graph_editor import GraphEditor
from edgebert_exporters.quantization.activation_ranges import uint8_steps
from edgebert_exporters.quantization.embeddings import lookup_rows
from edgebert_exporters.quantization.int8_per_channel import common_factor, quantize_columns
from edgebert_exporters.quantization.weight_discovery import Floats, Linear, Weight

# Of a hundred channels behind a GELU, how many are brought down.
CAPPED_PERCENT = 1
# The largest whole number of a bias: products of whole numbers are added to it in 32 bits.
MOST_BIAS = 1 << 30


def static_factor(linears: Sequence[Linear], largest: Mapping[str, Floats]) -> Floats | None:
    """Return the factor (in,) for the inputs of layers that share a weight, None if they are best left as they are.

    ``largest`` has the largest magnitudes (in,) of the channels of the inputs on sample texts, by their names. Behind
    a GELU one channel may be five times larger than the next, and the others are alike; on all-MiniLM-L6-v2 bringing
    that down takes the mean cosine to float32 from 0.996 to 0.998, and balancing all of them as well takes it to 0.987
    at a strength of 0.5 and to 0.998 at 0.7.
    """
    if linears[-1].producer == "Gelu":
        return capping(np.maximum.reduce([largest[linear.input_name] for linear in linears]))
    return common_factor(linears, largest)


def capping(largest_input: Floats) -> Floats:
    """Return the factor (in,) that brings the largest channels down to the size of the largest of the others."""
    rank = -(-len(largest_input) * CAPPED_PERCENT // 100)
    ceiling = max(float(np.sort(largest_input)[::-1][min(rank, len(largest_input) - 1)]), 1e-5)
    factor: Floats = np.maximum(largest_input / ceiling, 1).astype(np.float32)
    return factor


def rewrite_static(
    editor: GraphEditor, linears: Sequence[Linear], low: float, high: float, factor: Floats | None = None
) -> None:
    """Quantize layers that share one weight, whose inputs range from ``low`` to ``high``.

    With a ``factor`` (in,), by which the inputs are divided and the rows of the weight multiplied, that is the range
    of what was divided.
    """
    name, weight = linears[0].name, linears[0].weight
    step, _ = uint8_steps(low, high)
    integers, scale = static_columns(weight if factor is None else weight * factor[:, None], step, biases(linears))
    held = editor.initializer(f"{name}.int8", np.ascontiguousarray(integers.T))  # (out, in)
    for linear in linears:
        source = linear.input
        if factor is not None:
            source = editor.insert(linear.node, "Mul", source, editor.initializer(f"{name}.smoothing", 1 / factor))
        multiply(editor, linear, source, held, scale, (low, high))


def rewrite_static_table(editor: GraphEditor, weight: Weight, low: float = 0, high: float = 0) -> None:
    """Quantize a table of embeddings (rows, dim) to int8 with a scale for each row, in standard operators.

    Layers that multiply by it have inputs from ``low`` to ``high``, and multiply by the very same bytes.
    """
    step, _ = uint8_steps(low, high)
    integers, scale = static_columns(weight.tables[0].weight.T, step, biases(weight.linears))
    held = editor.initializer(f"{weight.name}.int8", np.ascontiguousarray(integers.T))  # (rows, dim)
    for table in weight.tables:
        lookup_rows(editor, table, held, editor.initializer(f"{weight.name}.scale", scale))
    for linear in weight.linears:
        multiply(editor, linear, linear.input, held, scale, (low, high))


def biases(linears: Sequence[Linear]) -> list[Floats]:
    """Return the constant biases (out,) of layers."""
    held = [linear.bias.const_value for linear in linears if linear.bias is not None]
    return [tensor.numpy() for tensor in held if tensor is not None]


def static_columns(weight: Floats, step: float, biases: Sequence[Floats]) -> tuple[npt.NDArray[np.int8], Floats]:
    """Round a weight (in, out) to int8 with one scale for each column (out,).

    Where a column is so small beside one of the ``biases`` (out,) that the bias would not fit into 32 bits, its scale
    is larger; beside such a bias nobody misses the weights. A column of zeros has whatever scale suits its bias.
    """
    integers, scale = quantize_columns(weight)
    largest = np.max([np.abs(bias) for bias in biases] or [np.zeros_like(scale)], axis=0)
    least = largest.astype(np.float64) / MOST_BIAS / step
    other = (least > np.finfo(np.float32).tiny) & ((scale < least) | ~integers.any(0))
    scale[other] = least[other]
    integers[:, other] = np.rint(weight[:, other] / scale[other])
    return integers, scale


def multiply(
    editor: GraphEditor, linear: Linear, source: ir.Value, held: ir.Value, scale: Floats, limits: tuple[float, float]
) -> None:
    """Multiply ``source`` by the int8 weight ``held`` (out, in), with ``scale`` (out,), and add the bias."""
    node, name, (dim, out) = linear.node, linear.name, linear.weight.shape
    step, zero = uint8_steps(*limits)
    rows = editor.flat(node, source, dim) if node.op_type == "Attention" else source
    grid = (
        editor.initializer(f"{name}.step", np.array(step, np.float32)),
        editor.initializer(f"zero.{zero}", np.array(zero, np.uint8)),
    )
    rounded = editor.insert(node, "DequantizeLinear", editor.insert(node, "QuantizeLinear", rows, *grid), *grid)
    columns = editor.initializer(f"{name}.scale", scale), editor.initializer(f"zeros.{out}", np.zeros(out, np.int8))
    inputs = [rounded, editor.insert(node, "DequantizeLinear", held, *columns, axis=0)]
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
