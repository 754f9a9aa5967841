"""The command line shows differences from the reference: one line each on standard error, and in every summary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgebert_exporters import export_checkpoint
from edgebert_runtime.errors import ReferenceWarning
from tests.support.sharing import Once
from tests.support.tiny import write_checkpoint

NOTE = "config.json: id2label has 2 entries, the head has 3 outputs: transformers fails or lacks names"


@pytest.fixture(scope="module")
def source(once: Once) -> Path:
    """Return a classifier with three outputs and two names."""
    settings = {"id2label": {"0": "negative", "1": "positive"}}
    return once("few labels", lambda folder: write_checkpoint(folder, task="classify", settings=settings))


@pytest.fixture(scope="module")
def noted_bundle(source: Path, once: Once) -> Path:
    """Return its bundle."""

    def make(folder: Path) -> None:
        with pytest.warns(ReferenceWarning):
            export_checkpoint(source, folder)

    return once("few labels bundle", make)


def test_export_warns_once_and_succeeds(run: Any, source: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):  # in one process too
        result = run("export", source, tmp_path / name)
        assert result.exit_code == 0
        assert result.stderr.startswith(f"edgebert: warning: {NOTE}")
        assert result.stderr.count("\n") == 1


def test_strict_is_an_error(run: Any, source: Path, tmp_path: Path) -> None:
    result = run("export", source, tmp_path / "b", "--strict")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"would give another result than its reference: {NOTE}" in result.stderr
    assert "leave out --strict" in result.stderr
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_summaries_have_them(run: Any, noted_bundle: Path) -> None:
    shown = run("info", noted_bundle)
    assert f"differences from the reference\n  note  {NOTE}" in shown.stdout
    assert f"note      {NOTE}" in run("verify", noted_bundle).stdout
    for command in ("info", "verify"):
        result = run(command, noted_bundle, "--json")
        assert result.stderr == ""
        (note,) = json.loads(result.stdout)["notes"]
        assert note.startswith(NOTE)


def test_using_a_bundle_is_quiet(run: Any, noted_bundle: Path) -> None:
    assert run("classify", noted_bundle, "a b").stderr == ""


def test_quantize_warns(run: Any, noted_bundle: Path, tmp_path: Path) -> None:
    result = run("quantize", noted_bundle, tmp_path / "int8", "--min-fidelity", "0", "--json")
    assert result.stderr.startswith(f"edgebert: warning: {NOTE}")
    assert json.loads(result.stdout)["notes"][0].startswith(NOTE)
