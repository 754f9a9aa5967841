"""Find the LSTMs of a graph, and give them int8 weights.

ONNX Runtime's ``DynamicQuantizeLSTM`` takes both matrices of an LSTM in int8 with a scale for each of their columns,
and rounds what they multiply while it runs, with one scale for the whole tensor: for the inputs of all tokens of a
batch together, and at each step for the states of all rows. So a text in a batch gets numbers that differ a little
from those that it gets alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from edgebert_exporters.graphs.graph_editor import CONTRIB, GraphEditor
from edgebert_exporters.quantization.int8_per_channel import quantize_columns

# Which inputs of a node are the matrices, that of the input and that of the state.
MATRICES = (1, 2)


@dataclass(frozen=True)
class Lstm:
    """An LSTM whose matrices are constants: the node, and what those of the input and of the state are called."""

    node: ir.Node
    names: tuple[str, str]

    @property
    def input(self) -> ir.Value:
        """Return what it reads, (seq, batch, in)."""
        source = self.node.inputs[0]
        assert source is not None
        return source

    def weight(self, number: int) -> npt.NDArray[np.float32]:
        """Return the matrix (directions, 4 * hidden, in) of the input, 0, or of the state, 1."""
        array = matrix(self.node, MATRICES[number])
        assert array is not None
        return array


def lstms(model: ir.Model) -> list[Lstm]:
    """Return the LSTMs of a graph that can be quantized, in the order in which they run.

    Those are the ones that multiply by constants, and of which nothing but the states of all steps is read.
    """
    found = []
    for node in model.graph:
        read = any(output.uses() or output.is_graph_output() for output in node.outputs[1:])
        if (node.domain, node.op_type) != ("", "LSTM") or read:
            continue
        held = [node.inputs[place] for place in MATRICES]
        if all(matrix(node, place) is not None for place in MATRICES):
            first, second = (value.name or "" for value in held if value is not None)
            found.append(Lstm(node, (first, second)))
    return found


def matrix(node: ir.Node, place: int) -> npt.NDArray[np.float32] | None:
    """Return the float32 constant that is this input of a node, None if it is anything else."""
    value = node.inputs[place]
    if value is None or value.const_value is None or value.const_value.dtype != ir.DataType.FLOAT:
        return None
    return value.const_value.numpy()


def quantize_lstm(editor: GraphEditor, lstm: Lstm) -> None:
    """Put the LSTM with int8 weights in the place of one in float32."""
    node = lstm.node
    options: list[ir.Value | None] = [*node.inputs, *[None] * 8][:8]
    scales: list[ir.Value] = []
    for number, (place, name) in enumerate(zip(MATRICES, lstm.names, strict=True)):
        columns = [quantize_columns(weight.T) for weight in lstm.weight(number)]  # of each direction
        integers, scale = (np.stack(parts) for parts in zip(*columns, strict=True))
        options[place] = editor.initializer(f"{name}.int8", integers)  # (directions, in, 4 * hidden)
        zeros: npt.NDArray[Any] = np.zeros(scale.shape, np.int8)
        scales += [editor.initializer(f"{name}.scale", scale), editor.initializer(f"{name}.zero", zeros)]
    attributes = list(node.attributes.values())
    quantized = ir.Node(CONTRIB, "DynamicQuantizeLSTM", [*options, *scales], attributes=attributes)
    editor.graph.insert_before(node, quantized)
    editor.replace(node, quantized.outputs[0])
