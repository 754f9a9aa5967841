"""The ``fp16`` scheme: weights and arithmetic in float16, for GPUs.

Inputs and outputs of a graph stay float32, but for KV caches. These never leave the engine, take half the memory, and
must have the type of the arithmetic where a kernel updates them in place.

Some of the arithmetic stays float32, since float16 ends at 65504 and has three digits:

* **Attention scores**: the product of queries and keys, the mask added to it, and the Softmax. So scores may be of any
  size, and the mask as large as in float32. GPUs multiply float32 with the tensor cores as well. Fused attention
  kernels do the same by themselves.
* **Sums over tokens, norms and probabilities**: all operators but those in :data:`HALF` and :data:`FOLLOWING`.
* **Statistics of a LayerNormalization**, whose operator promises that for any type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from edgebert_exporters.graphs.graph_editor import CONTRIB, GraphEditor
from edgebert_exporters.graphs.signatures import Signature
from edgebert_runtime.bundle.manifest import TensorSpec
from edgebert_runtime.decoders.causal_signature import PAST, PRESENT
from edgebert_runtime.decoders.seq2seq_signature import CROSS
from edgebert_runtime.errors import QuantizationError

# Operators that always compute in float16.
HALF = frozenset(
    "Attention DecoderMaskedMultiHeadAttention Gelu Gemm GroupQueryAttention LSTM LayerNormalization "
    "MultiHeadAttention Relu Sigmoid Swish Tanh".split()
)
# Operators that compute in float16 unless one of their computed inputs is float32.
FOLLOWING = frozenset(
    "Add Concat Expand Gather GatherND Identity MatMul Mul Pad Reshape Shape Slice Split Squeeze Sub Transpose "
    "Unsqueeze".split()
)
# Operators between queries and keys and their Softmax.
SCORING = frozenset(("Add", "MatMul", "Mul"))
# The beginnings of the names of KV caches.
KV_CACHE = (f"{PAST}.", f"{PRESENT}.", f"{CROSS}.")
FLOAT32, FLOAT16 = ir.DataType.FLOAT, ir.DataType.FLOAT16


def to_float16(model: ir.Model, exclude: Collection[str] = ()) -> None:
    """Turn a float32 graph into float16, except nodes that use the weights called ``exclude``.

    Raises:
        QuantizationError: naming a weight with numbers too large for float16.
    """
    converter = Converter(model, exclude)
    for value in model.graph.inputs:
        if value.dtype == FLOAT32 and is_kv_cache(value):
            value.dtype = FLOAT16
    for node in list(model.graph):
        converter.convert(node)
    for position, value in enumerate(model.graph.outputs):
        dtype = FLOAT16 if is_kv_cache(value) else FLOAT32
        if value.dtype in (FLOAT16, FLOAT32) and value.dtype != dtype:
            model.graph.outputs[position] = converter.cast_output(value, dtype)
    clip_infinities(model)
    RemoveUnusedNodesPass()(model)
    if not any(node.domain == CONTRIB for node in model.graph):  # what is portable stays so
        model.opset_imports.pop(CONTRIB)


def float16_signature(signature: Signature) -> Signature:
    """Return the signature of a float32 graph after :func:`to_float16`."""

    def converted(spec: TensorSpec) -> TensorSpec:
        return dataclasses.replace(spec, dtype="float16") if spec.name.startswith(KV_CACHE) else spec

    return Signature(tuple(map(converted, signature.inputs)), tuple(map(converted, signature.outputs)))


def is_kv_cache(value: ir.Value) -> bool:
    """Tell whether an input or output is a KV cache."""
    return (value.name or "").startswith(KV_CACHE)


def score_nodes(graph: ir.Graph) -> set[ir.Node]:
    """Return the nodes that compute attention scores, from queries and keys to the Softmax."""
    nodes: set[ir.Node] = set()
    waiting = [value.producer() for node in graph if node.op_type == "Softmax" for value in node.inputs if value]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in nodes and node.op_type in SCORING:
            nodes.add(node)
            waiting.extend(value.producer() for value in node.inputs if value is not None)
    return nodes


def clip_infinities(model: ir.Model) -> None:
    """Replace infinite constants by the largest of float32.

    Their products with 0 are no NaN then.
    """
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and tensor.dtype == FLOAT32 and not np.isfinite(array := tensor.numpy()).all():
            limits = np.finfo(np.float32)
            value.const_value = ir.tensor(np.clip(array, limits.min, limits.max), name=value.name)


class Converter:
    """Gives each node of a graph inputs of the type that it computes in."""

    def __init__(self, model: ir.Model, exclude: Collection[str]) -> None:
        self.editor, self.exclude = GraphEditor(model), frozenset(exclude)
        self.scores = score_nodes(model.graph)

    def convert(self, node: ir.Node) -> None:
        """Make a node compute in one type, with a Cast for inputs of the other."""
        dtype = FLOAT16 if self.computes_in_float16(node) else FLOAT32
        for index, value in enumerate(node.inputs):
            if value is not None and value.dtype in (FLOAT16, FLOAT32) and value.dtype != dtype:
                node.replace_input_with(index, self.cast(node, value, dtype))
        for output in node.outputs:
            if dtype == FLOAT16 and output.dtype == FLOAT32:
                output.dtype = FLOAT16

    def computes_in_float16(self, node: ir.Node) -> bool:
        """Tell whether a node computes in float16."""
        floats = [value for value in node.inputs if value is not None and value.dtype in (FLOAT16, FLOAT32)]
        constants = [value for value in floats if value.const_value is not None]
        if node in self.scores or any(value.name in self.exclude for value in constants):
            return False
        if node.op_type in HALF:
            return True
        computed = [value for value in floats if value.const_value is None]
        weighs = bool(constants) and node.op_type in ("Gather", "MatMul")
        return node.op_type in FOLLOWING and (
            weighs or (bool(computed) and all(value.dtype == FLOAT16 or from_softmax(value) for value in computed))
        )

    def cast(self, before: ir.Node, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return a value as float16 or float32; constants are converted once."""
        if value.const_value is not None:
            return self.rounded(value)
        key = (value, dtype.name)
        if key not in self.editor.cache:
            converted = self.editor.insert(before, "Cast", value, to=int(dtype))
            converted.type, converted.shape = ir.TensorType(dtype), value.shape
            self.editor.cache[key] = (converted,)
        return self.editor.cache[key][0]

    def rounded(self, value: ir.Value) -> ir.Value:
        """Return a constant as float16.

        Raises:
            QuantizationError: if it holds a number that is too large.
        """
        assert value.const_value is not None
        array, most = value.const_value.numpy(), float(np.finfo(np.float16).max)
        if not np.abs(array).max(initial=0) <= most:
            raise QuantizationError(
                f"{value.name} holds {array.flat[np.abs(array).argmax()]:.4g}, and float16 ends at {most:.0f}",
                hint="leave it in float32 with {exclude}",
                options={"exclude": value.name},
            )
        return self.editor.initializer(f"{value.name}.float16", array.astype(np.float16))

    def cast_output(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return an output of the graph as float16 or float32, under its own name."""
        name, graph = value.name, self.editor.graph
        value.name = f"{name}.{value.dtype.name.lower()}" if value.dtype is not None else name
        node = ir.node("Cast", [value], attributes={"to": int(dtype)})
        graph.append(node)
        (output,) = node.outputs
        output.name, output.type, output.shape = name, ir.TensorType(dtype), value.shape
        return output


def from_softmax(value: ir.Value) -> bool:
    """Tell whether a value comes from a Softmax; its products lose nothing in float16."""
    node = value.producer()
    return node is not None and node.op_type == "Softmax"
