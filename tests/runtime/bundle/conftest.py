"""A bundle made by hand: a graph of a few nodes that embeds texts, in a fraction of the time of an export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebert_runtime.bundle.manifest import (
    MANIFEST_NAME,
    FileEntry,
    GraphSpec,
    Limits,
    Manifest,
    TensorSpec,
    Weights,
)
from edgebert_runtime.bundle.reader import sha256
from tests.runtime.fakes import wordpiece

DIM = 32
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUT = "sentence_embedding"


def small_graph(vocab_size: int) -> onnx.ModelProto:
    """Make a model that adds up token and segment embeddings. The segments' are a weight of 64 numbers."""
    generator = np.random.default_rng(0)
    weights: dict[str, Any] = {
        "tokens": generator.normal(size=(vocab_size, DIM)).astype(np.float32),
        "segments": generator.normal(size=2 * DIM).astype(np.float32),
        "shape": np.array([2, DIM]),
        "last": np.array([-1]),
        "sequence": np.array([1]),
    }
    nodes = [
        ("Gather", ["tokens", "input_ids"], "token_vectors"),
        ("Reshape", ["segments", "shape"], "segment_table"),
        ("Gather", ["segment_table", "token_type_ids"], "segment_vectors"),
        ("Add", ["token_vectors", "segment_vectors"], "vectors"),
        ("Unsqueeze", ["attention_mask", "last"], "column"),
        ("CastLike", ["column", "vectors"], "mask"),
        ("Mul", ["vectors", "mask"], "masked"),
    ]
    graph = helper.make_graph(
        [helper.make_node(op, inputs, [output]) for op, inputs, output in nodes]
        + [helper.make_node("ReduceSum", ["masked", "sequence"], [OUTPUT], keepdims=0)],
        "small",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in INPUTS],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", DIM])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the bundle, to be read only; ``rewrite`` makes changed copies."""
    folder = tmp_path_factory.mktemp("small") / "bundle"
    folder.mkdir()
    tokenizer = wordpiece()
    tokenizer.save(str(folder / "tokenizer.json"))
    vocab_size = tokenizer.get_vocab_size()
    onnx.save(small_graph(vocab_size), folder / "model.onnx")
    names = ("model.onnx", "tokenizer.json")
    manifest = Manifest(
        edgebert_version="0.1.0",
        family="bert",
        task="embed",
        target="cpu",
        config={"hidden_size": DIM},
        graphs={
            "model": GraphSpec(
                "model.onnx",
                tuple(TensorSpec(name, "int64", ("batch", "sequence")) for name in INPUTS),
                (TensorSpec(OUTPUT, "float32", ("batch", DIM)),),
            )
        },
        settings={"pooling": "mean", "normalize": False},
        limits=Limits(vocab_size, 64, 32),
        weights=Weights("fp32", (folder / "model.onnx").stat().st_size),
        files={name: FileEntry((folder / name).stat().st_size, sha256(folder / name)) for name in names},
    )
    (folder / MANIFEST_NAME).write_text(manifest.to_json(), encoding="utf-8")
    return folder
