"""``edgebert verify``."""

from __future__ import annotations

from pathlib import Path

import click

from edgebert.cli.bundle_summary import verified
from edgebert.cli.formatting import echo_json, echo_table, step_progress
from edgebert.cli.logging_options import Command
from edgebert.cli.options import FOLDER, bundle_argument, json_option, pickle_option


@click.command(cls=Command)
@bundle_argument
@click.argument("checkpoint", type=FOLDER, required=False)
@pickle_option
@json_option
def verify(bundle: Path, checkpoint: Path | None, allow_pickle: bool, as_json: bool) -> None:
    r"""Check that BUNDLE is whole and computes what it should.

    \b
    Example:
        edgebert verify minilm/ all-MiniLM-L6-v2/

    Every file is compared with the hash in the manifest, and the engine with itself. With CHECKPOINT, it is compared
    with PyTorch as well, over batches, lengths and paddings. Any difference beyond tolerance is an error.
    """
    import edgebert_exporters

    with step_progress() as progress:
        figures = edgebert_exporters.verify_bundle(bundle, checkpoint, allow_pickle=allow_pickle, progress=progress)
    if as_json:
        echo_json(figures)
    else:
        echo_table([("bundle", click.format_filename(bundle)), ("result", "verified"), *verified(figures)])
