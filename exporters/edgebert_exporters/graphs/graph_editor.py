"""Replace nodes of a graph by others, with initializers beside them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

# The domain of the operators that ONNX Runtime adds to the standard.
CONTRIB = "com.microsoft"


class GraphEditor:
    """Edits one graph; values that several nodes need are made once."""

    def __init__(self, model: ir.Model) -> None:
        self.graph = model.graph
        model.opset_imports[CONTRIB] = 1
        self.cache: dict[tuple[ir.Value, str], tuple[ir.Value, ...]] = {}

    def initializer(self, name: str, array: npt.NDArray[np.generic]) -> ir.Value:
        """Return the initializer ``name``; make it from ``array`` at first."""
        if name not in self.graph.initializers:
            value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
            value.shape = ir.Shape(array.shape)
            value.type = ir.TensorType(ir.DataType.from_numpy(array.dtype))
            self.graph.register_initializer(value)
        return self.graph.initializers[name]

    def insert(
        self, before: ir.Node, op_type: str, *inputs: ir.Value | None, domain: str = "", **attributes: int | list[int]
    ) -> ir.Value:
        """Insert a node with one output before another; return the output."""
        node = ir.node(op_type, inputs, attributes=attributes, domain=domain)
        self.graph.insert_before(before, node)
        return node.outputs[0]

    def replace(self, node: ir.Node, output: ir.Value) -> None:
        """Replace the output of ``node`` by ``output`` everywhere, and remove ``node``."""
        old = node.outputs[0]
        output.name, output.shape, output.type = old.name, old.shape, old.type
        old.replace_all_uses_with(output, replace_graph_outputs=True)
        self.graph.remove(node, safe=True)

    def flat(self, before: ir.Node, source: ir.Value, dim: int) -> ir.Value:
        """Return activations (batch, seq, ``dim``) as (tokens, ``dim``)."""
        return self.insert(before, "Reshape", source, self.initializer(f"rows_of_{dim}", np.array([-1, dim], np.int64)))

    def last_axis(self) -> ir.Value:
        """Return the constant that names the last axis."""
        return self.initializer("last_axis", np.array([-1]))

    def finish(self, node: ir.Node, product: ir.Value) -> None:
        """Replace a linear layer by its ``product`` with the bias added."""
        self.replace(node, self.attend(node, product) if node.op_type == "Attention" else product)

    def attend(self, attention: ir.Node, qkv: ir.Value) -> ir.Value:
        """Insert the part of an Attention behind ``qkv`` (tokens, 3 * dim)."""
        mask = attention.inputs[3]
        assert mask is not None
        sizes = ir.node("Concat", [self.insert(attention, "Shape", mask), self.last_axis()], attributes={"axis": 0})
        self.graph.insert_before(attention, sizes)
        packed = self.insert(attention, "Reshape", qkv, sizes.outputs[0])  # (batch, seq, 3 * dim)
        split = ir.node("Split", [packed], attributes={"axis": -1, "num_outputs": 3}, num_outputs=3)
        options = list(attention.attributes.values())
        context = ir.Node(CONTRIB, "MultiHeadAttention", [*split.outputs, None, mask], attributes=options)
        for node in (split, context):
            self.graph.insert_before(attention, node)
        return context.outputs[0]
