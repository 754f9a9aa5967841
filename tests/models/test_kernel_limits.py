"""The table of kernel limits, against the kernels themselves and against every graph that is written."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch.nn import functional

from edgebert.models.kernel_limits import KERNELS, padded_head_dim
from edgebert.models.operators import cached_attention
from edgebert_exporters.export import export_checkpoint
from edgebert_exporters.graphs.kernel_check import kernel_problems
from edgebert_exporters.quantize import quantize_bundle
from edgebert_runtime import Generator
from edgebert_runtime.bundle.operator_allowlist import MICROSOFT
from tests.support.sharing import Once
from tests.support.tiny import write_checkpoint

Array = npt.NDArray[Any]
MODELS: dict[str, dict[str, Any]] = {
    "bert": {"task": "embed", "num_hidden_layers": 1},
    "gpt2": {"task": "generate", "hidden_size": 20, "num_hidden_layers": 1},
    "bart": {"task": "translate", "encoder_layers": 1, "decoder_layers": 1},
    "elmo": {"task": "embed", "num_hidden_layers": 1},
}
SCHEMES: tuple[dict[str, Any], ...] = (
    {"scheme": "int8", "granularity": "channel"},
    {"scheme": "int8", "granularity": "block", "asymmetric": True},
    {"scheme": "int4", "algorithm": "rtn"},
)


def node_model(operator: str, inputs: Sequence[Array | None], outputs: int, **attributes: Any) -> ir.Model:
    """Return a graph of one node, all of whose inputs are constants."""
    values: list[ir.Value | None] = []
    for number, array in enumerate(inputs):
        if array is not None:
            tensor = ir.tensor(array, name=f"input{number}")
            value = ir.Value(name=tensor.name, const_value=tensor, type=ir.TensorType(tensor.dtype))
            value.shape = ir.Shape(array.shape)
            values.append(value)
        else:
            values.append(None)
    node = ir.node(operator, values, attributes=attributes, domain="com.microsoft", num_outputs=outputs)
    for number, output in enumerate(node.outputs):
        output.name, output.type = f"output{number}", ir.TensorType(ir.DataType.FLOAT)
    constants = [value for value in values if value is not None]
    imports = {"": 21, "com.microsoft": 1}
    graph = ir.Graph([], node.outputs, nodes=[node], initializers=constants, opset_imports=imports, name="one")
    return ir.Model(graph, ir_version=10)


def runs(model: ir.Model) -> bool:
    """Tell whether ONNX Runtime's CPU provider computes a graph without inputs."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # folds no constants
    try:
        data = ir.to_proto(model).SerializeToString()
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        session.run(None, {})
    except Exception:
        return False
    return True


def grouped_query_attention(head_dim: int) -> ir.Model:
    """Return a prompt of three tokens, two heads."""
    packed: Array = np.ones((1, 3, 6 * head_dim), np.float32)
    cache: Array = np.zeros((1, 2, 4, head_dim), np.float32)
    past: Array = np.array([2], np.int32)
    total: Array = np.array(3, np.int32)
    inputs: list[Array | None] = [packed, None, None, cache, cache, past, total]
    return node_model("GroupQueryAttention", inputs, 3, num_heads=2, kv_num_heads=2, do_rotary=0)


def matmul_nbits(block: int) -> ir.Model:
    """Return a product with five inputs and three outputs."""
    inputs: list[Array | None] = [
        np.ones((2, 5), np.float32),
        np.ones((3, 1, block), np.uint8),
        np.ones((3, 1), np.float32),
    ]
    return node_model("MatMulNBits", inputs, 1, bits=8, block_size=block, K=5, N=3, accuracy_level=4)


def gather_block_quantized(block: int) -> ir.Model:
    """Return a lookup in four rows of one block."""
    inputs: list[Array | None] = [np.ones((4, block), np.uint8), np.array([[1]]), np.ones((4, 1), np.float32)]
    options = {"bits": 8, "block_size": block, "gather_axis": 0, "quantize_axis": 1}
    return node_model("GatherBlockQuantized", inputs, 1, **options)


@pytest.mark.parametrize("head_dim", [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 20, 24, 64, 100, 104])
def test_the_table_says_which_heads_the_cached_attention_takes(head_dim: int) -> None:
    model = grouped_query_attention(head_dim)
    assert runs(model) == (not kernel_problems(model))


@pytest.mark.parametrize("make", [matmul_nbits, gather_block_quantized])
@pytest.mark.parametrize("block", [4, 8, 16, 24, 32, 64, 128, 256])
def test_the_table_says_which_blocks_a_kernel_takes(make: Any, block: int) -> None:
    model = make(block)
    assert runs(model) == (not kernel_problems(model))


def test_the_runtime_allows_exactly_the_operators_of_the_table() -> None:
    assert sorted(KERNELS) == sorted(MICROSOFT)


def test_an_operator_without_limits_in_the_table_is_named() -> None:
    (problem,) = kernel_problems(node_model("BiasGelu", [np.ones((1, 2), np.float32), np.ones(2, np.float32)], 1))
    assert problem == "com.microsoft::BiasGelu is no operator of edgebert"


@pytest.mark.parametrize("head_dim", [1, 3, 8, 20])
def test_wider_heads_change_no_result(head_dim: int) -> None:
    generator, heads, padded = torch.Generator().manual_seed(0), 2, padded_head_dim(head_dim)
    assert padded % 8 == 0
    assert padded - 8 < head_dim <= padded
    qkv = torch.randn(2 * 3, 3 * heads * head_dim, generator=generator)
    past = [torch.randn(2, heads, 4, head_dim, generator=generator) for _ in range(2)]
    wide = [functional.pad(part, (0, padded - head_dim)) for part in past]
    mask = torch.tensor([[True] * 7, [True] * 6 + [False]])
    context, (keys, values) = cached_attention(qkv, mask, (past[0], past[1]), heads, 0.3)
    same, (wide_keys, wide_values) = cached_attention(qkv, mask, (wide[0], wide[1]), heads, 0.3)
    torch.testing.assert_close(same, context)
    for narrow, padded_part in ((keys, wide_keys), (values, wide_values)):
        torch.testing.assert_close(padded_part[..., :head_dim], narrow)
        assert not padded_part[..., head_dim:].any()


@pytest.fixture(scope="module", params=list(MODELS))
def graphs(request: pytest.FixtureRequest, once: Once) -> Mapping[str, ir.Model]:
    """Return every graph of a model in float32 and in all schemes, by the path of its file."""
    model_type = request.param

    def make(folder: Path) -> None:
        write_checkpoint(folder / "checkpoint", model_type=model_type, **MODELS[model_type])
        export_checkpoint(folder / "checkpoint", folder / "fp32")
        for number, options in enumerate(SCHEMES if model_type != "elmo" else SCHEMES[:1]):
            quantize_bundle(folder / "fp32", folder / f"quantized{number}", min_fidelity=0, **options)

    folder = once(f"kernels-{model_type}", make)
    return {str(file.relative_to(folder)): ir.load(file) for file in folder.glob("*/*.onnx")}


def test_every_graph_that_is_written_keeps_to_the_table(graphs: Mapping[str, ir.Model]) -> None:
    assert graphs
    for name, model in graphs.items():
        assert not kernel_problems(model), name
        written = {node.op_type for node in model.graph.all_nodes() if node.domain != ""}
        assert written <= KERNELS.keys(), name


def test_generation_with_padded_heads_equals_that_of_the_standard_operators(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """GPT-2 with heads of 5 runs for the target cpu with heads of 8, for portable as it is."""
    checkpoint = write_checkpoint(tmp_path / "checkpoint", model_type="gpt2", **MODELS["gpt2"])
    engines = []
    for target in ("cpu", "portable"):
        with caplog.at_level(logging.INFO, logger="edgebert"):
            export_checkpoint(checkpoint, tmp_path / target, target=target)
        engines.append(Generator.load(tmp_path / target))
    widths = [engine.bundle.graph("model").inputs[-1].shape[-1] for engine in engines]
    assert widths == [8, 5]
    assert [text for text in caplog.messages if "padded" in text] == [
        "heads 5 wide are padded to 8 with zeros, as GroupQueryAttention wants"
    ]
    prompts = [[5, 6, 7, 8], [9], [3, 3, 4]]
    searches: list[dict[str, Any]] = [{}, {"num_beams": 3}, {"do_sample": True, "seed": 1, "top_k": 5}]
    for options in searches:
        padded, plain = (engine.generate(prompts, **{"max_new_tokens": 9, **options}) for engine in engines)
        assert [result.tokens for result in padded] == [result.tokens for result in plain]
        scores, plain_scores = ([result.score for result in results] for results in (padded, plain))
        np.testing.assert_allclose(scores, plain_scores, atol=1e-4)
    prefix = engines[0].prefix([5, 6])
    assert [p.tokens for p in engines[0].generate([[7, 8]], prefix=prefix, max_new_tokens=9)] == [
        p.tokens for p in engines[1].generate([[5, 6, 7, 8]], max_new_tokens=9)
    ]
