"""The ``int8`` scheme: weights as int8 with a scale for each column, activations quantized while running.

A plain dynamic scheme has one activation scale for the whole tensor, and a few channels or tokens with large
numbers take the resolution from all others. Two measures against that, chosen by where the activations come from:

* **After a LayerNormalization** a few channels are large. They are made smaller, and the rows of the weight that
  meet them larger, by :func:`smoothing` (Xiao et al., 2023, SmoothQuant); the product stays the same.
* **After a GELU** a few tokens are large. Each row is divided by its own maximum, which makes a scale for each row
  (:func:`row_wise`). A GELU never falls below -0.17, so nearly all of the 8 bits serve its positive side.

Everything else is quantized by DynamicQuantizeMatMul as it is. Tables that tokens are looked up in become uint8
with a scale for each block of a row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from edgebert_exporters.linears import Linear, Table

Floats = npt.NDArray[np.float32]

CONTRIB = "com.microsoft"
# Share of the difficulty that moves from the activations to the weights; 0.5 to 0.85 give nearly the same.
SMOOTHING = 0.7
# The quantized GELU: zero stands at 16, so that 239 steps are left for the positive side.
GELU_ZERO_POINT = 16
GELU_STEPS = 255 - GELU_ZERO_POINT
GELU_MINIMUM = 0.17
TABLE_BLOCK = 128


def quantize_columns(weight: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """Round a weight (in, out) to int8 with one scale for each column (out,): weight = integers * scale."""
    scale = np.abs(weight).max(0) / 127
    scale = np.where(scale > 0, scale, 1).astype(np.float32)
    return np.clip(np.rint(weight / scale), -127, 127).astype(np.int8), scale


def smoothing(largest_input: Floats, weight: Floats, strength: float = SMOOTHING) -> Floats:
    """Return the factor (in,) by which each channel of the input is divided and each row of the weight multiplied.

    ``largest_input`` (in,) is the largest magnitude of each channel on sample texts. The factors have a geometric
    mean of 1.
    """
    inputs = np.maximum(largest_input, 1e-5).astype(np.float64)
    weights = np.maximum(np.abs(weight).max(1), 1e-5)
    logs = strength * np.log(inputs) - (1 - strength) * np.log(weights)
    factor: Floats = np.exp(logs - logs.mean()).astype(np.float32)
    return factor


class Rewriter:
    """Puts quantized nodes in the place of float32 ones, and their weights beside them."""

    def __init__(self, model: ir.Model) -> None:
        self.graph = model.graph
        model.opset_imports[CONTRIB] = 1
        self.rows: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}

    def hold(self, name: str, array: npt.NDArray[np.generic]) -> ir.Value:
        """Return the initializer ``name``, made from ``array`` if there is none yet."""
        if name not in self.graph.initializers:
            value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
            value.shape = ir.Shape(array.shape)
            value.type = ir.TensorType(ir.DataType.from_numpy(array.dtype))
            self.graph.register_initializer(value)
        return self.graph.initializers[name]

    def add(
        self, before: ir.Node, op_type: str, *inputs: ir.Value | None, domain: str = "", **attributes: int
    ) -> ir.Value:
        """Insert a node with one output before another one and return the output."""
        node = ir.node(op_type, inputs, attributes=attributes, domain=domain)
        self.graph.insert_before(before, node)
        return node.outputs[0]

    def replace(self, node: ir.Node, output: ir.Value) -> None:
        """Let everything that read the output of ``node`` read ``output``, and remove ``node``."""
        old = node.outputs[0]
        output.name, output.shape, output.type = old.name, old.shape, old.type
        old.replace_all_uses_with(output, replace_graph_outputs=True)
        self.graph.remove(node, safe=True)

    def linear(self, linear: Linear, largest_input: Floats) -> None:
        """Quantize one linear layer in the way that its input asks for."""
        source, weight, node = linear.input, linear.weight, linear.node
        if linear.producer == "Gelu":
            self.replace(node, self.row_wise(linear))
            return
        if linear.producer == "LayerNormalization":
            factor = smoothing(largest_input, weight)
            source = self.add(node, "Mul", source, self.hold(f"{linear.name}.smoothing", 1 / factor))
            weight = weight * factor[:, None]
        integers, scale = quantize_columns(weight)
        held = self.hold(f"{linear.name}.int8", integers), self.hold(f"{linear.name}.scale", scale)
        inputs = [source, *held] if linear.bias is None else [source, *held, None, linear.bias]
        self.replace(node, self.add(node, "DynamicQuantizeMatMul", *inputs, domain=CONTRIB))

    def row_wise(self, linear: Linear) -> ir.Value:
        """Multiply with one activation scale for each row: (tokens, in) to (tokens, out)."""
        node = linear.node
        step = self.hold("gelu.step", np.array(1 / GELU_STEPS, np.float32))
        zero = self.hold("gelu.zero_point", np.array(GELU_ZERO_POINT, np.uint8))
        if linear.input not in self.rows:
            # A maximum below this would let the negative side of the GELU fall below the range.
            least = self.hold("gelu.least_maximum", np.array(GELU_MINIMUM * GELU_STEPS / GELU_ZERO_POINT, np.float32))
            axis = self.hold("gelu.axis", np.array([-1], np.int64))
            peak = self.add(node, "Max", self.add(node, "ReduceMax", linear.input, axis, keepdims=1), least)
            quantized = self.add(node, "QuantizeLinear", self.add(node, "Div", linear.input, peak), step, zero)
            self.rows[linear.input] = quantized, peak  # (tokens, in) uint8, (tokens, 1)
        quantized, peak = self.rows[linear.input]
        integers, scale = quantize_columns(linear.weight)
        held = self.hold(f"{linear.name}.int8", integers), self.hold(f"{linear.name}.scale", scale)
        product = self.add(node, "MatMulIntegerToFloat", quantized, held[0], step, held[1], zero, domain=CONTRIB)
        scaled = self.add(node, "Mul", product, peak)
        return scaled if linear.bias is None else self.add(node, "Add", scaled, linear.bias)

    def table(self, table: Table) -> None:
        """Quantize a table of embeddings."""
        dim = table.weight.shape[1]
        blocks = table.weight.reshape(len(table.weight), -1, min(TABLE_BLOCK, dim))
        scale = np.maximum(np.abs(blocks).max(2) / 127, 1e-12).astype(np.float32)  # (rows, blocks)
        integers = (np.rint(blocks / scale[..., None]) + 128).astype(np.uint8).reshape(table.weight.shape)
        rows = self.add(
            table.node,
            "GatherBlockQuantized",
            self.hold(f"{table.name}.uint8", integers),
            table.indices,
            self.hold(f"{table.name}.scale", scale),
            domain=CONTRIB,
            bits=8,
            block_size=blocks.shape[2],
            gather_axis=0,
            quantize_axis=1,
        )
        self.replace(table.node, rows)
