"""Find what can be quantized in a graph: multiplications by a weight, and tables that rows are gathered from.

A weight may have several uses: layers that share it (ALBERT), or the table of token embeddings by which a language
model's head multiplies (Press and Wolf, 2017).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from edgebert_exporters.graphs.graph_editor import CONTRIB

Floats = npt.NDArray[np.float32]

# Operators that change no number of their first input.
MOVING = ("Reshape", "Gather", "Squeeze", "Unsqueeze")


@dataclass(frozen=True)
class Linear:
    """``input @ weight + bias`` for a constant ``weight`` (in, out) called ``name``.

    ``node`` is a Gemm or a MatMul, or an Attention, which goes on from there.
    """

    node: ir.Node
    name: str
    weight: Floats
    input: ir.Value
    bias: ir.Value | None

    @property
    def input_name(self) -> str:
        """Return the name of the input."""
        return self.input.name or ""

    @property
    def producer(self) -> str:
        """Return the operator that the input comes from, whatever shape it was given and rows were taken since."""
        node = self.input.producer()
        while node is not None and node.op_type in MOVING and node.inputs[0] is not None:
            node = node.inputs[0].producer()
        return node.op_type if node is not None else ""


@dataclass(frozen=True)
class Table:
    """A constant (rows, dim) from which rows are gathered; ``name`` is the constant's."""

    node: ir.Node
    name: str
    weight: Floats
    indices: ir.Value


@dataclass(frozen=True)
class Weight:
    """One constant matrix of a graph, called ``name``, with everything that uses it."""

    name: str
    linears: list[Linear] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


def weights(model: ir.Model) -> dict[str, Weight]:
    """Return every matrix that something is multiplied by or that rows are gathered from, by name."""
    found: dict[str, Weight] = {}
    for linear in linears(model):
        found.setdefault(linear.name, Weight(linear.name)).linears.append(linear)
    for table in tables(model):
        found.setdefault(table.name, Weight(table.name)).tables.append(table)
    return found


def constant(value: ir.Value | None) -> Floats | None:
    """Return the float32 matrix that a value holds, None if it holds anything else."""
    if value is None or value.const_value is None or value.const_value.dtype != ir.DataType.FLOAT:
        return None
    array = value.const_value.numpy()
    return array if array.ndim == 2 else None


def linears(model: ir.Model) -> Iterator[Linear]:
    """Yield every Gemm, MatMul and Attention that multiplies by a constant matrix."""
    for node in model.graph:
        if (node.domain, node.op_type) in (("", "Gemm"), ("", "MatMul"), (CONTRIB, "Attention")):
            linear = as_linear(node)
            if linear is not None:
                yield linear


def as_linear(node: ir.Node) -> Linear | None:
    """Read a node as a linear layer, None if it is something else."""
    weight = constant(node.inputs[1])
    source, held = node.inputs[0], node.inputs[1]
    if weight is None or source is None or held is None or held.name is None:
        return None
    if node.op_type == "MatMul":
        return Linear(node, held.name, weight, source, None)
    if node.op_type == "Attention":
        return Linear(node, held.name, weight, source, node.inputs[2])
    options = {name: node.attributes[name].value for name in node.attributes}
    if options.get("transA", 0) or options.get("alpha", 1.0) != 1.0 or options.get("beta", 1.0) != 1.0:
        return None
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    return Linear(node, held.name, weight.T if options.get("transB", 0) else weight, source, bias)


def tables(model: ir.Model) -> Iterator[Table]:
    """Yield every Gather of rows from a constant matrix."""
    for node in model.graph:
        if node.domain == "" and node.op_type == "Gather" and node.attributes.get_int("axis", 0) == 0:
            weight, indices = constant(node.inputs[0]), node.inputs[1]
            name = node.inputs[0].name if node.inputs[0] is not None else None
            if weight is not None and indices is not None and name is not None:
                yield Table(node, name, weight, indices)
