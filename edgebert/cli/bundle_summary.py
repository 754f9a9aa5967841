"""The summary of a bundle, for ``info``, ``export`` and ``quantize``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from edgebert.cli.formatting import LONG_LIST, Row, echo_table, flatten, number, size

if TYPE_CHECKING:
    from edgebert_runtime import Bundle
    from edgebert_runtime.bundle.manifest import Limits

# Kinds of weights with a smaller share of the bytes are not worth a line.
SMALL = 0.01


def as_dict(bundle: Bundle) -> dict[str, Any]:
    """Return the path, the size and the whole manifest."""
    manifest = dataclasses.asdict(bundle.manifest)
    return {"bundle": click.format_filename(bundle.path), "bytes": total_bytes(bundle), **manifest}


def total_bytes(bundle: Bundle) -> int:
    """Return the size of all files."""
    return sum(entry.bytes for entry in bundle.manifest.files.values())


def headline(bundle: Bundle) -> list[Row]:
    """Return the rows about path, task, size and weights."""
    manifest = bundle.manifest
    done, of = manifest.weights.coverage
    coverage = f", {done} of {of} matrix products" if of else ""
    return [
        ("bundle", click.format_filename(bundle.path)),
        ("task", f"{manifest.task} ({manifest.family}, target {manifest.target})"),
        ("size", f"{size(total_bytes(bundle))} in {len(manifest.files)} files"),
        ("weights", f"{manifest.weights.scheme}, {size(manifest.weights.bytes)}{coverage}"),
    ]


def details(bundle: Bundle) -> list[Row]:
    """Return the rows about dimensions and limits."""
    manifest, limits = bundle.manifest, bundle.manifest.limits
    rows = [
        ("made by", f"edgebert {manifest.edgebert_version}, format {manifest.format_version}"),
        ("CPUs", str(manifest.weights.cpu_requirements)),
        ("tokens", tokens(manifest.task, limits)),
        ("vocabulary", f"{limits.vocab_size:,}"),
    ]
    if target := manifest.config.get("decoder_vocab_size"):
        rows.append(("of targets", f"{target:,}"))
    layers = [f"{side}_{part}" for side in ("encoder", "decoder") for part in ("layers", "attention_heads")]
    for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", *layers):
        if key in manifest.config:
            rows.append((key.removeprefix("num_").replace("_", " "), number(manifest.config[key])))
    return rows


def tokens(task: str, limits: Limits) -> str:
    """Return the words for the maximum length of a text."""
    from edgebert_runtime.task_specs import TASKS

    if TASKS[task].kind == "encoder-decoder":
        return f"up to {limits.max_tokens:,} a text, and as many for its translation; longer ones are refused"
    if TASKS[task].generative:
        return f"up to {limits.max_tokens:,}, those of a prompt and those added to it together"
    return f"up to {limits.max_tokens:,} a text; cut at {limits.default_tokens:,} unless asked otherwise"


def notes(bundle: Bundle) -> list[Row]:
    """Return the differences from the reference."""
    return [("note", note) for note in bundle.manifest.notes]


def settings(bundle: Bundle) -> list[Row]:
    """Return the settings of the engine: pooling, labels, languages and the like."""
    shown = {name: value for name, value in bundle.manifest.settings.items() if value not in ("", {})}
    if "languages" in shown:
        shown["languages"] = ", ".join(shown["languages"])  # all of them: users pass their codes
    prompts = shown.pop("prompts", {})  # names as they are passed, and texts with the spaces at their ends
    rows = [(f"prompt {name}", json.dumps(text, ensure_ascii=False)) for name, text in prompts.items()]
    return [*flatten(shown), *rows] if shown or rows else []


def decoding(bundle: Bundle) -> list[Row]:
    """Return the default options of generation, under their names in Python."""
    return [(name, json.dumps(value)) for name, value in bundle.manifest.decoding.items()]


def echo_verification(bundle: Bundle) -> None:
    """Print the parity and the batch invariance that were measured at export."""
    figures = bundle.manifest.verification
    rows = compared(bundle.manifest.target, figures) + tokenized(figures) + beside_library(figures)
    if alone := figures.get("batch_invariance"):
        rows.append(("batches", invariance(alone)))
    echo_table(rows, title="verified against PyTorch")


def verified(figures: Mapping[str, Any]) -> list[Row]:
    """Return the results of ``edgebert verify``."""
    from edgebert_exporters.fidelity.figures import Figure

    reference = figures.get("reference", {})
    rows = [("files", f"{figures['files']} files match the manifest")]
    if "golden_cosine" in figures:
        text = f"cosine {Figure(figures['golden_cosine']):.4f} to the output that was stored when the bundle was made"
        rows.append(("golden", text))
    if alone := figures.get("batch_invariance"):
        text = f"{alone['rows']} rows alone and in batches, off by {alone['max_difference']:.1e} at most"
        rows.append(("batching", text))
    if "cosine" in reference:
        cosine = f"mean cosine {Figure(reference['cosine']):.4f} to PyTorch"
        rows.append(("reference", f"{reference['batches']} batches, {cosine}"))
    return (
        rows
        + compared("reference", reference)
        + tokenized(reference)
        + beside_library(figures)
        + [("note", note) for note in figures.get("notes", ())]
    )


def beside_library(figures: Mapping[str, Any]) -> list[Row]:
    """Return the comparison of results with those of transformers or sentence-transformers."""
    from edgebert_exporters.fidelity.figures import Figure

    if (library := figures.get("library")) is None:
        return []
    parts = [f"{library['texts']} texts"]
    if "identical" in library:
        parts.append(f"{library['identical']} with the same tokens and words")
    if "max_error" in library:
        parts.append(f"off by {library['max_error']:.1e} of the largest number at most")
    if "cosine" in library:
        parts.append(f"mean cosine {Figure(library['cosine']):.4f}")
    return [(library["library"], ", ".join(parts))]


def tokenized(figures: Mapping[str, Any]) -> list[Row]:
    """Return the parity of the tokenizer with the files of the checkpoint."""
    if "tokenizer" not in figures:
        return []
    texts, against = figures["tokenizer"]["texts"], figures["tokenizer"]["against"]
    return [("tokenizer", f"{texts} texts have the ids that {against} gives")]


def compared(label: str, figures: Mapping[str, Any]) -> list[Row]:
    """Return the parity of a graph with its reference, and of each output where there are several."""
    if "max_error" not in figures:
        return []
    text = (
        f"{figures['batches']} batches, off by {figures['max_error']:.1e} of the largest number at most "
        f"(allowed {figures['tolerance']:.0e}), at {figures['at']}"
    )
    errors = figures.get("outputs", {})
    rows = [(name, f"off by {error:.1e}") for name, error in errors.items()] if len(errors) > 1 else []
    if len(rows) > LONG_LIST:
        most = max(list(errors.values())[1:])
        rows[1:] = [("others", f"{len(rows) - 1} outputs, off by {most:.1e} at most")]
    if translations := figures.get("translations"):
        beams = " and ".join(map(str, translations["num_beams"]))
        rows.append(("translations", f"those of {translations['sources']} texts are the same, with num_beams {beams}"))
    unoptimized = figures.get("unoptimized", {})
    return [(label, text), *((f"  {name}", error) for name, error in rows), *compared("unoptimized", unoptimized)]


def measures(report: Mapping[str, Any]) -> list[Row]:
    """Return the measured fidelity of a quantized bundle."""
    from edgebert_exporters.fidelity.figures import fidelity_rows
    from edgebert_exporters.reports.conditions import unreadable

    rows = fidelity_rows(report["fidelity"], "float32")
    if reason := unreadable(report):
        rows = {"fidelity": reason}
    if batches := report.get("batch_invariance"):
        rows["batches"] = invariance(batches)
    return list(rows.items())


def invariance(batches: Mapping[str, Any]) -> str:
    """Return the words for batch invariance."""
    text = f"{batches['identical']} of {batches['rows']} rows are the same alone and in a batch, bit for bit"
    if batches["identical"] == batches["rows"]:
        return text
    return f"{text}; off by {batches['max_difference']:.1e} of the largest number at most"


def sized(report: Mapping[str, Any]) -> list[Row]:
    """Return the sizes before and after quantization, in total and for each kind of weights."""
    sizes, kinds = report["bytes"], report.get("kinds", {})
    rows = [("weights", f"{size(sizes['before'])} -> {size(sizes['after'])}")]
    large = {kind: pair for kind, pair in kinds.items() if pair["before"] > SMALL * sizes["before"]}
    return rows + [(f"  {kind}", f"{size(pair['before'])} -> {size(pair['after'])}") for kind, pair in large.items()]


def timed(report: Mapping[str, Any]) -> list[Row]:
    """Return the speeds before and after quantization, and advice."""
    from edgebert_exporters.fidelity.figures import Figure

    rows = [
        (row["shape"], f"{row['before_ms']:.2f} ms -> {row['after_ms']:.2f} ms ({Figure(row['speedup']):.2f} x)")
        for row in report["speed"]
    ]
    return rows + ([("note", report["advice"])] if report.get("advice") else [])


def evaluated(evaluation: Mapping[str, Any]) -> list[Row]:
    """Return the metrics of both on labelled examples, with intervals."""
    rows = []
    for name, figure in evaluation["figures"].items():
        before, after, difference = (
            f"{figure[side]:.4g} ({figure[f'{side}_interval'][0]:.4g} to {figure[f'{side}_interval'][1]:.4g})"
            for side in ("before", "after", "difference")
        )
        rows.append((name.replace("_", " "), f"{before} -> {after}, difference {difference}"))
    return rows


def figures_of(report: Mapping[str, Any]) -> list[Row]:
    """Return the figures of a report, without those of single weights."""
    return sized(report) + measures(report) + timed(report) + evaluated(report.get("evaluation", {"figures": {}}))


def costs_of_weights(sensitivity: Sequence[Mapping[str, Any]], max_rows: int | None = LONG_LIST) -> list[Row]:
    """Return the loss of quantizing each weight alone, largest first, at most ``max_rows`` weights (None: all)."""
    losses = [(row["weight"], {name: row[name] for name in ("int8", "int4") if name in row}) for row in sensitivity]
    losses.sort(key=lambda row: -max(row[1].values(), default=0))
    return [(name, ", ".join(f"{form} {loss:.2e}" for form, loss in each.items())) for name, each in losses[:max_rows]]


def skipped_weights(skipped: Mapping[str, str]) -> list[Row]:
    """Return the weights that stay in float32, with reasons. Long lists are grouped by reason."""
    if len(skipped) <= LONG_LIST:
        return list(skipped.items())
    names: dict[str, list[str]] = {}
    for name, reason in skipped.items():
        names.setdefault(reason, []).append(name)
    return [(name if not more else f"{name} and {len(more)} more", reason) for reason, (name, *more) in names.items()]


def echo_report(bundle: Bundle) -> None:
    """Print the report of a quantization, and the skipped weights."""
    report = bundle.manifest.report
    if not report:
        return
    echo_table(sized(report) + measures(report) + timed(report), title="report")
    if evaluation := report.get("evaluation"):
        title = f"on {evaluation['examples']:,} examples of {evaluation['file']}, with intervals of 95 %"
        echo_table(evaluated(evaluation), title=title)
    echo_table(costs_of_weights(report.get("sensitivity", [])), title="fidelity loss of a weight alone")
    echo_table(skipped_weights(bundle.manifest.weights.skipped), title="skipped (float32)")
