"""Differences from the reference: warnings of export and quantize, lines of the manifest, an error if strict."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import edgebert
from edgebert_exporters import export_checkpoint, quantize_bundle, verify_bundle
from edgebert_runtime import Bundle
from edgebert_runtime.errors import ExportError, ReferenceWarning
from tests.support.sharing import Once
from tests.support.tiny import write_checkpoint

ID2LABEL = {"0": "negative", "1": "positive"}
NOTE = (
    "config.json: id2label has 2 entries, the head has 3 outputs: transformers fails or lacks names, this bundle has "
    "LABEL_0, LABEL_1, ... (3 in all)"
)


@pytest.fixture(scope="module")
def source(once: Once) -> Path:
    """Return a classifier with three outputs and two names."""
    settings = {"id2label": ID2LABEL}
    return once("few labels", lambda folder: write_checkpoint(folder, task="classify", settings=settings))


@pytest.fixture(scope="module")
def noted_bundle(source: Path, once: Once) -> Path:
    """Return its bundle."""

    def make(folder: Path) -> None:
        with pytest.warns(ReferenceWarning) as caught:
            export_checkpoint(source, folder)
        assert [str(warning.message) for warning in caught] == [NOTE]
        assert caught[0].filename == __file__

    return once("few labels bundle", make)


def test_manifest_has_the_notes(noted_bundle: Path) -> None:
    assert Bundle.open(noted_bundle).manifest.notes == (NOTE,)
    assert verify_bundle(noted_bundle)["notes"] == [NOTE]


def test_loading_is_quiet(noted_bundle: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        edgebert.load(noted_bundle)


def test_quantized_bundles_keep_and_repeat_them(noted_bundle: Path, tmp_path: Path) -> None:
    with pytest.warns(ReferenceWarning, match="id2label has 2 entries"):
        quantized = quantize_bundle(noted_bundle, tmp_path / "int8", min_fidelity=0)
    assert quantized.manifest.notes == Bundle.open(tmp_path / "int8").manifest.notes == (NOTE,)


def test_strict_refuses_and_writes_nothing(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError) as caught:
        export_checkpoint(source, tmp_path / "b", strict=True)
    assert str(caught.value) == (
        f"{source} would give another result than its reference: {NOTE}; change the files, or leave out strict=True"
    )
    assert list(tmp_path.iterdir()) == []


def test_strict_lists_every_difference(tmp_path: Path) -> None:
    generation = {"guidance_scale": 2.0, "sequence_bias": [[[5], -10.0]]}
    write_checkpoint(tmp_path / "c", task="generate", model_type="gpt2", generation=generation)
    with pytest.raises(ExportError, match=r"reference: \(1\) .*guidance.*; \(2\) .*sequence_bias.*; change the files"):
        export_checkpoint(tmp_path / "c", tmp_path / "b", strict=True)


def test_strict_passes_where_nothing_differs(checkpoint: Path, tmp_path: Path) -> None:
    assert export_checkpoint(checkpoint, tmp_path / "b", strict=True).manifest.notes == ()
