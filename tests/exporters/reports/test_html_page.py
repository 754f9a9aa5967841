"""The look of every page, computed from its style: contrast, sizes of letters, and room."""

from __future__ import annotations

import re

import pytest

from edgebert_exporters.reports.html_page import STYLE, charts, document, escape, facts, grid, heading, note_list
from edgebert_exporters.reports.svg_charts import Bar, bar_chart, histogram, nice_ticks
from tests.exporters.reports.html_reader import read

LEAST_PIXELS = 11
# WCAG 2, level AA: text, and shapes that carry meaning.
TEXT, SHAPE = 4.5, 3.0
BAR = Bar("a", 2.0, "2 ms")


def palettes() -> list[dict[str, str]]:
    """Return the colours in light, in dark and on paper."""
    blocks = re.findall(r":root \{([^}]*)\}", STYLE)
    return [dict(re.findall(r"--(\w+): (#\w{6})", block)) for block in blocks]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    bright, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_contrast_by_hand() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_text_and_shapes_have_enough_contrast_in_every_mode() -> None:
    modes = palettes()
    assert len(modes) == 3
    for colours in modes:
        for ground in ("paper", "panel"):
            for text in ("ink", "soft", "warn"):
                assert contrast(colours[text], colours[ground]) >= TEXT, (text, ground, colours)
        for shape in ("bar", "base", "ink"):
            assert contrast(colours[shape], colours["paper"]) >= SHAPE, (shape, colours)


def test_every_colour_is_one_of_the_palette() -> None:
    outside = re.sub(r":root \{[^}]*\}", "", STYLE)
    assert not re.search(r"#[0-9a-f]{3,8}\b|rgb|hsl", outside)
    assert set(re.findall(r"var\(--(\w+)\)", outside)) <= palettes()[0].keys()
    assert palettes()[0].keys() == palettes()[1].keys() == palettes()[2].keys()


def test_no_letters_are_small_and_no_drawing_scales_them() -> None:
    sizes = re.findall(r"font(?:-size)?: ([\d.]+)(rem|px|pt)", STYLE)
    assert len(sizes) > 8
    pixels = [float(number) * {"rem": 16, "px": 1, "pt": 96 / 72}[unit] for number, unit in sizes]
    assert min(pixels) >= LEAST_PIXELS
    drawn = bar_chart("a", "b", "ms", [BAR]) + histogram("a", "b", "c", [1, 2], (0, 1), "n")
    parsed = read(f"<div>{drawn}</div>")
    assert not any(
        name in attrs for _, attrs in parsed.tags for name in ("viewbox", "preserveaspectratio", "transform")
    )


def test_places_in_a_drawing_are_shares_of_its_width() -> None:
    drawn = bar_chart("a", "b", "ms", [BAR, Bar("c", 1.0, "1", "d", 0.5, 1.5, 0.25)])
    drawn += histogram("a", "b", "c", [3, 1, 0], (0, 1), "n")
    for tag, attrs in read(f"<div>{drawn}</div>").tags:
        for name in ("x", "x1", "x2", "width"):
            value = attrs.get(name)
            if value is not None:
                assert value == "0" or 0 <= float((value or "").removesuffix("%")) <= 100, (tag, attrs)
                assert value == "0" or value.endswith("%"), (tag, attrs)


def test_tables_and_drawings_fit_a_narrow_screen() -> None:
    assert "overflow-wrap: anywhere" in STYLE
    assert ".wide { overflow-x: auto; }" in STYLE
    assert re.search(r"@media \(max-width: 40rem\) \{ \.facts th, \.facts td \{ display: block", STYLE)
    assert "minmax(min(100%, 23rem), 1fr)" in STYLE, "columns of drawings shrink with the screen"
    assert read(grid(("a", "b"), [("c", "d")], "e")).tags[0][1] == {
        **{"class": "wide", "role": "region", "tabindex": "0", "aria-label": "e"}
    }
    assert "@media print" in STYLE


def widths(drawing: str, kind: str = "bar") -> list[float]:
    rects = [attrs for tag, attrs in read(drawing).tags if tag == "rect" and attrs["class"] == kind]
    return [float((attrs["width"] or "").removesuffix("%")) for attrs in rects]


def test_bars_are_as_long_as_their_numbers() -> None:
    bars = [Bar("a", 2.0, "2"), Bar("b", 8.0, "8"), Bar("c", 0.0, "0")]
    first, second, none = widths(bar_chart("t", "", "ms", bars))
    assert first == pytest.approx(second / 4)
    assert (second, none) == (100, 0)
    parts = bar_chart("t", "", "MB", [Bar("a", 10.0, "10", part=4.0)])
    assert (widths(parts), widths(parts, "bar part")) == ([60], [100])
    assert widths(bar_chart("t", "", "ms", [Bar("a", 0.0, "0")])) == [0], "nothing to compare with"
    assert widths(bar_chart("t", "", "ms", [Bar("a", 1.0, "1", low=0.5, high=2.0)])) == [50], "the range fits as well"
    drawn = histogram("t", "about", "axis", [1, 4], (0, 1), "n")
    heights = [float(attrs["height"] or 0) for tag, attrs in read(drawn).tags if tag == "rect"]
    assert heights[1] == pytest.approx(4 * heights[0])


def test_a_reader_needs_neither_colours_nor_eyes() -> None:
    parsed = read(bar_chart("Time", "less is better", "ms", [Bar("float32", 2.0, "2 ms", base=True), BAR]))
    assert parsed.within("th") == ["float32", "a"]
    assert [text for text in parsed.within("td") if "ms" in text] == ["2 ms", "2 ms", "ms"]
    assert all(attrs.get("aria-hidden") == "true" for tag, attrs in parsed.tags if tag == "svg")
    drawn = read(histogram("Cosines", "9 texts", "cosine", [9], (0.5, 0.5), "n"))
    (svg,) = [attrs for tag, attrs in drawn.tags if tag == "svg"]
    names = {attrs["id"]: tag for tag, attrs in drawn.tags if "id" in attrs}
    assert svg["role"] == "img"
    assert (svg["aria-labelledby"] or "").split() == list(names) == ["n-title", "n-desc"]
    assert (drawn.within("title"), drawn.within("desc")) == (["Cosines"], ["9 texts"])
    assert "0.50000" in drawn.within("text")


def test_the_ends_of_a_histogram_differ_where_they_do() -> None:
    ends = read(histogram("t", "a", "c", [1, 2], (0.99999997, 0.99999999), "n")).within("text")
    assert {"0.99999997", "0.99999999"} <= set(ends)


@pytest.mark.parametrize("largest", [1e-9, 4.3e-5, 0.7, 1.0, 9.9, 10.0, 153.4, 99_999.0])
def test_ticks_are_round_and_few(largest: float) -> None:
    ticks = nice_ticks(largest)
    assert ticks[0] == 0
    assert 3 <= len(ticks) <= 5
    assert largest <= ticks[-1] * (1 + 1e-9)
    assert ticks[-2] < largest
    assert f"{ticks[1]:.1e}"[:3] in {"1.0", "2.0", "2.5", "5.0"}


@pytest.mark.parametrize("largest", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_of_nothing(largest: float) -> None:
    assert nice_ticks(largest) == [0, 1]


def test_controls_are_spelled_out() -> None:
    assert escape("a\u202eb\n\ud800<") == "a\\u202eb\\n\\ud800&lt;"
    assert escape("é 日本 \u00a0") == "é 日本 \\xa0"


def test_parts_without_content_are_left_out() -> None:
    assert facts([]) == note_list("Notes", []) == charts([]) == ""
    text = document("t", [heading("a", "b"), ""])
    assert read(text).within("h1") == ["a"]
