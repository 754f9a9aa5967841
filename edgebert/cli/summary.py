"""What there is to say about a bundle, for ``info`` and for the commands that make one."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from edgebert.cli.output import Row, echo_table, flatten, number, size

if TYPE_CHECKING:
    from edgebert_runtime import Bundle


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


def echo_report(bundle: Bundle) -> None:
    """Print what quantization gained and cost, and what it left alone and why."""
    report, weights = dict(bundle.manifest.report), bundle.manifest.weights
    if isinstance(coverage := report.get("coverage"), dict):
        report["coverage"] = {key: value for key, value in coverage.items() if key != "kept"}  # printed below
    if isinstance(sizes := report.get("bytes"), dict):
        report["bytes"] = {key: size(value) for key, value in sizes.items()}
    echo_table(flatten(report) if report else (), title="report")
    echo_table(weights.kept.items(), title="left in float32")
