"""Quantize real models in every scheme that suits them, and print size, fidelity, quality and speed in one table.

    python benchmarks/quality.py FOLDER --write docs/quantization.md

Checkpoints, data and bundles lie in FOLDER; missing ones are fetched as the samples do. Fidelity and speed are those
of the report of ``edgebert quantize``. All other figures come from examples without a part in calibration. Each row
is compared with the limits of its scheme, which stand in a table above. ``--write`` replaces the rows of a document,
each as soon as it is measured. Half an hour on two cores.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quality_models import MODELS, Figures, Model, Options

import edgebert
from edgebert_exporters import export_checkpoint, quantize_bundle
from edgebert_exporters.fidelity.comparison import headline_metric

BEGIN, END = "<!-- made by benchmarks/quality.py -->", "<!-- end -->"
HEADS = (
    "model",
    "scheme",
    "weights",
    "fidelity",
    "its own figures",
    "against float32",
    "limits",
    "in batches",
    "speed",
)
# How figures are written, and what is said of their changes.
OWN = {
    "pseudo-perplexity": "{:.3f}",
    "accuracy": "{:.2%}",
    "bits per byte": "{:.4f}",
    "WER": "{:.2f}",
    "PER": "{:.2f}",
}
CHANGES = {
    "cosine": "{:.4f}",
    "least cosine": "{:.4f}",
    "flips": "{:.2%}",
    "said otherwise": "{:.2%}",
    "pseudo-perplexity": "{:+.3f}",
    "bits per byte": "{:+.4f}",
    "WER": "{:+.2f}",
    "PER": "{:+.2f}",
}
# What a scheme may cost: the cosine is at least this, the share of other results or the change of a figure at most.
LIMITS = {
    "int8": {"cosine": 0.999, "flips": 0.01, "WER": 0.3, "bits per byte": 0.005},
    "int4": {"cosine": 0.95, "flips": 0.03, "WER": 1.5, "bits per byte": 0.03},
}
LIMITS["int8-static"] = LIMITS["int8"]
AT_LEAST = "cosine"


@dataclass(frozen=True)
class Row:
    """A model in one scheme; ``scheme`` has the options of ``edgebert quantize``, none for float32."""

    model: str
    scheme: Options
    bytes: int
    report: dict[str, Any]
    figures: Figures
    changes: Figures


def rows_of(model: Model, folder: Path) -> Iterator[Row]:
    """Export a model, quantize it in each of its schemes, and yield the row of each bundle.

    Raises:
        RuntimeError: if something cannot be fetched.
    """
    checkpoint, (texts, items) = model.checkpoint(folder), model.data(folder)
    exact = export_checkpoint(checkpoint, folder / f"{model.name}.fp32", allow_pickle=True, force=True)
    old = model.judge(exact.path, items)
    yield Row(model.name, {}, exact.manifest.weights.bytes, {}, model.figures(old), {})
    for options in model.schemes:
        out = folder / f"{model.name}.{named(options).replace(' ', '')}"
        small = quantize_bundle(exact.path, out, calibration=texts, min_fidelity=0, force=True, **options)
        new, weights = model.judge(small.path, items), small.manifest.weights
        yield Row(
            model.name, options, weights.bytes, small.manifest.report, model.figures(new), model.changes(old, new)
        )


def named(options: Options) -> str:
    """Write options as a command line has them, without the word scheme."""
    texts = []
    for name, value in options.items():
        shown = f"{value:.0%}" if isinstance(value, float) else value
        texts.append(shown if name == "scheme" else f"--{name.replace('_', '-')} {shown}")
    return " ".join(texts)


def label(options: Options) -> str:
    """Say in a cell how weights are stored."""
    return f"`{named(options)}`" if options else "float32"


def written(figures: Figures, forms: Mapping[str, str]) -> str:
    """Write figures beside each other, each with its interval."""
    texts = []
    for name, measured in figures.items():
        text = f"{name} {forms[name].format(measured.value)}"
        if measured.interval is not None:
            text += " ({} to {})".format(*map(forms[name].format, measured.interval))
        texts.append(text)
    return ", ".join(texts)


def cells(row: Row) -> list[str]:
    """Return what stands in a row of the first table."""
    start = [row.model, label(row.scheme), f"{row.bytes / 1e6:.1f} MB"]
    if not row.report:
        return [*start, "", written(row.figures, OWN), "", "", "", ""]
    _, value = headline_metric(row.report["fidelity"])
    batches = row.report["batch_invariance"]
    return [
        *start,
        f"{value:.4f}",
        written(row.figures, OWN),
        written(row.changes, CHANGES),
        missed(row),
        "the same" if batches["identical"] == batches["rows"] else f"off by {batches['max_difference']:.0e}",
        f"{statistics.median(shape['speedup'] for shape in row.report['speed']):.2f} x",
    ]


def missed(row: Row) -> str:
    """Name the limits of its scheme that a row misses."""
    limits = {
        name: limit for name, limit in LIMITS.get(row.scheme.get("scheme", ""), {}).items() if name in row.changes
    }
    broken = [name for name, limit in limits.items() if beyond(name, row.changes[name].value, limit)]
    return f"**misses {', '.join(broken)}**" if broken else "keeps" if limits else ""


def beyond(name: str, value: float, limit: float) -> bool:
    """Say whether a figure is worse than its limit."""
    return value < limit if name == AT_LEAST else value > limit


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "".join(f"| {' | '.join(line)} |\n" for line in (heads, ["---"] * len(heads), *lines))


def tables(lines: Iterable[Sequence[str]]) -> str:
    """Return the table of limits and the table of rows."""
    names = list(dict.fromkeys(name for limits in LIMITS.values() for name in limits))
    heads = [f"{'least' if name == AT_LEAST else 'most'} {name}" for name in names]
    limits = [[f"`{scheme}`", *(CHANGES[name].format(own[name]) for name in names)] for scheme, own in LIMITS.items()]
    return f"{table(['scheme', *heads], limits)}\n{table(HEADS, lines)}"


def write(document: Path, rows: Sequence[Row]) -> None:
    """Put tables between the comments of a document. Rows that stand there already stay, but for those made anew.

    Raises:
        RuntimeError: if the document does not have these comments, once each.
    """
    parts = re.split(f"({re.escape(BEGIN)}\n|{re.escape(END)}\n)", document.read_text(encoding="utf-8"))
    if parts[1::2] != [f"{BEGIN}\n", f"{END}\n"]:
        raise RuntimeError(f"{document} has no place between {BEGIN} and {END}; write these lines into it, once each")
    old_cells = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in parts[2].splitlines()]
    lines = {
        (line[0], line[1]): line
        for line in [*(line for line in old_cells if len(line) == len(HEADS)), *map(cells, rows)]
    }
    order = [(model.name, label(options)) for model in MODELS for options in ({}, *model.schemes)]
    parts[2] = tables(lines[key] for key in order if key in lines)
    document.write_text("".join(parts), encoding="utf-8")


def main() -> None:
    """Read the command line, and judge the models that it names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", action="append", choices=[model.name for model in MODELS], help="all unless given")
    parser.add_argument("--write", type=Path, metavar="DOCUMENT", help="where the tables go, too")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    try:
        for model in MODELS:
            for row in rows_of(model, chosen.folder) if model.name in (chosen.model or [model.name]) else ():
                print(f"{row.model}: {' | '.join(cells(row)[1:])}", file=sys.stderr, flush=True)
                rows.append(row)
                if chosen.write is not None:
                    write(chosen.write, rows)
        print(tables(map(cells, rows)))
    except (RuntimeError, edgebert.EdgebertError) as error:
        sys.exit(f"quality: {error}")


if __name__ == "__main__":
    main()
