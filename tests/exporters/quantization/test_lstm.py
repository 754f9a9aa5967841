"""LSTMs with int8 weights: which are found, what they compute, and how much a row minds the others of its batch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from onnx_ir.passes.common import RemoveUnusedNodesPass

from edgebert.models.elmo.model import Elmo, ElmoConfig
from edgebert.models.pooling import SentenceEncoder
from edgebert_exporters.graphs.graph_editor import CONTRIB, GraphEditor
from edgebert_exporters.graphs.onnx_export import render
from edgebert_exporters.graphs.signatures import encoder_signature
from edgebert_exporters.quantization.int8_per_channel import to_int8
from edgebert_exporters.quantization.lstm import lstms, quantize_lstm
from edgebert_runtime.bundle.operator_allowlist import ALLOWED_OPERATORS

Floats = npt.NDArray[np.float32]
Feeds = dict[str, npt.NDArray[Any]]
INPUT, STATE = 16, 24  # the widths of what an LSTM reads and of what it makes
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def arrays(directions: int, seed: int = 0) -> dict[str, Floats]:
    """Return the matrices and the biases of an LSTM, columns of many sizes among them, and a row of zeros."""
    rng = np.random.default_rng(seed)
    shapes = {"w": (directions, 4 * STATE, INPUT), "r": (directions, 4 * STATE, STATE), "b": (directions, 8 * STATE)}
    constants = {name: (rng.standard_normal(shape) * 0.3).astype(np.float32) for name, shape in shapes.items()}
    constants["w"] *= rng.uniform(0.05, 2, (directions, 4 * STATE, 1)).astype(np.float32)
    constants["r"][:, 5] = 0
    return constants


def graph(direction: str, weights: dict[str, Floats], outputs: int = 1, dynamic: tuple[str, ...] = ()) -> ir.Model:
    """Build ``x, lengths -> LSTM -> y`` with further outputs; weights that are ``dynamic`` are inputs."""
    x = ir.val("x", ir.DataType.FLOAT, ["seq", "batch", INPUT])
    lengths = ir.val("lengths", ir.DataType.INT32, ["batch"])
    values = {name: ir.Value(name=name, const_value=ir.tensor(array, name=name)) for name, array in weights.items()}
    for name in dynamic:
        values[name] = ir.val(name, ir.DataType.FLOAT, list(weights[name].shape))
    options: dict[str, str | int] = {"direction": direction, "hidden_size": STATE}
    inputs = [x, values["w"], values["r"], values["b"], lengths]
    node = ir.node("LSTM", inputs, attributes=options, num_outputs=outputs)
    for name, output in zip(("y", "h", "c"), node.outputs, strict=False):
        output.name, output.type = name, ir.TensorType(ir.DataType.FLOAT)
    constants = [value for name, value in values.items() if name not in dynamic]
    fed = [x, lengths, *(values[name] for name in dynamic)]
    body = ir.Graph(fed, node.outputs, nodes=[node], initializers=constants, opset_imports={"": 21}, name="g")
    return ir.Model(body, ir_version=10)


def session(model: ir.Model, exact: bool = False) -> ort.InferenceSession:
    """Open a graph; with ``exact``, in the way in which no CPU's 8-bit products overflow."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if exact:
        options.add_session_config_entry("session.x64quantprecision", "1")
    data = ir.to_proto(model).SerializeToString()
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def quantized(model: ir.Model) -> ir.Model:
    editor = GraphEditor(model)
    for lstm in lstms(model):
        quantize_lstm(editor, lstm)
    RemoveUnusedNodesPass()(model)
    return model


def feeds(batch: int = 3, seq: int = 9, seed: int = 1) -> Feeds:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((seq, batch, INPUT)).astype(np.float32)
    return {"x": x, "lengths": np.array([seq, *rng.integers(1, seq + 1, batch - 1)], np.int32)}


def array(model: ir.Model, name: str) -> npt.NDArray[Any]:
    tensor = model.graph.initializers[name].const_value
    assert tensor is not None
    return tensor.numpy()


def rounded(constants: dict[str, Floats]) -> dict[str, Floats]:
    """Return matrices of the numbers that whole numbers with a scale for each column of their transposes stand for."""
    rounded_constants = dict(constants)
    for name in ("w", "r"):
        columns = [to_int8(matrix.T) for matrix in constants[name]]
        rounded_constants[name] = np.stack([(integers * scale).T for integers, scale in columns]).astype(np.float32)
    return rounded_constants


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_states_are_close_to_those_of_rounded_weights(direction: str) -> None:
    """What is left beside the rounding of the weights comes from that of the activations, to 8 bits."""
    constants, fed = arrays(DIRECTIONS[direction]), feeds()
    exact, after = session(graph(direction, constants)), quantized(graph(direction, constants))
    assert Counter((node.domain, node.op_type) for node in after.graph) == {(CONTRIB, "DynamicQuantizeLSTM"): 1}
    (expected,), (states,) = exact.run(None, fed), session(after).run(None, fed)
    (middle,) = session(graph(direction, rounded(constants))).run(None, fed)
    np.testing.assert_allclose(session(after, exact=True).run(None, fed)[0], states, atol=1e-5)
    assert states.shape == expected.shape == (9, DIRECTIONS[direction], 3, STATE)
    assert 1e-6 < np.abs(states - middle).max() < 0.05
    assert np.abs(states - middle).mean() < 0.005
    assert np.abs(states - expected).mean() < 0.01
    for row, length in enumerate(fed["lengths"]):
        assert not states[length:, :, row].any()


def test_weights_are_stored_in_a_quarter_of_the_bytes() -> None:
    after = quantized(graph("bidirectional", arrays(2)))
    parts = ("int8", "scale", "zero")
    assert set(after.graph.initializers) == {"b", *(f"{name}.{part}" for name in "wr" for part in parts)}
    for name, inputs in (("w", INPUT), ("r", STATE)):
        integers, scale, zero = (array(after, f"{name}.{part}") for part in parts)
        assert integers.dtype == zero.dtype == np.int8
        assert integers.shape == (2, inputs, 4 * STATE)
        assert scale.shape == zero.shape == (2, 4 * STATE)
        assert not zero.any()
        np.testing.assert_allclose((integers * scale[:, None]).transpose(0, 2, 1), rounded(arrays(2))[name])


@pytest.mark.parametrize(
    ("outputs", "dynamic", "names"),
    [(1, (), [("w", "r")]), (1, ("w",), []), (1, ("r",), []), (1, ("b",), [("w", "r")])],
)
def test_lstms_by_constants_are_found(outputs: int, dynamic: tuple[str, ...], names: list[tuple[str, str]]) -> None:
    model = graph("forward", arrays(1), outputs, dynamic)
    assert [lstm.names for lstm in lstms(model)] == names


@pytest.mark.parametrize("outputs", [2, 3])
def test_an_lstm_whose_last_state_is_read_is_left_alone(outputs: int) -> None:
    model = graph("forward", arrays(1), outputs)
    assert lstms(model) == []
    assert Counter(node.op_type for node in quantized(model).graph) == {"LSTM": 1}


def test_what_is_found_says_what_it_multiplies() -> None:
    constants = arrays(1)
    (lstm,) = lstms(graph("forward", constants))
    np.testing.assert_array_equal(lstm.weight(0), constants["w"])
    np.testing.assert_array_equal(lstm.weight(1), constants["r"])
    assert lstm.input.name == "x"


def test_a_row_minds_the_others_a_little() -> None:
    """The kernel rounds the inputs of a batch with one scale: a large row takes some of the others' resolution."""
    model, fed = session(quantized(graph("forward", arrays(1)))), feeds(batch=4)
    fed["lengths"][:] = 9
    rows = [{"x": fed["x"][:, [row]], "lengths": fed["lengths"][[row]]} for row in range(4)]
    alone = np.concatenate([model.run(None, row)[0] for row in rows], axis=2)
    together = model.run(None, fed)[0]
    fed["x"][:, 3] *= 20
    beside = model.run(None, fed)[0]
    gaps = [np.abs(states - alone)[:, :, :3].mean() for states in (together, beside)]
    assert 0 < gaps[0] < 0.005
    assert gaps[0] < gaps[1] < 0.05


def test_an_elmo_is_quantized_as_a_whole() -> None:
    torch.manual_seed(2)
    elmo = Elmo(ElmoConfig(vocab_size=300, hidden_size=128, num_hidden_layers=2, max_tokens=40))
    signature = encoder_signature("embed", 128, 0)
    model = render(SentenceEncoder(elmo, "mean", normalize=True).eval(), signature, "cpu")
    rng = np.random.default_rng(3)
    mask = np.stack([np.arange(20) < length for length in (20, 1, 7, 0)]).astype(np.int64)
    fed = {"input_ids": rng.integers(0, 300, mask.shape), "attention_mask": mask}
    (before,) = session(model).run(None, fed)
    names = [name for lstm in lstms(model) for name in lstm.names]
    assert [name.removeprefix("elmo.layers.") for name in names[:4]] == [
        "0.forwards.weight_ih",
        "0.forwards.weight_hh",
        "0.backwards.weight_ih",
        "0.backwards.weight_hh",
    ]
    assert len(names) == 8
    after = quantized(model)
    assert {(node.domain, node.op_type) for node in after.graph} <= ALLOWED_OPERATORS
    assert Counter(node.op_type for node in after.graph)["LSTM"] == 0
    (states,) = session(after).run(None, fed)
    assert (0.999 < (states * before).sum(1)[:3]).all()
    assert not states[3].any()
    assert not np.array_equal(states, before)
