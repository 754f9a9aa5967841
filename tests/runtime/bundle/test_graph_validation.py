"""Graphs that a bundle may not hold are refused before ONNX Runtime sees them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from edgebert_runtime import Bundle, Embedder
from edgebert_runtime.bundle import graph_validation as graph_check
from edgebert_runtime.errors import BundleError, UnsafeBundleError

Change = Callable[[onnx.ModelProto], None]
FLOAT = TensorProto.FLOAT


def rebuilt(rewrite: Any, folder: Path, change: Change) -> Path:
    """Return a bundle whose graph was changed by ``change``."""
    model = onnx.load(folder / "model.onnx")
    change(model)
    path: Path = rewrite({"model.onnx": model.SerializeToString()})
    return path


def add(op: str, domain: str = "", **attributes: Any) -> Change:
    def change(model: onnx.ModelProto) -> None:
        model.graph.node.append(helper.make_node(op, ["input_ids"], ["extra"], domain=domain, **attributes))

    return change


def subgraph() -> onnx.GraphProto:
    value = helper.make_tensor_value_info("v", FLOAT, [1])
    return helper.make_graph([], "g", [], [value])


def functions(model: onnx.ModelProto) -> None:
    model.functions.append(helper.make_function("local", "F", [], [], [], [helper.make_opsetid("", 21)]))


def training(model: onnx.ModelProto) -> None:
    model.training_info.add()


def sparse(model: onnx.ModelProto) -> None:
    model.graph.sparse_initializer.add()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (add("If", then_branch=subgraph(), else_branch=subgraph()), "ai.onnx:If"),
        (add("Loop", body=subgraph()), "ai.onnx:Loop"),
        (add("Scan", body=subgraph()), "ai.onnx:Scan"),
        (add("StringNormalizer"), "ai.onnx:StringNormalizer"),
        (add("EPContext", "com.microsoft"), "com.microsoft:EPContext"),
        (add("Add", "evil.example"), "evil.example:Add"),
        (add("Add", "ai.onnx.ml"), "ai.onnx.ml:Add"),
        (add("", ""), "ai.onnx:"),
        (add("Identity", body=subgraph()), "subgraphs"),
        (functions, "functions"),
        (training, "training information"),
        (sparse, "sparse tensors"),
    ],
)
def test_foreign_content(rewrite: Any, folder: Path, change: Change, message: str) -> None:
    with pytest.raises(UnsafeBundleError, match=message):
        Bundle.open(rebuilt(rewrite, folder, change))


def test_many_foreign_operators_are_counted(rewrite: Any, folder: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        for i in range(8):
            add(f"Op{i}")(model)

    with pytest.raises(UnsafeBundleError, match="Op4 and 3 more$"):
        Bundle.open(rebuilt(rewrite, folder, change))


def external(rewrite: Any, folder: Path, entries: dict[str, str], *, attribute: bool = False) -> Path:
    """Move the data of a weight, or of a constant in a node, to where ``entries`` say."""

    def change(model: onnx.ModelProto) -> None:
        if attribute:
            tensor = helper.make_tensor("value", FLOAT, [64], [0.0] * 64)
            node = helper.make_node("Constant", [], ["extra"], value=tensor)
            model.graph.node.append(node)
            tensor = model.graph.node[-1].attribute[0].t
        else:
            tensor = next(i for i in model.graph.initializer if i.data_type == FLOAT and i.dims == [64])
        tensor.ClearField("float_data")
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)

    model = onnx.load(folder / "model.onnx")
    change(model)
    path: Path = rewrite({"model.onnx": model.SerializeToString(), "weights.bin": bytes(512)})
    return path


def test_weights_in_a_listed_file_load_and_run(rewrite: Any, folder: Path) -> None:
    path = external(rewrite, folder, {"location": "weights.bin", "offset": "256", "length": "256"})
    assert Embedder(Bundle.open(path)).embed(["the cat"]).any()


@pytest.mark.parametrize("attribute", [False, True])
@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"location": ""},
        {"location": "../weights.bin"},
        {"location": "/etc/passwd"},
        {"location": "./weights.bin"},
        {"location": "sub/../weights.bin"},
        {"location": "C:\\weights.bin"},
        {"location": "weights.bin\0"},
        {"location": "*/_ORT_MEM_ADDR_/*"},
        {"location": "unlisted.bin"},
        {"location": "weights.bin", "offset": "-1", "length": "256"},
        {"location": "weights.bin", "offset": "257", "length": "256"},
        {"location": "weights.bin", "offset": "0", "length": "1000000000000000"},
        {"location": "weights.bin", "offset": "9" * 40, "length": "1"},
        {"location": "weights.bin", "offset": "0", "length": "-5"},
        {"location": "weights.bin", "offset": "0", "length": "abc"},
        {"location": "weights.bin", "offset": "1e2", "length": "4"},
        {"location": "weights.bin", "offset": "", "length": "4"},
        {"location": "weights.bin", "surprise": "1"},
    ],
)
def test_weights_elsewhere(rewrite: Any, folder: Path, entries: dict[str, str], attribute: bool) -> None:
    with pytest.raises(UnsafeBundleError, match="data"):
        Bundle.open(external(rewrite, folder, entries, attribute=attribute))


def test_two_locations_for_one_tensor(rewrite: Any, folder: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        for location in ("weights.bin", "/etc/passwd"):
            model.graph.initializer[0].external_data.add(key="location", value=location)

    with pytest.raises(BundleError, match="two entries 'location'"):
        Bundle.open(rebuilt(rewrite, folder, change))


def renamed(model: onnx.ModelProto) -> None:
    model.graph.input[0].name = "ids"


def retyped(model: onnx.ModelProto) -> None:
    model.graph.input[1].type.tensor_type.elem_type = TensorProto.INT32


def reshaped(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 33


def unshaped(model: onnx.ModelProto) -> None:
    model.graph.input[2].type.tensor_type.shape.dim[0].Clear()


def widened(model: onnx.ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info("past", FLOAT, ["batch", 1]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (renamed, r"input 'ids' is int64\(batch, sequence\) in the graph, absent in the manifest"),
        (retyped, r"input 'attention_mask' is int32\(batch, sequence\) in the graph, int64\(batch, sequence\)"),
        (reshaped, r"output 'sentence_embedding' is float32\(batch, 33\) in the graph, float32\(batch, 32\)"),
        (unshaped, r"input 'token_type_ids' is int64\(\?, sequence\)"),
        (widened, r"input 'past' is float32\(batch, 1\) in the graph, absent"),
    ],
)
def test_another_signature(rewrite: Any, folder: Path, change: Change, message: str) -> None:
    with pytest.raises(BundleError, match=message):
        Bundle.open(rebuilt(rewrite, folder, change))


def newer(ir_version: int, opset: int) -> Change:
    def change(model: onnx.ModelProto) -> None:
        model.ir_version = ir_version
        next(o for o in model.opset_import if not o.domain).version = opset

    return change


@pytest.mark.parametrize(("ir_version", "opset"), [(99, 21), (10, 99), (14, 21), (10, 27)])
def test_needs_a_newer_onnxruntime(
    rewrite: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, ir_version: int, opset: int
) -> None:
    monkeypatch.setattr(graph_check, "onnxruntime_version", lambda: (1, 30))
    with pytest.raises(BundleError, match=f"IR version {ir_version} and opset {opset}.*1.30.*pip install -U"):
        Bundle.open(rebuilt(rewrite, folder, newer(ir_version, opset)))


def test_leaves_versions_beyond_its_table_to_onnxruntime(
    rewrite: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_check, "onnxruntime_version", lambda: (1, 99))
    assert Bundle.open(rebuilt(rewrite, folder, newer(15, 29)))


def test_the_table_is_right_about_the_installed_version(rewrite: Any, folder: Path) -> None:
    version = graph_check.onnxruntime_version()
    assert version >= min(graph_check.NEWEST)
    newest = [graph_check.NEWEST[release] for release in sorted(graph_check.NEWEST) if release <= version][-1]
    path = rebuilt(rewrite, folder, newer(newest[0], 21))
    assert Embedder(Bundle.open(path)).embed(["the cat"]).any()
