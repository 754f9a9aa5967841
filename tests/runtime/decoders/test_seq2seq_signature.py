"""The signatures of an encoder and its decoder are read from the manifest, and nothing else is taken for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from edgebert_runtime.bundle.manifest import GraphSpec, TensorSpec
from edgebert_runtime.decoders.seq2seq_signature import Seq2SeqSignature
from edgebert_runtime.errors import BundleError
from tests.runtime.tasks.fake_seq2seq import CROSS, HEAD, HEADS, PAST, graph_specs

Specs = dict[str, GraphSpec]


@pytest.mark.parametrize("shared", [True, False])
def test_reads_sizes_and_names(shared: bool) -> None:
    graph = Seq2SeqSignature.from_specs(**graph_specs(shared, 77))
    assert (graph.num_heads, graph.head_dim, graph.vocab_size, graph.in_place) == (HEADS, HEAD, 77, shared)
    assert (list(graph.cross_names), list(graph.past_names)) == (CROSS, PAST)
    assert list(graph.present_names) == [name.replace("past_key_values", "present") for name in PAST]


def changed(specs: Specs, graph: str, side: str, change: Callable[[list[TensorSpec]], Any]) -> Specs:
    """Return the signatures with one list of tensors changed."""
    values = list(getattr(specs[graph], side))
    change(values)
    new: dict[str, Any] = {side: tuple(values)}
    return {**specs, graph: replace(specs[graph], **new)}


def without(name: str) -> Callable[[list[TensorSpec]], Any]:
    def change(values: list[TensorSpec]) -> None:
        values[:] = [value for value in values if value.name != name]

    return change


def shaped(name: str, shape: tuple[int | str, ...]) -> Callable[[list[TensorSpec]], Any]:
    def change(values: list[TensorSpec]) -> None:
        values[:] = [replace(value, shape=shape) if value.name == name else value for value in values]

    return change


def more(values: list[TensorSpec]) -> None:
    values.append(TensorSpec("more", "int64", (1,)))


@pytest.mark.parametrize(
    ("graph", "side", "change", "message"),
    [
        ("encoder", "inputs", more, "encoder.onnx has not the inputs and outputs of an encoder"),
        ("encoder", "inputs", without("attention_mask"), "encoder.onnx has not"),
        ("encoder", "outputs", without(CROSS[-1]), "encoder.onnx has not"),
        ("decoder", "inputs", more, "decoder.onnx has not the inputs and outputs of its decoder"),
        ("decoder", "inputs", without("position"), "decoder.onnx has not"),
        ("decoder", "inputs", without("top_k"), "decoder.onnx has not"),
        ("decoder", "inputs", without(PAST[0]), "decoder.onnx has not"),
        ("decoder", "outputs", without("logits"), "decoder.onnx has not"),
        ("decoder", "outputs", more, "decoder.onnx has not"),
        ("decoder", "inputs", without("cache_indirection"), "has keys and values of the shape"),
        ("decoder", "inputs", shaped(PAST[1], ("rows", HEADS, "max_sequence", 9)), "has keys and values of the shape"),
        ("decoder", "outputs", shaped("logits", ("rows", "vocab")), "has keys and values of the shape"),
    ],
)
def test_other_graphs_are_refused(graph: str, side: str, change: Any, message: str) -> None:
    with pytest.raises(BundleError, match=message):
        Seq2SeqSignature.from_specs(**changed(graph_specs(True, 77), graph, side, change))
