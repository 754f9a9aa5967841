"""Bundles with prompts out of the pooling, with new poolings and cut vectors: exported, verified, quantized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertConfig, BertModel

from edgebert_exporters import export_checkpoint, quantize_bundle, verify_bundle
from edgebert_runtime import Embedder
from edgebert_runtime.errors import CheckpointError, ExportError
from tests.support.sentence_models import assert_equal, put, sentence_transformer
from tests.support.sharing import Once
from tests.support.tiny import write_checkpoint

PROMPTS = {"prompts": {"query": "the dog", "document": "a mat "}, "default_prompt_name": "query", "truncate_dim": 8}
TEXTS = ["the cat sat", "", "the dog ran in rain " * 9, "ship mail farm", "a mat , sun"]
TEXT = st.lists(st.sampled_from("the cat sat on a mat dog rain é zzz . ,".split()), max_size=14).map(" ".join)


def write_instructor(folder: Path, pooling: str) -> Path:
    """Write a checkpoint whose prompts are left out of the pooling."""
    write_checkpoint(folder)
    pooled = {"embedding_dimension": 32, "pooling_mode": pooling, "include_prompt": False}
    put(folder, "1_Pooling/config.json", pooled)
    put(folder, "config_sentence_transformers.json", PROMPTS)
    put(folder, "sentence_bert_config.json", {"max_seq_length": 24})
    return folder


@pytest.fixture(scope="module")
def instructor(once: Once) -> tuple[Path, Path]:
    """Return such a checkpoint and its bundle."""
    source = once("instructor", lambda folder: write_instructor(folder, "weightedmean"))
    return source, once("instructor-bundle", lambda folder: export_checkpoint(source, folder))


@pytest.mark.parametrize("target", ["cpu", "portable"])
def test_vectors_without_the_prompt(instructor: tuple[Path, Path], target: str, tmp_path: Path) -> None:
    source, bundle = instructor
    if target == "portable":
        source = write_instructor(tmp_path / "source", "max")
        bundle = export_checkpoint(source, tmp_path / "bundle", target=target).path
    ours, theirs = Embedder.load(bundle), sentence_transformer(source)
    assert ours.bundle.manifest.settings["include_prompt"] is False
    assert_equal(ours.embed(TEXTS), theirs.encode(TEXTS))
    assert_equal(ours.embed_documents(TEXTS, dim=32), theirs.encode_document(TEXTS, truncate_dim=32))
    alone = [ours.embed([text], prompt="document")[0] for text in TEXTS]
    assert_equal(ours.embed(TEXTS, prompt="document"), alone)


def test_such_a_bundle_is_verified_and_quantized(instructor: tuple[Path, Path], tmp_path: Path) -> None:
    source, bundle = instructor
    assert verify_bundle(bundle, checkpoint=source)["reference"]["max_error"] < 1e-4
    quantized = quantize_bundle(bundle, tmp_path / "int8", min_fidelity=0.9)
    assert verify_bundle(quantized.path, checkpoint=source)["reference"]["cosine"] > 0.9
    vectors = Embedder(quantized).embed(TEXTS)
    expected = Embedder.load(bundle).embed(TEXTS)
    cosines = (vectors * expected).sum(1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() > 0.9


@settings(max_examples=30, deadline=None)
@given(texts=st.lists(TEXT, min_size=1, max_size=8), prompt=TEXT, dim=st.integers(1, 32), normalize=st.booleans())
def test_a_prompt_is_a_text_typed_before(
    fp32_bundle: Path, texts: list[str], prompt: str, dim: int, normalize: bool
) -> None:
    engine = Embedder.load(fp32_bundle)
    options: dict[str, Any] = {"dim": dim, "normalize": normalize or None}
    together = engine.embed(texts, prompt_text=prompt, **options)
    np.testing.assert_allclose(together, engine.embed([prompt + text for text in texts], **options), atol=1e-6)
    alone = [engine.embed([text], prompt_text=prompt, **options)[0] for text in texts]
    np.testing.assert_allclose(together, alone, atol=1e-5)
    whole = engine.embed(texts, prompt_text=prompt)[:, :dim]
    lengths = np.linalg.norm(whole, axis=1, keepdims=True) if normalize else 1
    np.testing.assert_allclose(together, whole / lengths, atol=1e-5)


def test_pooler(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", pooling=None)
    model = BertModel(BertConfig.from_pretrained(source)).eval()
    model.save_pretrained(source)
    engine = Embedder(export_checkpoint(source, tmp_path / "bundle", pooling="pooler", dim=20))
    assert (engine.dim, engine.max_dim) == (20, 32)
    for row in ([2, 5, 6, 7, 3], [2, 3]):
        with torch.no_grad():
            expected = model(torch.tensor([row])).pooler_output
        assert_equal(engine.embed([row], dim=32), expected)
    assert "max_error" in verify_bundle(engine.bundle.path, checkpoint=source)["reference"]


def test_a_model_without_a_pooler(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="the weights lack pooler.dense, the pooler; choose another pooling"):
        export_checkpoint(checkpoint, tmp_path / "bundle", pooling="pooler")
    source = write_checkpoint(tmp_path / "source", model_type="distilbert")
    with pytest.raises(CheckpointError, match="distilbert has no pooler; choose another pooling"):
        export_checkpoint(source, tmp_path / "bundle", pooling="pooler")


@pytest.mark.parametrize("dim", [0, 33])
def test_a_size_that_the_model_does_not_have(checkpoint: Path, tmp_path: Path, dim: int) -> None:
    with pytest.raises(ExportError, match=f"dim={dim} is not between 1 and 32"):
        export_checkpoint(checkpoint, tmp_path / "bundle", dim=dim)
    assert not list(tmp_path.iterdir())
