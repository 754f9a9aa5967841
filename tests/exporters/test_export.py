"""Export: what comes out, that it is right, and that nothing wrong comes out."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch

import edgebert_exporters.bundles.bundle_files as bundle_files
import edgebert_exporters.export as export_module
import edgebert_exporters.inference.opened_bundle as opened_bundle
import edgebert_runtime.bundle.reader as reader
from edgebert.checkpoints import open_checkpoint
from edgebert.models.bert.model import Bert
from edgebert.models.pooling import TOKEN_POOLINGS, SentenceEncoder
from edgebert_exporters import export_checkpoint
from edgebert_exporters.graphs.onnx_export import IR_VERSION, OPSET, check_signature, render
from edgebert_exporters.graphs.signatures import encoder_signature
from edgebert_exporters.inference.pytorch_reference import load_reference
from edgebert_exporters.verification.parity import TOLERANCE
from edgebert_runtime import Bundle, Embedder
from edgebert_runtime.errors import ExportError, IntegrityError, ParityError
from tests.support.tiny import CONFIG, write_checkpoint

BUNDLES = ("fp32_bundle", "portable_bundle")


@pytest.fixture(params=BUNDLES)
def bundle(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


def test_manifest_says_what_the_bundle_is(bundle: Path, checkpoint: Path) -> None:
    manifest = Bundle.open(bundle).manifest
    assert (manifest.family, manifest.task, manifest.weights.scheme) == ("bert", "embed", "fp32")
    assert manifest.settings == {"pooling": "mean", "normalize": True, "dim": CONFIG["hidden_size"]}
    assert manifest.limits.vocab_size == CONFIG["vocab_size"]
    assert manifest.limits.max_tokens == CONFIG["max_position_embeddings"]
    assert manifest.verification["batches"] >= 30
    assert 0 < manifest.verification["max_error"] < TOLERANCE
    assert set(manifest.files) == {p.name for p in bundle.iterdir()} - {"edgebert.json"}


def test_graph_is_dynamic_and_loads_where_promised(bundle: Path) -> None:
    model = ir.load(bundle / "model.onnx")
    assert (model.ir_version, model.opset_imports[""]) == (IR_VERSION, OPSET)
    check_signature(model, encoder_signature("embed", CONFIG["hidden_size"], CONFIG["type_vocab_size"]))
    sizes = {n for v in model.graph.initializers.values() if v.const_value is not None for n in shape_constants(v)}
    assert not sizes & {14}, "2 x 7, the size of the example, is frozen into the graph"


def shape_constants(value: ir.Value) -> set[int]:
    array = value.const_value.numpy() if value.const_value is not None else np.zeros(0)
    return {int(x) for x in array.reshape(-1)} if array.dtype == np.int64 else set()


def test_portable_graph_has_standard_operators_in_one_file(portable_bundle: Path) -> None:
    model = ir.load(portable_bundle / "model.onnx")
    assert {node.domain for node in model.graph.all_nodes()} == {""}
    assert set(model.opset_imports) == {""}
    assert {p.name for p in portable_bundle.iterdir()} == {"edgebert.json", "model.onnx", "tokenizer.json"}
    assert "unoptimized" in Bundle.open(portable_bundle).manifest.verification


def test_exporting_again_is_quiet_and_gives_the_same(
    bundle: Path, checkpoint: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target, calls = Bundle.open(bundle).manifest.target, list[tuple[str, int, int]]()
    export_checkpoint(checkpoint, tmp_path / "b", target=target, progress=lambda *call: calls.append(call))
    assert capfd.readouterr() == ("", "")
    assert logging.root.manager.disable == logging.NOTSET
    assert (tmp_path / "b" / "model.onnx").read_bytes() == (bundle / "model.onnx").read_bytes()
    last = {step: (done, total) for step, done, total in calls}
    more = ["verify unoptimized"] if target == "portable" else []
    assert list(last) == ["read checkpoint", "render graph", f"verify {target}", *more]
    assert all(done == total for done, total in last.values())


def test_nothing_of_this_machine_is_in_the_file(bundle: Path) -> None:
    content = (bundle / "model.onnx").read_bytes()
    for word in (b"/home", b"site-packages", b".py", str(Path.cwd()).encode(), b"torch"):
        assert word not in content


@pytest.mark.parametrize(("pooling", "normalize"), list(zip(TOKEN_POOLINGS, [True, False] * 3, strict=True)))
def test_every_pooling_comes_from_the_checkpoint(pooling: str, normalize: bool, tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", pooling=pooling, normalize=normalize, num_hidden_layers=1)
    engine = Embedder.load(export_checkpoint(source, tmp_path / "bundle").path)
    assert engine.bundle.manifest.settings["pooling"] == pooling
    reference = load_reference(source, pooling, normalize)
    rows = [[2, 7, 8, 3], [2, 9, 3], [2, 5, 6, 7, 8, 9, 10, 11, 3]]
    expected = [reference(*(torch.tensor([x]) for x in (row, [1] * len(row), [0] * len(row)))) for row in rows]
    vectors = engine.embed(rows)
    np.testing.assert_allclose(vectors, torch.cat(expected).detach().numpy(), rtol=1e-4, atol=1e-6)
    lengths = np.linalg.norm(vectors, axis=1)
    assert np.allclose(lengths, 1, atol=1e-5) == normalize


def test_pooling_is_never_guessed(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", pooling=None, num_hidden_layers=1)
    with pytest.raises(ExportError, match=r"1_Pooling/config\.json.*give pooling, one of cls, mean, max, last, "):
        export_checkpoint(source, tmp_path / "bundle")
    exported = export_checkpoint(source, tmp_path / "bundle", pooling="max", normalize=True)
    assert exported.manifest.settings["pooling"] == "max"
    assert exported.manifest.settings["normalize"] is True


@pytest.mark.parametrize(("option", "value"), [("target", "tpu"), ("task", "paint"), ("pooling", "median")])
def test_unknown_options_are_refused(option: str, value: str, checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=value):
        export_checkpoint(checkpoint, tmp_path / "bundle", **{option: value})  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_large_weights_go_to_a_file_of_their_own(large_bundle: Path, tmp_path: Path) -> None:
    manifest = Bundle.open(large_bundle).manifest
    assert set(manifest.files) == {"model.onnx", "tokenizer.json", "weights.bin"}
    stored = (large_bundle / "weights.bin").stat().st_size
    assert stored <= manifest.weights.bytes * 1.05 + 65536
    moved = Path(shutil.copytree(large_bundle, tmp_path / "elsewhere"))
    assert Embedder.load(moved).embed(["the cat"]).shape == (1, CONFIG["hidden_size"])
    (moved / "weights.bin").unlink()
    with pytest.raises(IntegrityError, match=r"weights\.bin is missing .*; copy the whole folder, or export again"):
        Embedder.load(moved)


def test_a_wrong_graph_never_becomes_a_bundle(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*args: object) -> ir.Model:
        model = render(*args)  # type: ignore[arg-type]
        bias = model.graph.initializers["bert.layers.1.ffn_down.bias"]
        assert bias.const_value is not None
        bias.const_value = ir.tensor(bias.const_value.numpy() + np.eye(32, dtype=np.float32)[5] * 0.01, name=bias.name)
        return model

    monkeypatch.setattr(export_module, "render", wrong)
    with pytest.raises(ParityError, match=r"the cpu graph differs from the PyTorch reference by .* at batch"):
        export_checkpoint(checkpoint, tmp_path / "bundle")
    assert not list(tmp_path.iterdir())


def test_a_frozen_dimension_is_found(tmp_path: Path) -> None:
    class Frozen(SentenceEncoder):
        def forward(
            self,
            input_ids: torch.Tensor,
            attention_mask: torch.Tensor,
            token_type_ids: torch.Tensor | None = None,
            pooling_mask: torch.Tensor | None = None,
        ) -> torch.Tensor:
            frozen = torch.zeros(input_ids.shape[0], 1) * int(input_ids.shape[1] == 7)
            return super().forward(input_ids, attention_mask, token_type_ids, pooling_mask) + frozen

    bert = open_checkpoint(write_checkpoint(tmp_path / "s")).load_model()
    assert isinstance(bert, Bert)
    with pytest.raises(ExportError, match="could not export Frozen|came out with shape"):
        render(Frozen(bert, "mean", True), encoder_signature("embed", 32, 3), "cpu")


def test_a_bundle_is_opened_and_hashed_once(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()

    def count(module: Any, name: str) -> None:
        function = getattr(module, name)

        def counted(*args: Any, **options: Any) -> Any:
            counts[name] += 1
            return function(*args, **options)

        monkeypatch.setattr(module, name, counted)

    for module, name in (
        *((reader, name) for name in ("opening", "check_graph", "sha256")),
        (bundle_files, "sha256"),
        (opened_bundle, "open_graphs"),
    ):
        count(module, name)
    bundle = export_checkpoint(checkpoint, tmp_path / "once")
    assert counts == {"opening": 1, "check_graph": 1, "open_graphs": 1, "sha256": len(bundle.manifest.files)}
    assert bundle == Bundle.open(tmp_path / "once")
