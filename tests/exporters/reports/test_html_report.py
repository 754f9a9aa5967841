"""The report as a page: whole, valid, escaped, and in need of nothing else."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

import pytest

from edgebert_exporters.inference.sample_texts import sample_texts
from edgebert_exporters.reports.conditions import BUILT_IN_TEXTS
from edgebert_exporters.reports.html_page import check_page
from edgebert_exporters.reports.html_report import page, write_page
from edgebert_runtime import Bundle
from edgebert_runtime.errors import ExportError
from tests.exporters.reports.html_reader import read

ODD = "<script>alert('1')</script> & \"quoted\" \u2028 \u202e é"
REPORT: dict[str, Any] = {
    "bytes": {"before": 90_000_000, "after": 23_000_000},
    "kinds": {"layers": {"before": 4e7, "after": 1e7}, "embeddings": {"before": 5e7, "after": 1.3e7}},
    "fidelity": {
        "texts": 3,
        "cosine_mean": 0.9987,
        "cosine_min": 0.99,
        "cosines": {"low": 0.99, "high": 1.0, "counts": [1, 0, 2]},
    },
    "batch_invariance": {"rows": 16, "max_difference": 0.0, "identical": 16},
    "speed": [
        {"shape": "1 x 16", "before_ms": 3.0, "after_ms": 1.25, "speedup": 2.4},
        {"shape": "8 x 32", "before_ms": 9.0, "after_ms": 10.0, "speedup": 0.9},
    ],
    "granularity": "channel",
    "min_fidelity": 0.99,
}


def reported(bundle: Path, skipped: dict[str, str] | None = None, **changed: Any) -> Bundle:
    """Return a bundle with another report."""
    opened = Bundle.open(bundle)
    weights = dataclasses.replace(opened.manifest.weights, skipped=skipped or {})
    return dataclasses.replace(
        opened, manifest=dataclasses.replace(opened.manifest, report=REPORT | changed, weights=weights)
    )


def test_a_page_says_which_model_it_is_and_how_it_was_measured(int8_bundle: Path) -> None:
    conditions = {
        **{"date": "2026-12-01 05:27 UTC", "edgebert": "0.2.0", "onnxruntime": "1.32.0", "python": "3.11.7"},
        **{"system": "Linux x86_64", "cpu": "Some CPU", "cpu_features": ["AVX2"], "threads": 2},
        **{"source": "tiny.bundle", "options": {"scheme": "int8", "exclude": ["*.0.*", "b c"], "asymmetric": True}},
        **{"texts": {"origin": "texts.txt", "calibration": 5, "test": 4}},
    }
    bundle = reported(int8_bundle, {"head.out.weight": "only 3 wide"}, conditions=conditions)
    parsed = read(page(bundle, [("agreement", "0.9987")]))
    assert parsed.within("h1") == [int8_bundle.name]
    assert parsed.within("p")[0] == "int8 for embed, bert: quantized against float32"
    titles = ["Notes", "Conditions", "Size and fidelity", "Speed", "Figures", "Skipped (float32)"]
    assert parsed.within("h2") == titles, "drawings stand before the table"
    cells = dict(zip(parsed.within("th"), parsed.within("td"), strict=False))
    assert cells["made from"] == "tiny.bundle"
    assert cells["options"] == "--scheme int8 --exclude '*.0.*' --exclude 'b c' --asymmetric"
    assert cells["texts"] == "5 to calibrate, 4 others to measure fidelity; texts.txt"
    assert cells["measured"] == "2026-12-01 05:27 UTC, with 2 threads"
    assert cells["versions"] == "edgebert 0.2.0, ONNX Runtime 1.32.0, Python 3.11.7"
    assert cells["machine"] == "Some CPU (AVX2), Linux x86_64"
    assert {"agreement", "head.out.weight"} <= set(parsed.within("th"))
    assert {"0.9987", "only 3 wide"} <= set(parsed.within("td"))
    assert parsed.within("dd")[:2] == ["23.0 MB", "26% of 90.0 MB"]
    assert parsed.within("li")[0].startswith("slower than float32 at 8 x 32; try the granularity block")
    assert parsed.within("b") == ["Weights, by kind", "Fidelity of the texts", "1 x 16 tokens", "8 x 32 tokens"]


def test_a_real_report_has_conditions(int8_bundle: Path) -> None:
    bundle = Bundle.open(int8_bundle)
    conditions = bundle.manifest.report["conditions"]
    assert conditions["options"]["scheme"] == "int8"
    samples = len(sample_texts())
    assert conditions["texts"] == {"origin": BUILT_IN_TEXTS, "calibration": -(-samples // 2), "test": samples // 2}
    assert bundle.manifest.report["fidelity"]["texts"] == samples // 2
    text = page(bundle, [])
    assert text == page(bundle, []), "nothing of a page changes from run to run"
    assert {"measured", "machine", "made from"} <= set(read(text).within("th"))


def test_limits_are_judged(int8_bundle: Path) -> None:
    slow = read(page(reported(int8_bundle, max_slowdown=0.5), [])).within("dd")
    assert "that of float32, in 0.76 of its time, at most 0.5 was asked for: failed" in slow
    fast = read(page(reported(int8_bundle, max_slowdown=1.5, min_fidelity=0.9999), [])).within("dd")
    assert "that of float32, in 0.76 of its time, at most 1.5 was asked for: passed" in fast
    assert "mean cosine to float32, at least 0.9999 was asked for: failed" in fast
    fidelity = REPORT["fidelity"] | {"cosine_mean": 0.999999}
    assert "0.999999" in read(page(reported(int8_bundle, fidelity=fidelity), [])).within("dd")


def test_notes_of_a_bundle_are_shown(int8_bundle: Path) -> None:
    bundle = reported(int8_bundle, speed=[{"shape": "1 x 16", "before_ms": 3.0, "after_ms": 1.0, "speedup": 3.0}])
    assert "Notes" not in read(page(bundle, [])).within("h2")
    noted = dataclasses.replace(bundle, manifest=dataclasses.replace(bundle.manifest, notes=("the key x is unused",)))
    assert read(page(noted, [])).within("li") == ["the key x is unused"]


def test_sensitivity_is_drawn_the_worst_first(int8_bundle: Path) -> None:
    rows = [{"weight": f"layers.{i}.weight", "bytes": 9, "int8": i * 1e-4, "int4": i * 1e-2} for i in range(60)]
    parsed = read(page(reported(int8_bundle, sensitivity=rows), []))
    assert {"Sensitivity to int8", "Sensitivity to int4"} <= set(parsed.within("b"))
    drawn = [text for text in parsed.within("th") if text.startswith("layers.")]
    assert drawn == [f"layers.{i}.weight" for i in range(59, 39, -1)] * 2


def test_metrics_are_drawn_with_their_intervals(int8_bundle: Path) -> None:
    figure = {"before": 0.9, "after": 0.8, "difference": -0.1}
    figure |= {f"{side}_interval": [value - 0.05, value + 0.05] for side, value in figure.items()}  # type: ignore[misc]
    evaluation = {"examples": 9, "file": "a", "figures": {"macro_f1": figure}}
    parsed = read(page(reported(int8_bundle, evaluation=evaluation), []))
    assert "macro f1" in parsed.within("b")
    assert {"0.85 to 0.95", "0.75 to 0.85"} <= set(parsed.within("small"))


def test_names_are_text_and_nothing_else(int8_bundle: Path, tmp_path: Path) -> None:
    speed = [{"shape": ODD, "before_ms": 1.0, "after_ms": 1.0, "speedup": 1.0}]
    kinds = {ODD: {"before": 1e7, "after": 1}, "b": {"before": 1, "after": 1}}
    sensitivity = [{"weight": ODD, "bytes": 1, "int8": 1.0}]
    conditions = {"source": ODD, "options": {"exclude": [ODD]}, "texts": {"origin": ODD, "calibration": 1, "test": 1}}
    exported = reported(
        int8_bundle, {ODD: ODD}, speed=speed, kinds=kinds, sensitivity=sensitivity, conditions=conditions
    )
    exported = dataclasses.replace(exported, path=tmp_path / "<b onclick=alert(1)>")
    plain = {tag for tag, _ in read(page(reported(int8_bundle, {"a": "b"}, sensitivity=sensitivity[:0]), [])).tags}
    parsed = read(page(exported, [(ODD, ODD)]))
    assert {tag for tag, _ in parsed.tags} <= plain
    shown = ODD.replace("\u2028", r"\u2028").replace("\u202e", r"\u202e")
    assert {shown} <= set(parsed.within("th")) & set(parsed.within("td"))
    assert parsed.within("h1") == ["<b onclick=alert(1)>"]
    assert all(set(attrs) <= ALLOWED for _, attrs in parsed.tags)


ALLOWED = {
    *("charset", "name", "content", "lang", "class", "role", "http-equiv", "scope", "tabindex", "id"),
    *("x", "y", "width", "height", "text-anchor", "x1", "x2", "y1", "y2"),
    *("aria-label", "aria-labelledby", "aria-hidden"),
}


def test_a_page_refers_to_nothing(int8_bundle: Path) -> None:
    text = page(Bundle.open(int8_bundle), [("a", "b")])
    parsed = read(text)
    assert not {tag for tag, _ in parsed.tags} & {"script", "link", "img", "iframe", "object", "use", "image", "a"}
    assert not {name for _, attrs in parsed.tags for name in attrs} & {"src", "href", "xlink:href", "style", "onload"}
    assert not re.search(r"https?:|url\(|@import|//\w", text)
    policies = [attrs["content"] for tag, attrs in parsed.tags if "http-equiv" in attrs]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_a_page_is_written_whole_or_not_at_all(
    int8_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = reported(int8_bundle, {"\ud800": "a lone surrogate"})
    file = tmp_path / "report.html"
    file.write_text("old")
    write_page(file, exported, [("a", "b")])
    assert read(file.read_text(encoding="utf-8")).within("h1")
    assert list(tmp_path.iterdir()) == [file]
    file.write_text("old")

    def full(_source: object, _target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ExportError, match=f"^cannot write {file}: No space left on device; free some space"):
        write_page(file, exported, [])
    assert [entry.read_text() for entry in tmp_path.iterdir()] == ["old"]


def test_a_page_needs_a_folder(int8_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="cannot write .*: the folder .*none does not exist; create it first"):
        check_page(tmp_path / "none" / "a.html")
    with pytest.raises(ExportError, match="it is a folder; choose another name"):
        write_page(tmp_path, Bundle.open(int8_bundle), [])
