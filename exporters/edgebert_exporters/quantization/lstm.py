"""Find the LSTMs of a graph, and give them int8 weights.

ONNX Runtime's ``DynamicQuantizeLSTM`` takes both matrices of an LSTM in int8 with a scale per channel. It rounds
activations while it runs, with one scale for the whole tensor: the inputs of all tokens of a batch together, and at
each step the states of all rows. So the results of a text depend a little on the other texts of its batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from edgebert_exporters.graphs.graph_editor import CONTRIB, GraphEditor
from edgebert_exporters.quantization.int8_per_channel import to_int8

# The positions of the matrices among the inputs of a node: that of the input, and that of the state.
MATRICES = (1, 2)


@dataclass(frozen=True)
class Lstm:
    """An LSTM with constant matrices.

    ``names`` are those of the matrices of the input and of the state.
    """

    node: ir.Node
    names: tuple[str, str]

    @property
    def input(self) -> ir.Value:
        """Return the input (seq, batch, in)."""
        source = self.node.inputs[0]
        assert source is not None
        return source

    def weight(self, number: int) -> npt.NDArray[np.float32]:
        """Return the matrix (directions, 4 * hidden, in) of input (0) or state (1)."""
        array = matrix(self.node, MATRICES[number])
        assert array is not None
        return array


def lstms(model: ir.Model) -> list[Lstm]:
    """Return the LSTMs of a graph that can be quantized, in graph order.

    They multiply by constants, and none of their outputs but the states of all steps is used.
    """
    quantizable = []
    for node in model.graph:
        final_states_used = any(output.uses() or output.is_graph_output() for output in node.outputs[1:])
        if (node.domain, node.op_type) != ("", "LSTM") or final_states_used:
            continue
        matrices = [node.inputs[place] for place in MATRICES]
        if all(matrix(node, place) is not None for place in MATRICES):
            first, second = (value.name or "" for value in matrices if value is not None)
            quantizable.append(Lstm(node, (first, second)))
    return quantizable


def matrix(node: ir.Node, place: int) -> npt.NDArray[np.float32] | None:
    """Return the float32 constant at an input of a node, if there is one."""
    value = node.inputs[place]
    if value is None or value.const_value is None or value.const_value.dtype != ir.DataType.FLOAT:
        return None
    return value.const_value.numpy()


def quantize_lstm(editor: GraphEditor, lstm: Lstm) -> None:
    """Replace an LSTM by one with int8 weights."""
    node = lstm.node
    inputs: list[ir.Value | None] = [*node.inputs, *[None] * 8][:8]
    scales: list[ir.Value] = []
    for number, (place, name) in enumerate(zip(MATRICES, lstm.names, strict=True)):
        channels = [to_int8(weight.T) for weight in lstm.weight(number)]  # of each direction
        integers, scale = (np.stack(parts) for parts in zip(*channels, strict=True))
        inputs[place] = editor.initializer(f"{name}.int8", integers)  # (directions, in, 4 * hidden)
        zeros: npt.NDArray[Any] = np.zeros(scale.shape, np.int8)
        scales += [editor.initializer(f"{name}.scale", scale), editor.initializer(f"{name}.zero", zeros)]
    attributes = list(node.attributes.values())
    quantized = ir.Node(CONTRIB, "DynamicQuantizeLSTM", [*inputs, *scales], attributes=attributes)
    editor.graph.insert_before(node, quantized)
    editor.replace(node, quantized.outputs[0])
