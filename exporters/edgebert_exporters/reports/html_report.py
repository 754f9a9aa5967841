"""The report of a quantized bundle as a page: identity and conditions, drawings, figures."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from edgebert_exporters.fidelity.comparison import headline_metric
from edgebert_exporters.fidelity.figures import Figure, told_apart
from edgebert_exporters.reports.conditions import condition_rows, unreadable
from edgebert_exporters.reports.html_page import (
    Row,
    cards,
    charts,
    document,
    facts,
    grid,
    heading,
    megabytes,
    note_list,
    section,
    write_text,
)
from edgebert_exporters.reports.svg_charts import Bar, bar_chart, histogram
from edgebert_exporters.reports.thresholds import advice, slowdown
from edgebert_runtime.bundle.reader import Bundle

# The weights with the largest losses whose sensitivity is drawn.
MOST_WEIGHTS = 20
# Kinds of weights with a smaller share of the bytes are not drawn.
SMALL = 0.01
# The sides of a report, and their names on the page.
SIDES = {"before": "float32", "after": "quantized"}


def write_page(file: str | os.PathLike[str], bundle: Bundle, figures: Sequence[Row]) -> None:
    """Write the report of a bundle to ``file``, whole or not at all.

    Raises:
        ExportError: if that cannot be written.
    """
    write_text(file, page(bundle, figures))


def page(bundle: Bundle, figures: Sequence[Row]) -> str:
    """Return the page: identity, main figures, conditions, drawings, ``figures`` in a table, and skipped weights."""
    manifest, report = bundle.manifest, bundle.manifest.report
    name = bundle.path.resolve().name
    lead = f"{manifest.weights.scheme} for {manifest.task}, {manifest.family}: quantized against float32"
    reason = unreadable(report)
    notes = [*manifest.notes, *([f"fidelity is {reason}"] if reason else []), *filter(None, (advice(report),))]
    skipped = manifest.weights.skipped.items()
    parts = [
        heading(name, lead),
        cards(main_figures(report)),
        note_list("Notes", notes),
        section("Conditions", facts([*identity(bundle), *condition_rows(report.get("conditions", {}))])),
        *(section(title, charts(drawn)) for title, drawn in drawings(report).items()),
        section("Figures", facts(figures)),
        section("Skipped (float32)", grid(("weight", "reason"), skipped, "skipped weights") if skipped else "None."),
        f"<footer><p>Made by edgebert {manifest.edgebert_version}.</p></footer>",
    ]
    return document(f"{name}: {manifest.weights.scheme} for {manifest.task}", parts)


def identity(bundle: Bundle) -> list[Row]:
    """Return the rows that say which model this is, and where it runs."""
    manifest = bundle.manifest
    done, of = manifest.weights.coverage
    layers = manifest.config.get("num_hidden_layers") or manifest.config.get("decoder_layers")
    sizes = [f"{layers} layers"] * (layers is not None)
    sizes += [f"hidden size {manifest.config['hidden_size']}"] * ("hidden_size" in manifest.config)
    return [
        ("model", ", ".join([manifest.family, *sizes, f"vocabulary {manifest.limits.vocab_size:,}"])),
        ("task", f"{manifest.task}, target {manifest.target}"),
        ("weights", f"{manifest.weights.scheme}, {done} of {of} matrix products"),
        ("runs on", str(manifest.weights.cpu_requirements)),
    ]


def main_figures(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return size, speed, fidelity and batch invariance with their limits."""
    sizes, times = report["bytes"], [row["speedup"] for row in report["speed"]]
    figure, value = headline_metric(report["fidelity"])
    least, most, taken = report["min_fidelity"], report.get("max_slowdown"), slowdown(report)
    limit = f"in the median of {len(times)} shapes; no limit was set"
    if most is not None:
        limit = f"in {told_apart(taken, most, digits=2)} of its time, {judged('at most', most, taken <= most)}"
    figures = [
        (
            "Weights",
            megabytes(sizes["after"]),
            f"{sizes['after'] / sizes['before']:.0%} of {megabytes(sizes['before'])}",
        ),
        ("Speed", f"{Figure(statistics.median(times)):.2f} x", f"that of float32, {limit}"),
    ]
    if not unreadable(report):
        text = f"{figure} to float32, {judged('at least', least, value >= least)}"
        figures.append(("Fidelity", told_apart(value, least, 0, 1), text))
    if batches := report.get("batch_invariance"):
        same = f"{batches['identical']} of {batches['rows']}"
        figures.append(("Batch invariance", same, "rows are the same alone and in a batch, bit for bit"))
    return figures


def judged(how: str, limit: float, passed: bool) -> str:
    """Return a limit, and whether a figure passed it."""
    return f"{how} {limit:g} was asked for: {'passed' if passed else 'failed'}"


def drawings(report: dict[str, Any]) -> dict[str, list[str]]:
    """Return the drawings of each part of the report, by the title of the part."""
    return {
        "Size and fidelity": [
            weights_chart(report),
            *([] if unreadable(report) else cosine_histogram(report["fidelity"])),
        ],
        "Speed": [speed_chart(row) for row in report["speed"]],
        "Labelled examples": [metric_chart(*item) for item in report.get("evaluation", {}).get("figures", {}).items()],
        "Sensitivity": list(sensitivity_charts(report.get("sensitivity", []))),
    }


def weights_chart(report: dict[str, Any]) -> str:
    """Draw the bytes of all weights and of each kind, if it is not tiny, before and after."""
    total, kinds = report["bytes"], report.get("kinds", {})
    large = {kind: pair for kind, pair in kinds.items() if pair["before"] > SMALL * total["before"]}
    bars = [
        side_bar(side, f"{kind}, {name}", pair[side] / 1e6, megabytes(pair[side]))
        for kind, pair in {"all": total, **large}.items()
        for side, name in SIDES.items()
    ]
    return bar_chart("Weights, by kind", "In the files; tied weights count once. Less is better.", "MB", bars)


def speed_chart(row: dict[str, Any]) -> str:
    """Draw the time of one shape before and after."""
    bars = [side_bar(side, name, row[f"{side}_ms"], f"{row[f'{side}_ms']:.2f} ms") for side, name in SIDES.items()]
    about = (
        f"Time of a run; less is better. {Figure(row['speedup']):.2f} x the speed of float32 in the median of turns."
    )
    return bar_chart(f"{row['shape']} tokens", about, "ms", bars)


def side_bar(side: str, label: str, value: float, text: str) -> Bar:
    """Return the bar of one side."""
    return Bar(label, value, text, base=side == "before")


def cosine_histogram(fidelity: dict[str, Any]) -> Iterable[str]:
    """Draw the distribution of the cosines of texts, if there is one."""
    spread = fidelity.get("cosines")
    if not spread:
        return
    mean, least = Figure(fidelity["cosine_mean"]), Figure(fidelity["cosine_min"])
    about = (
        f"{sum(spread['counts'])} texts by their mean cosine to float32: {mean:.4f} on average, {least:.4f} at least."
    )
    ends = (spread["low"], spread["high"])
    yield histogram("Fidelity of the texts", about, "cosine to float32", spread["counts"], ends, "cosines")


def metric_chart(name: str, figure: dict[str, Any]) -> str:
    """Draw a metric of labelled examples, with its intervals."""
    rows = []
    for side, label in SIDES.items():
        low, high = figure[f"{side}_interval"]
        remark = f"{low:.4g} to {high:.4g}"
        rows.append(Bar(label, figure[side], f"{figure[side]:.4g}", remark, low, high, base=side == "before"))
    words = name.replace("_", " ")
    return bar_chart(words, "With intervals of 95 %.", words, rows)


def sensitivity_charts(rows: Sequence[dict[str, Any]]) -> Iterable[str]:
    """Draw the losses of single weights, a drawing for each number of bits."""
    for bits in ("int8", "int4"):
        losses = sorted(((row[bits], row["weight"]) for row in rows if bits in row), key=lambda loss: -loss[0])
        if losses:
            bars = [Bar(weight, loss, f"{loss:.2e}") for loss, weight in losses[:MOST_WEIGHTS]]
            about = f"1 - fidelity where this weight alone is {bits}; the {len(bars)} largest of {len(losses)}."
            yield bar_chart(f"Sensitivity to {bits}", about, "1 - fidelity", bars)
