"""The report as a page: whole, valid, escaped, and in need of nothing else."""

from __future__ import annotations

import dataclasses
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from edgebert_exporters.reports.html_report import check_page, page, write_page
from edgebert_exporters.reports.svg_charts import bars, histogram, stacked
from edgebert_runtime import Bundle
from edgebert_runtime.errors import ExportError

VOID = {"meta"}
ODD = "<script>alert('1')</script> & \"quoted\" \u2028 é"
REPORT: dict[str, Any] = {
    "bytes": {"before": 90_000_000, "after": 23_000_000},
    "kinds": {"layers": {"before": 40, "after": 10}, "embeddings": {"before": 50, "after": 13}},
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


class Reader(HTMLParser):
    """Reads a page, and holds it to closing what it opens."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.append((self.open[-1], data))

    def within(self, tag: str) -> list[str]:
        return [text for where, text in self.texts if where == tag]


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def reported(bundle: Path, skipped: dict[str, str] | None = None, **changed: Any) -> Bundle:
    """Return a bundle with another report."""
    opened = Bundle.open(bundle)
    weights = dataclasses.replace(opened.manifest.weights, skipped=skipped or {})
    return dataclasses.replace(
        opened, manifest=dataclasses.replace(opened.manifest, report=REPORT | changed, weights=weights)
    )


def test_a_page_says_what_the_report_says(int8_bundle: Path) -> None:
    parsed = read(page(reported(int8_bundle, {"head.out.weight": "only 3 wide"}), [("agreement", "0.9987")]))
    assert parsed.within("h1") == ["int8 for embed, bert"]
    assert "90.0 MB of weights became 23.0 MB; 1.65 times the speed of float32" in parsed.within("p")[0]
    assert parsed.within("h2") == ["Verdict", "Figures", "Drawings", "Skipped (float32)"]
    cells = dict(zip(parsed.within("th"), parsed.within("td"), strict=True))
    assert cells["mean cosine"] == "0.9987, at least 0.99 was asked for: passed"
    assert cells["time, in that of float32"].endswith("; no limit was set")
    assert cells["speed"].startswith("slower than float32 at 8 x 32; try the granularity block")
    assert (cells["agreement"], cells["head.out.weight"]) == ("0.9987", "only 3 wide")
    assert len(parsed.within("figcaption")) == sum(tag == "svg" for tag, _ in parsed.tags) == 3
    drawn = parsed.within("text")
    assert {"1 x 16", "3.00 ms", "1.25 ms", "float32", "quantized", "0.99", "2"} <= set(drawn)


def test_limits_are_judged(int8_bundle: Path) -> None:
    slow = read(page(reported(int8_bundle, max_slowdown=0.5), []))
    assert "0.7639, at most 0.5 was asked for: failed" in slow.within("td")
    fast = read(page(reported(int8_bundle, max_slowdown=1.5, min_fidelity=0.9999), []))
    assert "0.7639, at most 1.5 was asked for: passed" in fast.within("td")
    assert "0.9987, at least 0.9999 was asked for: failed" in fast.within("td")


def test_sensitivity_is_drawn_the_worst_first(int8_bundle: Path) -> None:
    rows = [{"weight": f"layers.{i}.weight", "bytes": 9, "int8": i * 1e-4, "int4": i * 1e-2} for i in range(60)]
    parsed = read(page(reported(int8_bundle, sensitivity=rows), []))
    assert "Fidelity loss of quantizing each weight alone" in parsed.within("figcaption")
    drawn = [text for text in parsed.within("text") if text.startswith("layers.")]
    assert drawn == [f"layers.{i}.weight" for i in range(59, 19, -1)]


def test_names_are_text_and_nothing_else(int8_bundle: Path) -> None:
    speed = [{"shape": ODD, "before_ms": 1.0, "after_ms": 1.0, "speedup": 1.0}]
    kinds = {ODD: {"before": 1, "after": 1}}
    sensitivity = [{"weight": ODD, "bytes": 1, "int8": 1.0}]
    exported = reported(int8_bundle, {ODD: ODD}, speed=speed, kinds=kinds, sensitivity=sensitivity)
    plain = {
        tag for tag, _ in read(page(reported(int8_bundle, {"a": "b"}, sensitivity=sensitivity[:0]), [("a", "b")])).tags
    }
    parsed = read(page(exported, [(ODD, ODD)]))
    assert {tag for tag, _ in parsed.tags} <= plain
    assert {ODD} <= set(parsed.within("th")) & set(parsed.within("td"))
    hints = [hint for hint in parsed.within("title") if ODD in hint]
    assert len(hints) >= 4
    assert all(set(attrs) <= ALLOWED for _, attrs in parsed.tags)


ALLOWED = {
    *("charset", "name", "content", "lang", "class", "viewbox", "role", "aria-label"),
    *("x", "y", "width", "height", "text-anchor"),
}


def test_a_page_refers_to_nothing(int8_bundle: Path) -> None:
    text = page(Bundle.open(int8_bundle), [("a", "b")])
    parsed = read(text)
    assert not {tag for tag, _ in parsed.tags} & {"script", "link", "img", "iframe", "object", "use", "image", "a"}
    assert not {name for _, attrs in parsed.tags for name in attrs} & {"src", "href", "xlink:href", "style", "onload"}
    assert not re.search(r"https?:|url\(|@import|//\w", text)
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_every_colour_is_defined(int8_bundle: Path) -> None:
    kinds = {name: {"before": 4, "after": 3} for name in ("layers", "head", "embeddings", "other")}
    text = page(reported(int8_bundle, kinds=kinds), [])
    used = {attrs["class"] for tag, attrs in read(text).tags if tag in ("rect", "i")}
    assert used == {"s0", "s1", "s2", "s3"}
    for name in used:
        assert f".{name} {{ fill: var(--{name})" in text
        assert text.count(f"--{name}: #") == 2, "in light and in dark"


def test_bars_are_as_long_as_their_numbers() -> None:
    def widths(drawing: str) -> list[float]:
        return [float(attrs["width"] or 0) for tag, attrs in read(drawing).tags if tag == "rect"]

    first, second, none = widths(bars("t", [("a", {"x": 2.0, "y": 8.0}), ("b", {"x": 0.0})], str))
    assert first == pytest.approx(second / 4)
    assert none == 0
    parts = widths(stacked("t", [("a", {"x": 3.0, "y": 1.0}), ("b", {"x": 1.0, "y": 1.0})], str))
    assert parts[0] == pytest.approx(3 * parts[1])
    assert parts[2] == parts[3] == pytest.approx(parts[1])
    heights = [float(attrs["height"] or 0) for tag, attrs in read(histogram("t", 0, 1, [1, 4])).tags if tag == "rect"]
    assert heights[1] == pytest.approx(4 * heights[0])
    assert widths(bars("t", [("a", {"x": 0.0})], str)) == [0], "nothing to compare with"


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
