"""The report of a quantized bundle as an HTML page without scripts, fonts or other files."""

from __future__ import annotations

import contextlib
import html
import os
import secrets
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from edgebert_exporters.bundles.atomic_folder import explain
from edgebert_exporters.fidelity.comparison import headline_metric
from edgebert_exporters.fidelity.figures import told_apart
from edgebert_exporters.reports.svg_charts import bars, histogram, stacked
from edgebert_exporters.reports.thresholds import advice, slowdown
from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.errors import ExportError

# The weights with the largest losses whose sensitivity is drawn.
MOST_WEIGHTS = 40
FEWER_BITS = ("int8", "int4")
# The sides of a report, and their names on the page.
SIDES = {"before": "float32", "after": "quantized"}
STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5a6675; --line: #d5dae1; --paper: #fff;
  --s0: #3465a4; --s1: #d9822b; --s2: #4e9a63; --s3: #8b5fb5; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #a3adba; --line: #3a4452; --paper: #151a21;
  --s0: #79a6e0; --s1: #eda55b; --s2: #7cc793; --s3: #b893dd; } }
body { margin: 2rem auto; max-width: 50rem; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif;
  color: var(--ink); background: var(--paper); }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; vertical-align: top;
  padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
th { font-weight: 600; white-space: nowrap; } figure { margin: 1rem 0; break-inside: avoid; }
figcaption, footer, .legend { color: var(--soft); font-size: .9rem; } svg { width: 100%; height: auto; }
svg text { font-size: 12px; fill: var(--ink); } .s0 { fill: var(--s0); background: var(--s0); }
.s1 { fill: var(--s1); background: var(--s1); } .s2 { fill: var(--s2); background: var(--s2); }
.s3 { fill: var(--s3); background: var(--s3); } .legend { margin: 0; }
.legend span { margin-right: 1.2rem; } .legend i { display: inline-block; width: .8rem; height: .8rem;
  margin-right: .35rem; }
@media print { body { margin: 0; max-width: none; } tr { break-inside: avoid; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""

Row = tuple[str, str]


def check_page(file: str | os.PathLike[str]) -> None:
    """Refuse a file that cannot be written, before any work is done.

    Raises:
        ExportError: if its folder does not exist, or it is a folder.
    """
    target = Path(file)
    if not target.absolute().parent.is_dir():
        raise ExportError(f"cannot write {target}: the folder {target.parent} does not exist; create it first")
    if target.is_dir():
        raise ExportError(f"cannot write {target}: it is a folder; choose another name")


def write_page(file: str | os.PathLike[str], bundle: Bundle, figures: Sequence[Row]) -> None:
    """Write the report of a bundle to ``file``, whole or not at all.

    Raises:
        ExportError: if that cannot be written.
    """
    check_page(file)
    target = Path(file)
    temporary = target.with_name(f".{target.name}.edgebert-{secrets.token_hex(8)}")
    try:
        temporary.write_text(page(bundle, figures), encoding="utf-8", errors="backslashreplace")
        os.replace(temporary, target)
    except OSError as error:
        raise ExportError(f"cannot write {target}: {explain(error)}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def page(bundle: Bundle, figures: Sequence[Row]) -> str:
    """Return the page: title, verdict, ``figures`` in a table, drawings, and skipped weights."""
    manifest, report = bundle.manifest, bundle.manifest.report
    title = f"{manifest.weights.scheme} for {manifest.task}, {manifest.family}"
    parts = [
        f"<h1>{html.escape(title)}</h1><p>{html.escape(summary(report))}</p>",
        section("Verdict", table(verdict(report))),
        section("Figures", table(figures)),
        section("Drawings", "".join(drawings(report))),
        section("Skipped (float32)", table(manifest.weights.skipped.items()) or "<p>Nothing.</p>"),
        f"<footer><p>{html.escape(safety(bundle))}</p></footer>",
    ]
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n'
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def summary(report: dict[str, Any]) -> str:
    """Return size, speed and fidelity as a sentence."""
    sizes, faster = report["bytes"], statistics.median(row["speedup"] for row in report["speed"])
    figure, value = headline_metric(report["fidelity"])
    before, after = megabytes(sizes["before"]), megabytes(sizes["after"])
    return (
        f"{before} of weights became {after}; {faster:.2f} times the speed of float32 in the median of "
        f"{len(report['speed'])} shapes; {figure} to float32 {value:.4f}."
    )


def verdict(report: dict[str, Any]) -> list[Row]:
    """Return the limited figures with their limits, and advice on speed."""
    figure, value = headline_metric(report["fidelity"])
    rows = [(figure, compare_with_limit(value, report["min_fidelity"], value >= report["min_fidelity"], "at least"))]
    most, taken = report.get("max_slowdown"), slowdown(report)
    limit = "no limit was set" if most is None else compare_with_limit(taken, most, taken <= most, "at most")
    rows.append(("time, in that of float32", limit if most is not None else f"{taken:.4g}; {limit}"))
    return rows + ([("speed", slower)] if (slower := advice(report)) else [])


def compare_with_limit(value: float, limit: float, passed: bool, how: str) -> str:
    """Return a value with its limit, and whether it passed."""
    return f"{told_apart(value, limit, style='g')}, {how} {limit:g} was asked for: {'passed' if passed else 'failed'}"


def drawings(report: dict[str, Any]) -> Iterable[str]:
    """Yield a drawing of each part of the report."""
    if kinds := report.get("kinds"):
        sizes = [(name, {kind: kinds[kind][side] for kind in kinds}) for side, name in SIDES.items()]
        yield stacked("Bytes of weights, by kind", sizes, megabytes)
    speed = [(row["shape"], {name: row[f"{side}_ms"] for side, name in SIDES.items()}) for row in report["speed"]]
    yield bars("Milliseconds a run, by batch size and length", speed, lambda value: f"{value:.2f} ms")
    if spread := report["fidelity"].get("cosines"):
        yield histogram("Texts by their cosine to float32", spread["low"], spread["high"], spread["counts"])
    if sensitivity := report.get("sensitivity"):
        losses = [(row["weight"], {bits: row[bits] for bits in FEWER_BITS if bits in row}) for row in sensitivity]
        losses.sort(key=lambda row: -max(row[1].values(), default=0))
        yield bars("Fidelity loss of quantizing each weight alone", losses[:MOST_WEIGHTS], lambda value: f"{value:.2e}")


def safety(bundle: Bundle) -> str:
    """Return the version and the CPU requirements of the bundle."""
    manifest = bundle.manifest
    return f"Made by edgebert {manifest.edgebert_version}. Runs on {manifest.weights.cpu_requirements}."


def section(title: str, content: str) -> str:
    """Return a section of the page, or nothing without content."""
    return f"<section><h2>{html.escape(title)}</h2>{content}</section>" if content else ""


def table(rows: Iterable[Row]) -> str:
    """Return a table with a name and a text per row, or nothing without rows."""
    lines = [f"<tr><th>{html.escape(name)}</th><td>{html.escape(content)}</td></tr>" for name, content in rows]
    return f"<table>{''.join(lines)}</table>" if lines else ""


def megabytes(count: float) -> str:
    """Write a number of bytes."""
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"
