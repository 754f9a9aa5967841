"""Find the weights of a graph: matrices of products, and embeddings.

A weight may have several uses: layers that share it (ALBERT), or a token embedding that the head of a language model
multiplies by (Press and Wolf, 2017).
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
SHAPE_OPERATORS = ("Reshape", "Gather", "Squeeze", "Unsqueeze")


@dataclass(frozen=True)
class Linear:
    """``input @ weight + bias`` for a constant ``weight`` (in, out) called ``name``.

    ``node`` is a Gemm or a MatMul, or an Attention that starts with this product.
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
        """Return the operator that computed the input, before reshapes and gathers."""
        node = self.input.producer()
        while node is not None and node.op_type in SHAPE_OPERATORS and node.inputs[0] is not None:
            node = node.inputs[0].producer()
        return node.op_type if node is not None else ""


@dataclass(frozen=True)
class Lookup:
    """A Gather of rows from the constant ``weight`` (rows, dim) called ``name``."""

    node: ir.Node
    name: str
    weight: Floats
    indices: ir.Value


@dataclass(frozen=True)
class Weight:
    """One constant matrix of a graph, called ``name``, with its uses."""

    name: str
    linears: list[Linear] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)


def weights(model: ir.Model) -> dict[str, Weight]:
    """Return every matrix of a product or a lookup, by name."""
    by_name: dict[str, Weight] = {}
    for linear in linears(model):
        by_name.setdefault(linear.name, Weight(linear.name)).linears.append(linear)
    for lookup in lookups(model):
        by_name.setdefault(lookup.name, Weight(lookup.name)).lookups.append(lookup)
    return by_name


def constant(value: ir.Value | None) -> Floats | None:
    """Return the float32 matrix of a constant, None for any other value."""
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
    """Read a node as a linear layer; None for any other."""
    weight = constant(node.inputs[1])
    source, matrix = node.inputs[0], node.inputs[1]
    if weight is None or source is None or matrix is None or matrix.name is None:
        return None
    if node.op_type == "MatMul":
        return Linear(node, matrix.name, weight, source, None)
    if node.op_type == "Attention":
        return Linear(node, matrix.name, weight, source, node.inputs[2])
    options = {name: node.attributes[name].value for name in node.attributes}
    if options.get("transA", 0) or options.get("alpha", 1.0) != 1.0 or options.get("beta", 1.0) != 1.0:
        return None
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    return Linear(node, matrix.name, weight.T if options.get("transB", 0) else weight, source, bias)


def lookups(model: ir.Model) -> Iterator[Lookup]:
    """Yield every Gather of rows from a constant matrix."""
    for node in model.graph:
        if node.domain == "" and node.op_type == "Gather" and node.attributes.get_int("axis", 0) == 0:
            weight, indices = constant(node.inputs[0]), node.inputs[1]
            name = node.inputs[0].name if node.inputs[0] is not None else None
            if weight is not None and indices is not None and name is not None:
                yield Lookup(node, name, weight, indices)
