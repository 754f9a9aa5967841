"""Bundles give the results of transformers and sentence-transformers, and a wrong one is refused."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

from edgebert_exporters import export_checkpoint, verify_bundle
from edgebert_exporters.verification.library_results import COMPARISONS, compare_with_library
from edgebert_runtime import Bundle
from edgebert_runtime.errors import ExportError, ParityError
from edgebert_runtime.task_specs import TASKS
from tests.checkpoints.tokenizers.marian_folders import SPACE, size, write_folder
from tests.runtime.generation.tiny_models import SEQ2SEQ, randomise

NUMBERS = {"embed", "classify", "next-sentence", "rerank", "multiple-choice", "tag", "answer", "fill-mask"}


def silent(*_: object) -> None:
    """Report nothing."""


@pytest.mark.parametrize("task", sorted(COMPARISONS.keys() - {"rerank", "translate"}))
def test_each_task_gives_what_transformers_gives(
    task: str, task_bundle: Callable[[str], Path], task_checkpoint: Callable[[str], Path]
) -> None:
    check(compare_with_library(task_bundle(task), task_checkpoint(task), "transformers", silent), task)


def check(figures: dict[str, Any], task: str) -> None:
    """Expect the same results."""
    assert figures["texts"] >= 1
    assert figures["library"].startswith("transformers 5.")
    if task in NUMBERS:
        assert figures["max_error"] <= figures["tolerance"] == 1e-4
    else:
        assert figures["identical"] == figures["texts"]


def test_a_reranker_gives_what_transformers_gives(task_checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(task_checkpoint("rerank"), tmp_path / "reranker"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "id2label": {"0": "LABEL_0"}}), encoding="utf-8")
    exported = export_checkpoint(folder, tmp_path / "bundle", task="rerank", reference="transformers")
    check(exported.manifest.verification["library"], "rerank")


def test_a_translator_gives_what_transformers_gives(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    rows = size(folder) - SPACE
    options = {**SEQ2SEQ, "max_position_embeddings": 200, "eos_token_id": 0, "forced_eos_token_id": 0}
    config = transformers.MarianConfig(
        vocab_size=rows, pad_token_id=rows - 1, decoder_start_token_id=rows - 1, **options
    )
    randomise(transformers.MarianMTModel(config), 3).save_pretrained(folder)
    (folder / "generation_config.json").unlink()  # transformers reads those of config.json then
    exported = export_checkpoint(folder, tmp_path / "bundle", reference="transformers")
    check(exported.manifest.verification["library"], "translate")


def test_every_task_has_a_comparison() -> None:
    assert COMPARISONS.keys() == TASKS.keys()


def test_sentence_transformers_with_a_bundle_of_its_own_folder(checkpoint: Path, tmp_path: Path) -> None:
    exported = export_checkpoint(checkpoint, tmp_path / "bundle", reference="sentence-transformers")
    figures = exported.manifest.verification["library"]
    assert figures["library"].startswith("sentence-transformers 6.")
    assert figures["max_error"] <= 1e-4
    assert verify_bundle(tmp_path / "bundle", checkpoint, reference="sentence-transformers")["library"] == figures


def test_a_tokenizer_of_another_model_is_refused(
    task_bundle: Callable[[str], Path], task_checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(task_checkpoint("classify"), tmp_path / "other"))
    lines = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if not line.startswith("["))
    (folder / "vocab.txt").write_text("\n".join([*lines[:first], *lines[: first - 1 : -1]]), encoding="utf-8")
    with pytest.raises(ParityError, match="the bundle differs from transformers 5"):
        compare_with_library(task_bundle("classify"), folder, "transformers", silent)


def test_another_pooling_is_refused_and_leaves_nothing(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="are tokenizer and settings those of the model"):
        export_checkpoint(checkpoint, tmp_path / "bundle", pooling="max", reference="sentence-transformers")
    assert list(tmp_path.iterdir()) == []


def test_a_quantized_bundle_is_held_to_its_report(int8_bundle: Path, checkpoint: Path) -> None:
    figures = verify_bundle(int8_bundle, checkpoint, reference="sentence-transformers")["library"]
    assert 1 > figures["cosine"] >= Bundle.open(int8_bundle).manifest.report["min_fidelity"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reference": "torch"}, "reference='torch' is not one of transformers, sentence-transformers"),
        ({"reference": "sentence-transformers", "task": "tag"}, "has nothing for the task tag"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_work(
    options: dict[str, Any], message: str, checkpoint: Path, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=message):
        export_checkpoint(checkpoint, tmp_path / "bundle", **options)


def test_a_missing_library_is_named(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "transformers" else find(name))
    with pytest.raises(ExportError, match="needs the package transformers, which is not installed; run: pip install"):
        export_checkpoint(checkpoint, tmp_path / "bundle", reference="transformers")


def test_verify_needs_the_checkpoint(fp32_bundle: Path) -> None:
    with pytest.raises(ExportError, match="reference='transformers' needs a checkpoint"):
        verify_bundle(fp32_bundle, reference="transformers")
