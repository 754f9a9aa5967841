"""``edgebert info``."""

from __future__ import annotations

from pathlib import Path

import click

from edgebert.cli.bundle_summary import (
    as_dict,
    decoding,
    details,
    echo_report,
    echo_verification,
    headline,
    notes,
    settings,
)
from edgebert.cli.formatting import echo_json, echo_table, size
from edgebert.cli.logging_options import Command
from edgebert.cli.options import bundle_argument, json_option


@click.command(cls=Command)
@bundle_argument
@json_option
def info(bundle: Path, as_json: bool) -> None:
    r"""Show the task, limits, settings and verification of BUNDLE.

    \b
    Example:
        edgebert info minilm/

    Sizes are compared with the manifest; 'edgebert verify' compares the hashes too.
    """
    import edgebert_runtime

    opened = edgebert_runtime.Bundle.open(bundle, verify="size")
    if as_json:
        echo_json(as_dict(opened))
        return
    manifest = opened.manifest
    echo_table([*headline(opened), *details(opened)])
    echo_table(settings(opened), title="settings")
    echo_table(decoding(opened), title="decoding")
    echo_table(notes(opened), title="differences from the reference")
    echo_verification(opened)
    echo_report(opened)
    echo_table([(name, size(entry.bytes)) for name, entry in manifest.files.items()], title="files")
