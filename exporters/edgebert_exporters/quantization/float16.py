"""The ``fp16`` scheme: weights and arithmetic in float16, for GPUs.

What goes into a graph and comes out stays float32, but for the keys and values that decoders remember: these never
leave the engine, take half the memory, and a kernel that writes into the buffer that it reads from needs them as it
computes.

Some of the arithmetic stays float32, since float16 ends at 65504 and has three digits:

* **Scores of attention**: the product of queries and keys, what a mask adds to it, and the Softmax. So they may be
  of any size, and the mask may be as large as in float32. GPUs multiply float32 with the tensor cores as well.
  The kernels that take in the whole attention do the same by themselves.
* **Sums over tokens, norms and probabilities**: all operators but those in :data:`HALF` and :data:`FOLLOWING`.
* **Statistics of a LayerNormalization**, whose operator promises that for numbers of any type.
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

# Operators that compute in float16 always.
HALF = frozenset(
    "Attention DecoderMaskedMultiHeadAttention Gelu Gemm GroupQueryAttention LSTM LayerNormalization "
    "MultiHeadAttention Relu Sigmoid Swish Tanh".split()
)
# Operators that do so where nothing that was computed reaches them in float32.
FOLLOWING = frozenset(
    "Add Concat Expand Gather GatherND Identity MatMul Mul Reshape Shape Slice Split Squeeze Sub Transpose "
    "Unsqueeze".split()
)
# From a Softmax back to queries and keys.
SCORING = frozenset(("Add", "MatMul", "Mul"))
# How the names of the keys and values begin that are remembered.
REMEMBERED = (f"{PAST}.", f"{PRESENT}.", f"{CROSS}.")
FLOAT32, FLOAT16 = ir.DataType.FLOAT, ir.DataType.FLOAT16


def to_half(model: ir.Model, exclude: Collection[str] = ()) -> None:
    """Turn a float32 graph into float16, but for what uses the weights called ``exclude``.

    Raises:
        QuantizationError: naming a weight with numbers too large for float16.
    """
    converter = Converter(model, exclude)
    for value in model.graph.inputs:
        if value.dtype == FLOAT32 and remembered(value):
            value.dtype = FLOAT16
    for node in list(model.graph):
        converter.convert(node)
    for position, value in enumerate(model.graph.outputs):
        wanted = FLOAT16 if remembered(value) else FLOAT32
        if value.dtype in (FLOAT16, FLOAT32) and value.dtype != wanted:
            model.graph.outputs[position] = converter.renamed(value, wanted)
    finite(model)
    RemoveUnusedNodesPass()(model)
    if not any(node.domain == CONTRIB for node in model.graph):  # what is portable stays so
        model.opset_imports.pop(CONTRIB)


def half_signature(signature: Signature) -> Signature:
    """Return what the signature of a float32 graph is in float16."""

    def halved(spec: TensorSpec) -> TensorSpec:
        return dataclasses.replace(spec, dtype="float16") if spec.name.startswith(REMEMBERED) else spec

    return Signature(tuple(map(halved, signature.inputs)), tuple(map(halved, signature.outputs)))


def remembered(value: ir.Value) -> bool:
    """Say whether an input or output holds keys and values that are remembered."""
    return (value.name or "").startswith(REMEMBERED)


def scoring(graph: ir.Graph) -> set[ir.Node]:
    """Return the nodes that compute scores of attention, from queries and keys to what a Softmax reads."""
    found: set[ir.Node] = set()
    waiting = [value.producer() for node in graph if node.op_type == "Softmax" for value in node.inputs if value]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found and node.op_type in SCORING:
            found.add(node)
            waiting.extend(value.producer() for value in node.inputs if value is not None)
    return found


def finite(model: ir.Model) -> None:
    """Put the largest numbers of float32 in the place of infinite constants: nothing times 0 or minus itself is NaN."""
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and tensor.dtype == FLOAT32 and not np.isfinite(array := tensor.numpy()).all():
            limits = np.finfo(np.float32)
            value.const_value = ir.tensor(np.clip(array, limits.min, limits.max), name=value.name)


class Converter:
    """Goes through the nodes of a graph in their order and gives each the numbers that it computes with."""

    def __init__(self, model: ir.Model, exclude: Collection[str]) -> None:
        self.editor, self.exclude = GraphEditor(model), frozenset(exclude)
        self.scoring = scoring(model.graph)

    def convert(self, node: ir.Node) -> None:
        """Let a node read and write float16 or float32, with a Cast before it where it is given the other."""
        wanted = FLOAT16 if self.is_half(node) else FLOAT32
        for index, value in enumerate(node.inputs):
            if value is not None and value.dtype in (FLOAT16, FLOAT32) and value.dtype != wanted:
                node.replace_input_with(index, self.cast(node, value, wanted))
        for output in node.outputs:
            if wanted == FLOAT16 and output.dtype == FLOAT32:
                output.dtype = FLOAT16

    def is_half(self, node: ir.Node) -> bool:
        """Say whether a node computes in float16."""
        floats = [value for value in node.inputs if value is not None and value.dtype in (FLOAT16, FLOAT32)]
        constants = [value for value in floats if value.const_value is not None]
        if node in self.scoring or any(value.name in self.exclude for value in constants):
            return False
        if node.op_type in HALF:
            return True
        computed = [value for value in floats if value.const_value is None]
        weighs = bool(constants) and node.op_type in ("Gather", "MatMul")
        return node.op_type in FOLLOWING and (
            weighs or (bool(computed) and all(value.dtype == FLOAT16 or likely(value) for value in computed))
        )

    def cast(self, before: ir.Node, value: ir.Value, wanted: ir.DataType) -> ir.Value:
        """Return a value as float16 or float32; a constant is rounded for good."""
        if value.const_value is not None:
            return self.rounded(value)
        key = (value, wanted.name)
        if key not in self.editor.cache:
            made = self.editor.insert(before, "Cast", value, to=int(wanted))
            made.type, made.shape = ir.TensorType(wanted), value.shape
            self.editor.cache[key] = (made,)
        return self.editor.cache[key][0]

    def rounded(self, value: ir.Value) -> ir.Value:
        """Return a constant as float16."""
        assert value.const_value is not None
        array, most = value.const_value.numpy(), float(np.finfo(np.float16).max)
        if not np.abs(array).max(initial=0) <= most:
            raise QuantizationError(
                f"{value.name} holds {array.flat[np.abs(array).argmax()]:.4g}, and float16 ends at {most:.0f}; leave "
                f"it in float32 with --exclude {value.name}"
            )
        return self.editor.initializer(f"{value.name}.float16", array.astype(np.float16))

    def renamed(self, value: ir.Value, wanted: ir.DataType) -> ir.Value:
        """Return an output of the graph as float16 or float32, under the name that it had."""
        name, graph = value.name, self.editor.graph
        value.name = f"{name}.{value.dtype.name.lower()}" if value.dtype is not None else name
        node = ir.node("Cast", [value], attributes={"to": int(wanted)})
        graph.append(node)
        (made,) = node.outputs
        made.name, made.type, made.shape = name, ir.TensorType(wanted), value.shape
        return made


def likely(value: ir.Value) -> bool:
    """Say whether a value comes from a Softmax: such numbers are rounded without harm, to be multiplied by others."""
    node = value.producer()
    return node is not None and node.op_type == "Softmax"
