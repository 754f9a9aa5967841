"""A comparison of bundles in words and drawings; the command line and the page show the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from edgebert_exporters.fidelity.comparison import headline_metric
from edgebert_exporters.fidelity.figures import Figure, fidelity_rows
from edgebert_exporters.reports.conditions import machine_rows
from edgebert_exporters.reports.html_page import (
    Row,
    charts,
    document,
    facts,
    grid,
    heading,
    megabytes,
    note_list,
    section,
)
from edgebert_exporters.reports.svg_charts import Bar, Chart

Result = Mapping[str, Any]
# Stands for a figure that a bundle has not.
NONE = "–"


def comparison_charts(result: Result) -> list[Chart]:
    """Return the charts of size, speed, fidelity, start and memory; those without any figure are left out."""
    rows, base = result["bundles"], result["baseline"]
    drawn = [
        size_chart(rows),
        *speed_charts(rows, base),
        fidelity_chart(rows, base, result["conditions"]["texts"]),
        start_chart(rows, result["conditions"]["starts"]),
        memory_chart(rows),
    ]
    return [chart for chart in drawn if chart.bars]


def size_chart(rows: Sequence[Result]) -> Chart:
    """Return the chart of the sizes on disk."""
    first = rows[0]["bytes_on_disk"]
    bars = [
        Bar(row["name"], size / 1e6, megabytes(size), ratio(size / first, place), base=place == 0)
        for place, row in enumerate(rows)
        for size in [row["bytes_on_disk"]]
    ]
    return Chart("Size on disk", "All files of the folder; less is better.", "MB", bars)


def speed_charts(rows: Sequence[Result], base: str) -> Iterable[Chart]:
    """Yield the chart of each workload."""
    for index, workload in enumerate(rows[0]["speed"]):
        bars = []
        for place, row in enumerate(rows):
            if "speed" in row:
                entry = row["speed"][index]
                bars.append(
                    spread_bar(
                        row["name"], entry["milliseconds"], time, place, f"{Figure(entry['speedup']):.2f} x as fast"
                    )
                )
        about = f"Time of a call, the median of {workload['turns']} turns; less is better."
        yield Chart(workload["workload"].capitalize(), f"{about} Ratios are to {base}.", "ms", bars)


def fidelity_chart(rows: Sequence[Result], base: str, texts: Mapping[str, Any]) -> Chart:
    """Return the chart of the distance from the outputs of the baseline."""
    bars, names = [], set[str]()
    for row in rows:
        if "fidelity" in row:
            name, value = headline_metric(row["fidelity"])
            names.add(name)
            least = f"{Figure(row['fidelity']['cosine_min']):.4f} at least"
            bars.append(Bar(row["name"], 1 - value, f"{Figure(value):.4f}", least if name == "mean cosine" else ""))
    name = names.pop() if names else ""
    about = f"On {texts['count']} texts ({texts['origin']})."
    legend = f"Bars are 1 - {name}: shorter is closer."
    return Chart(f"Fidelity: {name} to {base}", about, f"1 - {name.removeprefix('mean ')}", bars, legend)


def start_chart(rows: Sequence[Result], starts: int) -> Chart:
    """Return the chart of the times to the first result."""
    bars = [
        spread_bar(row["name"], {key: 1000 * value for key, value in row["start_seconds"].items()}, time, place)
        for place, row in enumerate(rows)
    ]
    about = f"From the start of Python to the first result, the median of {starts} processes; less is better."
    return Chart("Start", about, "ms", bars)


def memory_chart(rows: Sequence[Result]) -> Chart:
    """Return the chart of the largest memory, if the system tells it."""
    sizes = [(row["name"], row["memory_bytes"], place) for place, row in enumerate(rows) if row["memory_bytes"]]
    bars = [
        Bar(
            name,
            memory["peak"] / 1e6,
            megabytes(memory["peak"]),
            f"{megabytes(memory['mapped'])} mapped",
            part=min(memory["mapped"], memory["peak"]) / 1e6,
            base=place == 0,
        )
        for name, memory, place in sizes
    ]
    about = "Of a process that runs each workload once; less is better. Mapped pages, of weights and libraries, are "
    about += "shared by processes, and the system may drop them."
    if sizes:
        about += (
            f" Python and its libraries alone take {megabytes(max(memory['libraries'] for _, memory, _ in sizes))}."
        )
    return Chart("Peak memory", about, "MB", bars, "The pale part is mapped.")


def spread_bar(
    name: str, spread: Mapping[str, float], text: Callable[[float], str], place: int, remark: str = ""
) -> Bar:
    """Return a bar of a median, with the range around it."""
    low, high = spread["least"], spread["most"]
    remarks = [remark] * (place > 0 and remark != "") + [f"{text(low).partition(' ')[0]} to {text(high)}"]
    return Bar(name, spread["median"], text(spread["median"]), "; ".join(remarks), low, high, base=place == 0)


def time(milliseconds: float) -> str:
    """Write a time with three digits or more."""
    return f"{milliseconds:.{0 if milliseconds >= 100 else 1 if milliseconds >= 10 else 2}f} ms"


def ratio(value: float, place: int) -> str:
    """Write a ratio to the first bundle, which has none."""
    return f"{Figure(value):.2f} x" if place else ""


def measures(row: Result, base: str) -> dict[str, str]:
    """Return the measures of fidelity of a bundle in words, without the one that is drawn."""
    words = fidelity_rows(row.get("fidelity", {}), base)
    words.pop("fidelity", None)
    return words


def figures_table(result: Result) -> list[list[str]]:
    """Return the figures of all charts and the measures of fidelity in words, a row each, a column for each bundle."""
    names = [row["name"] for row in result["bundles"]]
    words = [measures(row, result["baseline"]) for row in result["bundles"]]
    labels = dict.fromkeys(label for column in words for label in column)
    rows = [
        [chart.title, *(cells.get(name, NONE) for name in names)]
        for chart in comparison_charts(result)
        for cells in [{bar.name: in_words(bar) for bar in chart.bars}]
    ]
    return rows + [[label, *(column.get(label, NONE) for column in words)] for label in labels]


def in_words(bar: Bar) -> str:
    """Return the number of a bar with its remark."""
    return f"{bar.text}, {bar.remark}" if bar.remark else bar.text


def identity_rows(result: Result) -> list[tuple[str, str, str]]:
    """Return the name, the model and the weights of each bundle."""
    rows = []
    for row in result["bundles"]:
        done, of = row["weights"]["coverage"]
        coverage = f", {done} of {of} matrix products" if of else ""
        model = f"{row['task']} ({row['family']}, target {row['target']})"
        rows.append((row["name"], model, f"{row['weights']['scheme']}, {megabytes(row['weights']['bytes'])}{coverage}"))
    return rows


def remarks(result: Result) -> list[str]:
    """Return the figures that were left out with their reasons, and the notes of the bundles."""
    base, *others = result["bundles"]
    lines = [f"no {entry['figures']} of {entry['bundle']}: {entry['reason']}" for entry in result["left_out"]]
    exact = next((row["name"] for row in others if row["weights"]["scheme"] == "fp32" and "fidelity" in row), None)
    if base["weights"]["scheme"] != "fp32" and exact is not None:
        lines.append(
            f"{base['name']} is {base['weights']['scheme']}: name {exact} first to measure fidelity to float32"
        )
    return lines + [f"{row['name']}: {note}" for row in result["bundles"] for note in row["notes"]]


def condition_rows(result: Result) -> list[Row]:
    """Return the conditions in words."""
    conditions = result["conditions"]
    about = f"{conditions['seconds']:g} s for the speed of each bundle, in turns, on the device {conditions['device']}"
    return [*machine_rows(conditions), ("effort", f"{about}; {conditions['starts']} starts of each")]


def comparison_page(result: Result) -> str:
    """Return the page: identity, conditions, drawings, and measures of fidelity in a table."""
    base = result["baseline"]
    header = ["figure", *(row["name"] for row in result["bundles"])]
    drawn = [chart.draw() for chart in comparison_charts(result)]
    parts = [
        heading(f"{len(result['bundles'])} bundles compared", f"The baseline is {base}, drawn in grey."),
        grid(("bundle", "task", "weights"), identity_rows(result), "bundles"),
        note_list("Notes", remarks(result)),
        section("Conditions", facts(condition_rows(result))),
        section("Drawings", charts(drawn)),
        section("Figures", grid(header, figures_table(result), "figures of all bundles")),
        f"<footer><p>Made by edgebert {result['conditions']['edgebert']}.</p></footer>",
    ]
    return document(f"{len(result['bundles'])} bundles compared with {base}", parts)
