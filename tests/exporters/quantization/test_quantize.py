"""Quantizing a bundle: the report, what is refused, and that nothing wrong comes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import edgebert_exporters.quantization.quantizer as quantizer_module
from edgebert_exporters import quantize_bundle
from edgebert_exporters.inference.encoder import SHAPES
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.inference.sample_texts import Sample, sample_rows, sample_texts, to_batches
from edgebert_exporters.quantization.calibration import AbsMaxObserver, observe_graph
from edgebert_exporters.quantization.int8_per_channel import quantize_per_channel
from edgebert_runtime import Bundle, Embedder
from edgebert_runtime.errors import ExportError, QuantizationError
from tests.support.tiny import CONFIG

LINEARS = 4 * CONFIG["num_hidden_layers"]


@pytest.fixture(scope="module")
def large_int8(large_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the int8 form of the large bundle."""
    return quantize_bundle(large_bundle, tmp_path_factory.mktemp("large") / "int8").path


def test_report_says_what_was_done(int8_bundle: Path) -> None:
    manifest = Bundle.open(int8_bundle).manifest
    assert manifest.weights.scheme == "int8"
    assert manifest.weights.coverage == (LINEARS, LINEARS)
    assert "without VNNI session.x64quantprecision=1" in str(manifest.weights.cpu_requirements)
    report = manifest.report
    assert report["coverage"]["quantized"] == report["coverage"]["eligible"] == LINEARS
    assert set(report["coverage"]["skipped"]) == {
        f"bert.embeddings.{t}.weight" for t in ("token_embedding", "position_embedding", "segment_embedding")
    }
    assert 0.99 <= report["fidelity"]["cosine_min"] <= report["fidelity"]["cosine_mean"] < 1
    assert len(report["speed"]) == len(SHAPES)
    assert all(row["before_ms"] > 0 and row["after_ms"] > 0 and row["speedup"] > 0 for row in report["speed"])
    assert json.loads((int8_bundle / "edgebert.json").read_text())["report"] == report


def test_signature_stays_dynamic(fp32_bundle: Path, int8_bundle: Path) -> None:
    before, after = (Bundle.open(path).manifest.graphs for path in (fp32_bundle, int8_bundle))
    assert before == after
    shapes = [[v.shape for v in ir.load(p / "model.onnx").graph.inputs] for p in (fp32_bundle, int8_bundle)]
    assert shapes[0] == shapes[1]
    engine = Embedder.load(int8_bundle)
    for rows in ([[2, 3]], [[2, 7, 3], [2, 8, 9, 3], [2, 3]], [[2] + [9] * 38 + [3]]):
        assert engine.embed(rows).shape == (len(rows), CONFIG["hidden_size"])


def test_vectors_stay_close(fp32_bundle: Path, int8_bundle: Path) -> None:
    texts = ["the cat sat on a mat", "mail ran in the rain and sun", "school , farm . moon ?", ""]
    cosines = (Embedder.load(fp32_bundle).embed(texts) * Embedder.load(int8_bundle).embed(texts)).sum(1)
    assert 0.99 < cosines.min() < cosines.max() < 1.00001


def test_tables_and_weights_are_stored_once_and_small(large_bundle: Path, large_int8: Path) -> None:
    fp32, int8 = (Bundle.open(path).manifest for path in (large_bundle, large_int8))
    assert int8.report["coverage"]["embeddings"] == ["bert.embeddings.token_embedding.weight"]
    stored = [sum(entry.bytes for name, entry in m.files.items() if name != "tokenizer.json") for m in (fp32, int8)]
    assert stored[1] < 0.35 * stored[0]
    assert int8.report["bytes"] == {"before": fp32.weights.bytes, "after": int8.weights.bytes}
    names = {node.op_type for node in ir.load(large_int8 / "model.onnx").graph}
    assert "Gemm" not in names
    assert {"GatherBlockQuantized", "QAttention", "QGemm"} <= names


def test_excluded_layers_stay_float32(fp32_bundle: Path, tmp_path: Path) -> None:
    quantized = quantize_bundle(fp32_bundle, tmp_path / "b", exclude=["*.ffn_down.weight", "*layers.0.qkv*"])
    assert quantized.manifest.weights.coverage == (LINEARS - 3, LINEARS)
    assert quantized.manifest.weights.skipped["bert.layers.0.qkv.weight"] == "excluded by the user"
    assert sum(node.op_type in ("Gemm", "Attention") for node in ir.load(quantized.path / "model.onnx").graph) == 3


BAD: list[tuple[dict[str, Any], str]] = [
    ({"scheme": "int3"}, "scheme='int3' is not one of int8, int4, int8-static, fp16"),
    ({"exclude": ["*.decoder.*"]}, r"exclude='\*.decoder.\*' matches none of the weights .*ffn_down.weight"),
    ({"exclude": ["*"]}, "nothing to quantize: 8 matrix products"),
    ({"min_fidelity": 1.5}, "min_fidelity=1.5 is not between 0 and 1"),
    ({"min_fidelity": 1.0}, r"mean cosine of \d\.\d{4,} to float32, less than 1.0; leave layers out with exclude"),
    ({"calibration": ["too", "few"]}, "2 sample texts are too few"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_refused_and_nothing_left(options: dict[str, Any], message: str, fp32_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(QuantizationError, match=message):
        quantize_bundle(fp32_bundle, tmp_path / "out", **options)
    assert not list(tmp_path.iterdir())


def test_unsuitable_bundles_are_refused(
    fp32_bundle: Path, int8_bundle: Path, portable_bundle: Path, tmp_path: Path
) -> None:
    with pytest.raises(QuantizationError, match=r"is quantized already \(int8\); give a float32 bundle"):
        quantize_bundle(int8_bundle, tmp_path / "out")
    with pytest.raises(QuantizationError, match="for the target portable.*export for the target cpu"):
        quantize_bundle(portable_bundle, tmp_path / "out")
    with pytest.raises(ExportError, match="exists"):
        quantize_bundle(fp32_bundle, int8_bundle)
    assert not list(tmp_path.iterdir())


def test_the_source_is_left_alone(fp32_bundle: Path, tmp_path: Path) -> None:
    before = {p.name: p.read_bytes() for p in fp32_bundle.iterdir()}
    quantize_bundle(fp32_bundle, tmp_path / "out")
    assert {p.name: p.read_bytes() for p in fp32_bundle.iterdir()} == before


def test_numbers_that_are_not_finite_never_become_a_bundle(
    fp32_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = quantize_per_channel

    def infinite(editor: Any, uses: Any, largest: Any) -> None:
        real(editor, uses, largest)
        scale = editor.graph.initializers[f"{uses[0].name}.scale"]
        scale.const_value = ir.tensor(scale.const_value.numpy() * np.float32(np.inf), name=scale.name)

    monkeypatch.setattr(quantizer_module, "quantize_per_channel", infinite)
    with pytest.raises(QuantizationError, match="numbers of sentence_embedding are not finite at batch 1 x length 1"):
        quantize_bundle(fp32_bundle, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_broken_quantization_never_becomes_a_bundle(
    fp32_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = quantize_per_channel

    def wrong(editor: Any, uses: Any, largest: Any) -> None:
        real(editor, uses, largest)
        scale = editor.graph.initializers[f"{uses[0].name}.scale"]
        scale.const_value = ir.tensor(scale.const_value.numpy()[::-1].copy(), name=scale.name)

    monkeypatch.setattr(quantizer_module, "quantize_per_channel", wrong)
    with pytest.raises(QuantizationError, match="less than 0.99"):
        quantize_bundle(fp32_bundle, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_activations_are_watched_in_bounded_memory(fp32_bundle: Path) -> None:
    model = ir.load(fp32_bundle / "model.onnx")
    names = [n.outputs[0].name or "" for n in model.graph if n.op_type == "Gelu"]
    rows = [[2, 9, 3], [2, 8, 7, 6, 3], [2, 5, 3]]
    inputs = ["input_ids", "attention_mask", "token_type_ids"]
    batches = [b for row in rows for _, b in to_batches([Sample(row, [0] * len(row))], inputs)]
    bundle = OpenedBundle.open(fp32_bundle)
    few, more = ({name: AbsMaxObserver() for name in names} for _ in range(2))
    observe_graph(bundle, "model", few, batches[:2])
    assert {observer.channels.shape for observer in few.values()} == {(CONFIG["intermediate_size"],)}
    observe_graph(bundle, "model", more, batches)
    assert all((more[name].channels >= few[name].channels - 1e-5).all() for name in names)


def test_texts_of_a_foreign_alphabet_become_random_ids(fp32_bundle: Path, large_bundle: Path) -> None:
    assert len(sample_texts()) > 100
    rows = sample_rows(Bundle.open(fp32_bundle), None)
    assert all(2 <= len(row) <= CONFIG["max_position_embeddings"] for row in rows)
    own_rows = sample_rows(Bundle.open(fp32_bundle), ["the cat"] * 8)
    assert own_rows[0] == [2, 5, 6, 3]
    random = sample_rows(Bundle.open(large_bundle), None)  # twenty words of 20,000: it cannot read our texts
    assert len({i for row in random for i in row}) > 500
