"""What there is to say about a bundle, for ``info`` and for the commands that make one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from edgebert.cli.output import Row, echo_table, flatten, number, size

if TYPE_CHECKING:
    from edgebert_runtime import Bundle

# What only some tasks measure after quantization: the figure, its label, and what it says.
MEASURES = (
    ("nearest_flips", "neighbours", "{nearest_flips:.1%} of {texts} texts have another nearest text"),
    ("top1_agreement", "top result", "the same in {top1_agreement:.1%} of what {texts} texts give"),
    ("kl_mean", "divergence", "Kullback-Leibler {kl_mean:.2e} on average"),
    ("correlation", "correlation", "{correlation:.4f} between scores before and after"),
)


def as_dict(bundle: Bundle) -> dict[str, Any]:
    """Return where the bundle is, its size, and the whole manifest."""
    manifest = dataclasses.asdict(bundle.manifest)
    return {"bundle": click.format_filename(bundle.path), "bytes": total_bytes(bundle), **manifest}


def total_bytes(bundle: Bundle) -> int:
    """Add up the files of the bundle."""
    return sum(entry.bytes for entry in bundle.manifest.files.values())


def headline(bundle: Bundle) -> list[Row]:
    """Say in a few rows what the bundle is."""
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
    """Give the dimensions and limits that a user of the bundle has to know."""
    manifest, limits = bundle.manifest, bundle.manifest.limits
    rows = [
        ("made by", f"edgebert {manifest.edgebert_version}, format {manifest.format_version}"),
        ("safe CPUs", manifest.weights.safe_cpus),
        ("tokens", f"up to {limits.max_tokens:,} a text; cut at {limits.default_tokens:,} unless asked otherwise"),
        ("vocabulary", f"{limits.vocab_size:,}"),
    ]
    for key in ("hidden_size", "num_hidden_layers", "num_attention_heads"):
        if key in manifest.config:
            rows.append((key.removeprefix("num_").replace("_", " "), number(manifest.config[key])))
    return rows


def settings(bundle: Bundle) -> list[Row]:
    """Give what the task's engine is told: pooling, labels and the like."""
    found = bundle.manifest.settings
    return list(flatten(found)) if found else []


def echo_verification(bundle: Bundle) -> None:
    """Print what was compared when the bundle was made, and how far it was off."""
    figures = bundle.manifest.verification
    rows = [(bundle.manifest.target, figures), ("unoptimized", figures.get("unoptimized"))]
    echo_table(
        [(label, difference(found)) for label, found in rows if found and "max_error" in found],
        title="verified against PyTorch",
    )


def verified(figures: Mapping[str, Any]) -> list[Row]:
    """Say what ``edgebert verify`` compared and found."""
    alone, reference = figures["rows_alone"], figures.get("reference")
    rows = [
        ("files", f"{figures['files']} files are what the manifest lists"),
        ("golden", f"cosine {figures['golden_cosine']:.4f} to the output that was stored when the bundle was made"),
        ("batching", f"{alone['rows']} rows alone and in batches, off by {alone['max_error']:.1e} at most"),
    ]
    if reference and "max_error" in reference:
        rows.append(("reference", difference(reference)))
        if "unoptimized" in reference:
            rows.append(("unoptimized", difference(reference["unoptimized"])))
    elif reference:
        rows.append(("reference", f"{reference['batches']} batches, mean cosine {reference['cosine']:.4f} to PyTorch"))
    return rows


def difference(figures: Mapping[str, Any]) -> str:
    """Say how far a graph was from its reference."""
    return (
        f"{figures['batches']} batches, off by {figures['max_error']:.1e} of the largest number at most "
        f"(allowed {figures['tolerance']:.0e}), at {figures['at']}"
    )


def echo_report(bundle: Bundle) -> None:
    """Print what quantization gained and cost, and what it left alone and why."""
    report, weights = bundle.manifest.report, bundle.manifest.weights
    if not report:
        return
    sizes, found = report["bytes"], report["fidelity"]
    rows = [
        ("weights", f"{size(sizes['before'])} -> {size(sizes['after'])}"),
        ("agreement", f"cosine to float32 {found['cosine_mean']:.4f} on average, {found['cosine_min']:.4f} at least"),
        *((label, text.format(**found)) for key, label, text in MEASURES if key in found),
        ("batches", f"cosine of a text alone to itself in a batch {found['alone_in_batch_cosine_min']:.4f} at least"),
    ]
    for row in report["speed"]:
        rows.append((row["shape"], f"{row['before_ms']:.2f} ms -> {row['after_ms']:.2f} ms ({row['speedup']:.2f} x)"))
    echo_table(rows, title="report")
    echo_table(weights.kept.items(), title="left in float32")
