"""The files of models that translate: what both graphs have is stored once, and a bundle is whole or refused."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from edgebert_exporters import export_checkpoint, quantize_bundle, verify_bundle
from edgebert_exporters.inference.pytorch_reference import load_reference
from edgebert_runtime import Bundle, Translator
from edgebert_runtime.errors import BundleError, IntegrityError
from tests.conftest import FORMS
from tests.support.tiny import sizes, write_checkpoint

Maker = Callable[..., Path]
GRAPHS = ("encoder", "decoder")
DIM, VOCAB = sizes("marian")["hidden_size"], 24000
SOURCE = [7, 3, 3, 9, 11, 4, 20, 8]
# A few texts, for what is measured of a quantized model is nothing to do with its files.
TEXTS = ["the cat sat on a mat"] * 16


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a float32 bundle whose table of tokens is most of it, beside its checkpoint."""
    folder = tmp_path_factory.mktemp("large")
    options: dict[str, Any] = {"vocab_size": VOCAB, "encoder_layers": 1, "decoder_layers": 1}
    source = write_checkpoint(folder / "source", task="translate", model_type="marian", **options)
    return export_checkpoint(source, folder / "fp32").path


def held(bundle: Path, graph: str) -> dict[str, Any]:
    """Return the weights of a graph."""
    initializers = ir.load(bundle / f"{graph}.onnx").graph.initializers
    return {name: value.const_value for name, value in initializers.items() if value.const_value is not None}


def assert_stored_once(bundle: Path, table: str, size: int) -> None:
    """Make sure that nothing is twice in weights.bin, and nothing large elsewhere; a table is in both graphs."""
    outside = [t for graph in GRAPHS for t in held(bundle, graph).values() if isinstance(t, ir.ExternalTensor)]
    assert {tensor.location for tensor in outside} == {"weights.bin"}
    assert len({tensor.offset for tensor in outside}) == len({tensor.tobytes() for tensor in outside}) < len(outside)
    places = [held(bundle, graph)[table] for graph in GRAPHS]
    assert {(place.offset, place.length) for place in places} == {(places[0].offset, size)}
    parts = [bundle / f"{graph}.onnx" for graph in GRAPHS]
    assert all(part.stat().st_size < size / 10 for part in parts)
    stored = sum(file.stat().st_size for file in (*parts, bundle / "weights.bin"))
    assert Bundle.open(bundle).manifest.weights.bytes < stored < Bundle.open(bundle).manifest.weights.bytes * 1.05


def users(bundle: Path, graph: str, weight: str) -> Counter[str]:
    nodes = ir.load(bundle / f"{graph}.onnx").graph
    return Counter(node.op_type for node in nodes for v in node.inputs if v is not None and v.name == weight)


def test_what_both_graphs_have_is_stored_once(large: Path) -> None:
    manifest = Bundle.open(large).manifest
    assert set(manifest.files) == {"encoder.onnx", "decoder.onnx", "weights.bin", "tokenizer.json"}
    assert_stored_once(large, "token_embedding.weight", VOCAB * DIM * 4)
    parameters = sum(p.numel() * 4 for p in load_reference(large.parent / "source").parameters())  # each one once
    positions = sizes("marian")["max_position_embeddings"] * DIM * 4  # constants
    assert 0 <= manifest.weights.bytes - parameters - positions < 1000
    assert users(large, "encoder", "token_embedding.weight") == {"Gather": 1}
    assert users(large, "decoder", "token_embedding.weight") == {"Gather": 1, "Gemm": 1}


# Where the table is quantized, what looks up in it and what multiplies by it, and its shape in each graph.
STORED = {
    "int8": ("uint8", ["GatherBlockQuantized"], ["GatherBlockQuantized", "MatMulNBits"], (VOCAB, DIM // 16, 16)),
    "int4": ("uint8", ["GatherBlockQuantized"], ["GatherBlockQuantized", "MatMulNBits"], (VOCAB, DIM // 16, 16)),
    "channel": ("int8", ["Gather"], ["Gather", "QGemm"], (VOCAB, DIM)),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_quantized_table_is_stored_once(form: str, large: Path, tmp_path: Path) -> None:
    """Where one graph has it in rows and the other in blocks as well."""
    after = quantize_bundle(large, tmp_path / "q", calibration=TEXTS, **FORMS[form])  # type: ignore[arg-type]
    kind, *operators, shape = STORED[form]
    table = f"token_embedding.weight.{kind}"
    assert_stored_once(after.path, table, VOCAB * DIM)
    for graph, expected in zip(GRAPHS, operators, strict=True):
        assert users(after.path, graph, table) == Counter(expected)
        assert {name for name, t in held(after.path, graph).items() if t.size >= VOCAB * DIM / 2} == {table}
    assert [tuple(held(after.path, graph)[table].shape) for graph in GRAPHS] == [(VOCAB, DIM), shape]
    assert after.manifest.weights.bytes < 0.35 * Bundle.open(large).manifest.weights.bytes
    assert len(Translator.load(after.path).translate([SOURCE], max_new_tokens=3)[0].tokens) == 3


def test_a_bundle_is_whole_wherever_it_is(large: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(large, tmp_path / "elsewhere"))
    (translation,), (expected,) = (
        Translator.load(folder).translate([SOURCE], max_new_tokens=5) for folder in (moved, large)
    )
    assert translation == expected
    for name in ("weights.bin", "decoder.onnx", "encoder.onnx"):
        content = (moved / name).read_bytes()
        (moved / name).unlink()
        with pytest.raises(IntegrityError, match=rf"{name} is missing .*; copy the whole folder, or export again"):
            Translator.load(moved)
        (moved / name).write_bytes(content[:-9] + bytes(9))
        with pytest.raises(IntegrityError, match=rf"{name} has SHA-256"):
            Translator.load(moved)
        (moved / name).write_bytes(content)


def test_the_graphs_of_two_bundles_do_not_go_together(translator_bundle: Maker, tmp_path: Path) -> None:
    """Where someone changed the manifest as well, the signatures still have to fit."""
    mixed = Path(shutil.copytree(translator_bundle("cpu"), tmp_path / "mixed"))
    shutil.copy(translator_bundle("portable") / "decoder.onnx", mixed / "decoder.onnx")
    manifest = (mixed / "edgebert.json").read_text()
    entry = Bundle.open(translator_bundle("cpu")).manifest.files["decoder.onnx"]
    second = Bundle.open(translator_bundle("portable")).manifest.files["decoder.onnx"]
    changed = manifest.replace(entry.sha256, second.sha256).replace(str(entry.bytes), str(second.bytes))
    (mixed / "edgebert.json").write_text(changed)
    with pytest.raises(BundleError, match=r"decoder\.onnx has not the signature that the manifest gives: input"):
        Bundle.open(mixed)


def test_two_vocabularies(tmp_path: Path) -> None:
    """Sources and targets have tokenizers and tables of their own, which other graphs have not."""
    layers: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1}
    source = write_checkpoint(tmp_path / "source", task="translate", model_type="seq2seq", **layers)
    exported = export_checkpoint(source, tmp_path / "fp32")
    small = quantize_bundle(exported.path, tmp_path / "int8", calibration=TEXTS, min_fidelity=0)
    names = {"source_tokenizer.json", "target_tokenizer.json"}
    for bundle in (exported, small):
        assert set(bundle.manifest.files) == {"encoder.onnx", "decoder.onnx", *names}
        for name in names:
            assert json.loads((bundle.path / name).read_text()) == json.loads((source / name).read_text())
        assert "target_token_embedding.weight" in held(bundle.path, "decoder")
        assert "token_embedding.weight" not in held(bundle.path, "decoder")
        assert verify_bundle(bundle.path, source)["golden_cosine"] == pytest.approx(1)
    assert exported.manifest.limits.vocab_size == sizes("seq2seq")["vocab_size"]
    (logits, *_) = exported.manifest.graphs["decoder"].outputs
    assert logits.shape == ("rows", sizes("seq2seq")["decoder_vocab_size"])
