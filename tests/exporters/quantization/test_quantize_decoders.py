"""Quantization of decoders: what is stored, how often, what it costs, and which options there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
import torch
from safetensors.torch import load_file, save_file

from edgebert_exporters import export_checkpoint, quantize_bundle
from edgebert_exporters.fidelity.comparison import negative_log_likelihood
from edgebert_exporters.inference.decoder import MOST_TOKENS
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.inference.pytorch_reference import load_reference
from edgebert_exporters.inference.sample_texts import MIN_TEXTS, Sample, to_batches
from edgebert_exporters.quantization.schemes import (
    CPU_REQUIREMENTS,
    FLOAT16,
    INT8_PER_CHANNEL,
    Scheme,
    WeightFormat,
    resolve_scheme,
)
from edgebert_runtime import Bundle
from edgebert_runtime.bundle.onnx_parser import read_header
from edgebert_runtime.bundle.operator_allowlist import ALLOWED_OPERATORS
from edgebert_runtime.errors import QuantizationError
from tests.conftest import FORMS
from tests.support.tiny import sizes, write_checkpoint

SIZES = sizes("gpt2")
LAYERS, DIM = SIZES["num_hidden_layers"], SIZES["hidden_size"]
TOKENS, POSITIONS = "gpt2.token_embedding.weight", "gpt2.position_embedding.weight"
VOCAB = 5000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a float32 bundle whose table of tokens is most of it, beside its checkpoint."""
    folder = tmp_path_factory.mktemp("large")
    source = write_checkpoint(folder / "source", task="generate", model_type="gpt2", vocab_size=VOCAB)
    return export_checkpoint(source, folder / "fp32").path


def initializers(bundle: Bundle) -> dict[str, npt.NDArray[Any]]:
    constants = ir.load(bundle.path / "model.onnx").graph.initializers
    return {name: value.const_value.numpy() for name, value in constants.items() if value.const_value is not None}


def stored(bundle: Bundle) -> int:
    return sum(entry.bytes for name, entry in bundle.manifest.files.items() if name.endswith((".onnx", ".bin")))


def users(bundle: Bundle, name: str) -> Counter[str]:
    nodes = ir.load(bundle.path / "model.onnx").graph
    return Counter(node.op_type for node in nodes for v in node.inputs if v is not None and v.name == name)


def test_a_tied_table_is_stored_once(large: Path) -> None:
    parameters = sum(p.numel() * 4 for p in load_reference(large.parent / "source").parameters())  # each one once
    assert parameters < 2 * VOCAB * DIM * 4
    assert parameters < stored(Bundle.open(large)) < 1.1 * parameters


@pytest.mark.parametrize("target", ["cpu", "portable"])
def test_both_uses_are_of_the_one_table(target: str, decoder_bundle: Callable[[str], Path]) -> None:
    quantized = Bundle.open(decoder_bundle(target))
    assert users(quantized, TOKENS) == {"Gather": 1, "Gemm": 1}
    shapes = Counter(array.shape for array in initializers(quantized).values())
    assert shapes[SIZES["vocab_size"], DIM] == 1
    assert shapes[DIM, SIZES["vocab_size"]] == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_tied_table_is_quantized_once(form: str, large: Path, tmp_path: Path) -> None:
    before, after = Bundle.open(large), quantize_bundle(large, tmp_path / form, **FORMS[form])  # type: ignore[arg-type]
    assert stored(after) < 0.35 * stored(before)
    constants = initializers(after)
    wide = {name: array.dtype.name for name, array in constants.items() if array.size >= VOCAB * DIM / 2}
    kind, *operators = (
        ("int8", "Gather", "QGemm") if form == "channel" else ("uint8", "GatherBlockQuantized", "MatMulNBits")
    )
    assert wide == {f"{TOKENS}.{kind}": kind}
    assert users(after, f"{TOKENS}.{kind}") == Counter(operators)
    assert constants[POSITIONS].dtype == np.float32
    weights = after.manifest.weights
    assert weights.coverage == (4 * LAYERS + 1, 4 * LAYERS + 1)
    assert weights.skipped == {POSITIONS: "a position embedding"}
    assert weights.cpu_requirements == CPU_REQUIREMENTS["channel" if form == "channel" else "block"]
    assert after.manifest.graphs == before.manifest.graphs
    assert after.manifest.decoding == before.manifest.decoding


@pytest.mark.parametrize(
    ("form", "kind", "dtype"), [("int8", 8, "uint8"), ("int4", 4, "uint8"), ("channel", 0, "int8")]
)
def test_layers_are_stored_as_the_scheme_says(
    form: str, kind: int, dtype: str, decoder_bundle: Callable[[str], Path]
) -> None:
    bundle = Bundle.open(decoder_bundle(form))
    nodes = Counter(node.op_type for node in ir.load(bundle.path / "model.onnx").graph)
    assert nodes["MatMulNBits"] == (4 * LAYERS + 1 if kind else 0)
    assert nodes["QGemm"] == (0 if kind else 4 * LAYERS + 1)
    assert nodes["GroupQueryAttention"] == LAYERS
    assert nodes["Gemm"] == nodes["MatMul"] == 0
    constants = initializers(bundle)
    stem = f"gpt2.layers.0.ffn_up.weight.{'uint' if kind else 'int'}{kind or 8}"
    assert constants[stem].dtype == dtype
    assert constants[stem].size == DIM * SIZES["intermediate_size"] * (kind or 8) // 8
    table = "uint8" if kind else "int8"
    assert constants[f"{TOKENS}.{table}"].dtype == table
    assert ("gpt2.layers.0.ffn_up.weight.smoothing" in constants) == (kind == 0)


@pytest.mark.parametrize("form", FORMS)
def test_report_says_what_it_cost(form: str, decoder_bundle: Callable[[str], Path]) -> None:
    manifest = Bundle.open(decoder_bundle(form)).manifest
    report, fidelity = manifest.report, manifest.report["fidelity"]
    assert manifest.weights.scheme == report["scheme"] == ("int4" if form == "int4" else "int8")
    assert (report["granularity"], report["block_size"]) == {
        "int8": ("block", 128),
        "int4": ("block", 64),
        "channel": ("channel", None),
    }[form]
    assert report["min_fidelity"] == (0.95 if form == "int4" else 0.99)
    assert set(fidelity) == {
        *("texts", "cosine_mean", "cosine_min", "cosines"),
        *("top1_agreement", "flip_rate", "kl_mean"),
        *("perplexity_before", "perplexity_after", "bits_per_byte_before", "bits_per_byte_after", "token_agreement"),
    }
    least = 0.9 if form == "int4" else 0.99
    assert least < fidelity["cosine_mean"] < 1
    assert 0.5 < fidelity["top1_agreement"] <= 1
    assert 0 < fidelity["kl_mean"] < 0.1
    assert 0 < abs(fidelity["perplexity_after"] / fidelity["perplexity_before"] - 1) < 0.2
    assert (0 if form == "int4" else 0.3) < fidelity["token_agreement"] <= 1
    assert report["batch_invariance"]["cosine_min"] > 0.999999, "a row does not depend on the others"
    assert [row["shape"] for row in report["speed"]] == ["1 x 1 after 32", "1 x 64 after 0", "8 x 1 after 32"]


def test_perplexity_is_that_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    logits, ids = (rng.standard_normal((300, 40)) * 9).astype(np.float32), rng.integers(0, 40, 300).tolist()
    expected = torch.nn.functional.cross_entropy(torch.tensor(logits[:-1]), torch.tensor(ids[1:]), reduction="none")
    np.testing.assert_allclose(negative_log_likelihood(logits, ids), expected.numpy(), rtol=1e-4, atol=1e-6)
    assert negative_log_likelihood(logits[:1], ids[:1]).shape == (0,)


def test_every_token_of_a_text_is_asked_about(task_bundle: Callable[[str], Path]) -> None:
    samples = OpenedBundle.open(task_bundle("generate")).samples([[4, 5, 6], [], [7]])
    assert [(sample.ids, list(sample.chosen)) for sample in samples] == [([4, 5, 6], [0, 1, 2]), ([7], [0])]
    ((indices, batch),) = to_batches(samples, ["input_ids", "attention_mask", "logits_indices"])
    assert indices == [0, 1]
    assert batch.feeds["logits_indices"].tolist() == [0, 1, 2, 3]
    texts = [Sample([1] * 30, [0] * 30, range(30))] * 20
    assert max(b.input_ids.size for _, b in to_batches(texts, ["input_ids"])) <= 256
    assert len(OpenedBundle.open(task_bundle("generate")).samples([[1] * 30] * 1000)) == MOST_TOKENS // 30
    assert len(OpenedBundle.open(task_bundle("generate")).samples([[1] * 2000] * 10)) == MIN_TEXTS


def test_block_sizes_and_excluded_layers(task_bundle: Callable[[str], Path], tmp_path: Path) -> None:
    quantized = quantize_bundle(task_bundle("generate"), tmp_path / "b", block_size=16, exclude=["*.ffn_down.weight"])
    assert quantized.manifest.report["block_size"] == 16
    assert quantized.manifest.weights.coverage == (3 * LAYERS + 1, 4 * LAYERS + 1)
    products = [node for node in ir.load(quantized.path / "model.onnx").graph if node.op_type == "MatMulNBits"]
    assert {node.attributes.get_int("block_size") for node in products} == {16}
    assert {node.attributes.get_int("accuracy_level") for node in products} == {4}


def test_a_head_of_its_own_is_quantized_by_itself(tmp_path: Path) -> None:
    source = write_checkpoint(
        tmp_path / "source",
        task="generate",
        model_type="gpt2",
        settings={"tie_word_embeddings": False},
        vocab_size=VOCAB,
    )
    weights = load_file(source / "model.safetensors")
    weights["lm_head.weight"] = torch.randn(VOCAB, DIM)
    save_file(weights, source / "model.safetensors")
    before = export_checkpoint(source, tmp_path / "fp32")
    after = quantize_bundle(before.path, tmp_path / "int8")
    assert users(after, "head.weight.uint8") == {"MatMulNBits": 1}
    assert users(after, f"{TOKENS}.uint8") == {"GatherBlockQuantized": 1}
    assert stored(after) < 0.35 * stored(before)


def test_bundles_may_hold_the_contrib_operators_that_are_written(
    decoder_bundle: Callable[[str], Path],
    translator_bundle: Callable[[str], Path],
    int8_bundle: Path,
    tmp_path: Path,
) -> None:
    """And no others."""
    bundles = [make(form) for make in (decoder_bundle, translator_bundle) for form in ("cpu", *FORMS)]
    elmo = write_checkpoint(tmp_path / "elmo", task="embed", model_type="elmo")
    exact = export_checkpoint(elmo, tmp_path / "fp32", pooling="mean", normalize=True)
    bundles.append(quantize_bundle(exact.path, tmp_path / "int8", min_fidelity=0.9).path)
    graphs = [file for bundle in (*bundles, int8_bundle) for file in bundle.glob("*.onnx")]
    written = set.union(*(set(read_header(graph).operators) for graph in graphs))
    assert written <= ALLOWED_OPERATORS
    assert {operator for operator in ALLOWED_OPERATORS if operator[0]} == {entry for entry in written if entry[0]}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("generate", {"name": "int3"}, "scheme='int3' is not one of int8, int4, int8-static, fp16"),
    ("generate", {"granularity": "some"}, "granularity='some' is not one of block, channel"),
    ("generate", {"algorithm": "up"}, "algorithm='up' is not one of rtn, gptq"),
    ("embed", {"name": "int8-static", "method": "mean"}, "calibration_method='mean' is not one of min-max, percentile"),
    ("generate", {"block_size": 48}, "block_size=48 is not one of 16, 32, 64, 128, 256"),
    ("generate", {"block_size": True}, "block_size=True is not one of 16"),
    (
        "generate",
        {"name": "int4", "granularity": "channel"},
        "granularity='channel' is not for scheme='int4'; leave it out",
    ),
    (
        "generate",
        {"block_size": 64, "granularity": "channel"},
        "block_size=64 is not for granularity='channel'; leave it out",
    ),
    ("tag", {"asymmetric": True, "granularity": "channel"}, "asymmetric=True is not for granularity='channel'"),
    ("embed", {"name": "fp16", "granularity": "block"}, "granularity='block' is not for scheme='fp16'; leave it out"),
    (
        "embed",
        {"name": "int8-static", "algorithm": "gptq"},
        "algorithm='gptq' is not for scheme='int8-static'; leave it out",
    ),
    ("embed", {"method": "mse"}, "calibration_method='mse' is not for scheme='int8'; leave it out"),
]


@pytest.mark.parametrize(("task", "options", "message"), REFUSED)
def test_options_that_do_not_fit_are_refused_by_name(task: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        resolve_scheme(task, **{"name": "int8", **options})


@pytest.mark.parametrize(
    ("task", "options", "expected"),
    [
        ("embed", {}, Scheme("int8", "channel", INT8_PER_CHANNEL)),
        ("embed", {"granularity": "block"}, Scheme("int8", "block", WeightFormat(8, 128))),
        ("tag", {"block_size": 64}, Scheme("int8", "block", WeightFormat(8, 64))),
        ("embed", {"name": "int4", "asymmetric": True}, Scheme("int4", "block", WeightFormat(4, 64, True, "gptq"))),
        ("generate", {}, Scheme("int8", "block", WeightFormat(8, 128))),
        ("generate", {"granularity": "channel"}, Scheme("int8", "channel", INT8_PER_CHANNEL)),
        (
            "generate",
            {"name": "int4", "algorithm": "rtn"},
            Scheme("int4", "block", WeightFormat(4, 64, algorithm="rtn")),
        ),
        ("translate", {}, Scheme("int8", "channel", INT8_PER_CHANNEL)),
        ("translate", {"granularity": "block"}, Scheme("int8", "block", WeightFormat(8, 128))),
        (
            "embed",
            {"name": "int8-static", "method": "mse"},
            Scheme("int8-static", "any", WeightFormat(8, ranges="mse")),
        ),
        ("generate", {"name": "fp16"}, Scheme("fp16", "any", FLOAT16)),
    ],
)
def test_a_scheme_suits_the_task(task: str, options: dict[str, Any], expected: Scheme) -> None:
    assert resolve_scheme(task, **{"name": "int8", **options}) == expected


def test_refused_before_any_work(decoder_bundle: Callable[[str], Path], fp32_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(QuantizationError, match="granularity='channel' is not for scheme='int4'"):
        quantize_bundle(fp32_bundle, tmp_path / "out", scheme="int4", granularity="channel")
    with pytest.raises(QuantizationError, match=r"target portable, and int4 uses .*export for the target cpu"):
        quantize_bundle(decoder_bundle("portable"), tmp_path / "out", scheme="int4")
    with pytest.raises(QuantizationError, match=r"is quantized already \(int4\)"):
        quantize_bundle(decoder_bundle("int4"), tmp_path / "out")
    with pytest.raises(QuantizationError, match=r"mean cosine of 0\.\d{4} to float32, less than 0\.99999;"):
        quantize_bundle(decoder_bundle("cpu"), tmp_path / "out", min_fidelity=0.99999, scheme="int4")
    assert not list(tmp_path.iterdir())
