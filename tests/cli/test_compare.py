"""The command that compares bundles: its options, its output, and wrong usage."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.comparison import comparison


@pytest.fixture
def called_with(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what the library will be called with; nothing is measured."""
    called: dict[str, Any] = {}

    def compare_bundles(*args: Any, **options: Any) -> dict[str, Any]:
        called.update(options, args=args)
        return comparison()

    monkeypatch.setattr(importlib.import_module("edgebert_exporters.compare"), "compare_bundles", compare_bundles)
    return called


def test_a_comparison_is_printed_with_units_and_conditions(run: Any, called_with: dict[str, Any]) -> None:
    result = run("compare", "a", "b")
    assert (result.exit_code, result.stderr) == (0, "")
    assert called_with["args"] == ((Path("a"), Path("b")),)
    for line in (
        "a.int8    embed (bert, target cpu), int8, 25.0 MB, 3 of 4 matrix products",
        "Size on disk. All files of the folder; less is better.",
        "  a.int8    26.0 MB, 0.26 x",
        "  a.int8    4.00 ms, 2.50 x as fast; 2.00 to 8.00 ms",
        "  a.int8  0.99997, 0.9950 at least",
        "  neighbors  25.0% of 76 texts have a new nearest neighbor",
        "  measured  2026-12-01 05:45 UTC, with 1 thread",
        "  note  no speed of <b>: its task is generate, not embed",
        "  note  a.int8: the key x is unused",
    ):
        assert line in result.stdout.splitlines()
    assert "drawn pale" not in result.stdout


def test_options_are_handed_on(run: Any, called_with: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a b\n\nc\n")
    options = ["--texts", tmp_path / "texts.txt", "--seconds", "2", "--threads", "3", "--device", "cpu"]
    assert run("compare", "a", "b", "c", *options).exit_code == 0
    expected = {"texts": ["a b", "c"], "texts_name": "texts.txt", "seconds": 2, "threads": 3, "device": "cpu"}
    assert {name: called_with[name] for name in expected} == expected


def test_a_comparison_as_json_and_as_a_page(run: Any, called_with: dict[str, Any], tmp_path: Path) -> None:
    result = run("compare", "a", "b", "--json", "--html", tmp_path / "c.html")
    assert called_with
    assert json.loads(result.stdout) == comparison()
    assert "3 bundles compared" in (tmp_path / "c.html").read_text(encoding="utf-8")


def test_wrong_usage(run: Any, called_with: dict[str, Any], tmp_path: Path) -> None:
    for args, message in (
        (["a"], "Give two bundles or more; 'edgebert bench' measures one."),
        ([], "Missing argument 'BUNDLE...'"),
        (["a", "b", "--seconds", "0"], "0.0 is not in the range"),
    ):
        result = run("compare", *args)
        assert (result.exit_code, result.stdout) == (2, "")
        assert message in result.stderr
    result = run("compare", "a", "b", "--html", tmp_path / "none" / "c.html")
    assert result.exit_code == 1
    assert "does not exist; create it first" in result.stderr
    assert called_with == {}, "nothing is measured for a page that cannot be written"


def test_a_folder_that_is_no_bundle(run: Any, fp32_bundle: Path, tmp_path: Path) -> None:
    result = run("compare", fp32_bundle, tmp_path / "none")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{tmp_path / 'none'} does not exist; give the folder" in result.stderr
