"""A comparison in words and drawings: every figure once, with its unit, and a reason where there is none."""

from __future__ import annotations

import pytest

from edgebert_exporters.reports.comparison import (
    comparison_charts,
    comparison_page,
    figures_table,
    identity_rows,
    measures,
    remarks,
    time,
)
from tests.exporters.reports.html_reader import read
from tests.support.comparison import comparison


def test_every_figure_has_a_chart_with_its_unit() -> None:
    charts = {chart.title: chart for chart in comparison_charts(comparison())}
    assert {title: chart.unit for title, chart in charts.items()} == {
        "Size on disk": "MB",
        "1 text of 16 tokens": "ms",
        "Fidelity: mean cosine to a.bundle": "1 - cosine",
        "Start": "ms",
        "Peak memory": "MB",
    }
    sizes = charts["Size on disk"].bars
    assert [(bar.name, bar.value, bar.text, bar.remark) for bar in sizes] == [
        ("a.bundle", 101, "101.0 MB", ""),
        ("a.int8", 26, "26.0 MB", "0.26 x"),
        ("<b>", 2, "2.0 MB", "0.02 x"),
    ]
    times = charts["1 text of 16 tokens"].bars
    assert [(bar.name, bar.value, bar.low, bar.high) for bar in times] == [("a.bundle", 10, 5, 20), ("a.int8", 4, 2, 8)]
    assert (times[0].remark, times[1].remark) == ("5.00 to 20.0 ms", "2.50 x as fast; 2.00 to 8.00 ms")
    (fidelity,) = charts["Fidelity: mean cosine to a.bundle"].bars
    assert fidelity.value == pytest.approx(0.00003)
    assert fidelity.text == "0.99997", "never rounded to 1"
    memory = charts["Peak memory"].bars
    assert [(bar.name, bar.value, bar.part, bar.remark) for bar in memory] == [
        ("a.bundle", 300, 100, "100.0 MB mapped"),
        ("a.int8", 75, 25, "25.0 MB mapped"),
    ]
    assert "alone take 60.0 MB" in charts["Peak memory"].about
    assert "On 76 texts (texts.txt)." in charts["Fidelity: mean cosine to a.bundle"].about


def test_numbers_of_one_figure_are_drawn_by_their_correlation() -> None:
    result = comparison()
    result["bundles"][1]["fidelity"] = {"texts": 9, "cosine_mean": 0.5, "cosine_min": 0.1, "correlation": 0.9}
    (chart,) = [chart for chart in comparison_charts(result) if chart.title.startswith("Fidelity")]
    assert (chart.title, chart.unit) == ("Fidelity: correlation to a.bundle", "1 - correlation")
    assert chart.bars[0].value == pytest.approx(0.1)
    assert (chart.bars[0].text, chart.bars[0].remark) == ("0.9000", "")


def test_figures_that_are_left_out_have_a_reason() -> None:
    result = comparison()
    lines = remarks(result)
    assert lines == [
        "no speed of <b>: its task is generate, not embed",
        "no fidelity of <b>: its task is generate, not embed",
        "a.int8: the key x is unused",
    ]
    for table_row in figures_table(result):
        assert len(table_row) == 4
        assert all(table_row)
    assert figures_table(result)[1][1:] == ["10.0 ms, 5.00 to 20.0 ms", "4.00 ms, 2.50 x as fast; 2.00 to 8.00 ms", "–"]
    assert measures(result["bundles"][1], "a") == {"neighbors": "25.0% of 76 texts have a new nearest neighbor"}


def test_a_quantized_baseline_is_remarked() -> None:
    result = comparison()
    result["bundles"][:2] = reversed(result["bundles"][:2])
    result["bundles"][1]["fidelity"] = result["bundles"][0].pop("fidelity")
    assert "a.int8 is int8: name a.bundle first to measure fidelity to float32" in remarks(result)


def test_nothing_is_known_of_memory_elsewhere() -> None:
    result = comparison()
    for each in result["bundles"]:
        each["memory_bytes"] = None
    assert "Peak memory" not in {chart.title for chart in comparison_charts(result)}


def test_bundles_are_described() -> None:
    assert identity_rows(comparison())[1] == (
        *("a.int8", "embed (bert, target cpu)"),
        "int8, 25.0 MB, 3 of 4 matrix products",
    )


def test_the_page_shows_identity_conditions_drawings_and_figures() -> None:
    text = comparison_page(comparison())
    assert text == comparison_page(comparison())
    parsed = read(text)
    assert parsed.within("h1") == ["3 bundles compared"]
    assert parsed.within("h2") == ["Notes", "Conditions", "Drawings", "Figures"]
    assert "2026-12-01 05:45 UTC, with 1 thread" in parsed.within("td")
    assert len(parsed.within("b")) == 5
    assert "<b>" in parsed.within("th"), "a name is text"
    assert not {tag for tag, _ in parsed.tags} & {"script", "link", "img"}


@pytest.mark.parametrize(("value", "text"), [(0.123, "0.12 ms"), (12.34, "12.3 ms"), (5e3, "5000 ms")])
def test_times_have_about_three_digits(value: float, text: str) -> None:
    assert time(value) == text
