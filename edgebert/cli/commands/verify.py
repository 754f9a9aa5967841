"""``edgebert verify``."""

from __future__ import annotations

from pathlib import Path

import click

from edgebert.cli.bundle_summary import verified
from edgebert.cli.formatting import echo_json, echo_table
from edgebert.cli.logging_options import Command
from edgebert.cli.options import FOLDER, bundle_argument, json_option, pickle_option, reference_option
from edgebert.cli.progress import step_progress


@click.command(cls=Command)
@bundle_argument
@click.argument("checkpoint", type=FOLDER, required=False)
@reference_option
@pickle_option
@json_option
def verify(bundle: Path, checkpoint: Path | None, reference: str | None, allow_pickle: bool, as_json: bool) -> None:
    r"""Check the files of BUNDLE and its parity with PyTorch.

    \b
    Example:
        edgebert verify minilm/ all-MiniLM-L6-v2/
        edgebert verify minilm/ all-MiniLM-L6-v2/ --reference sentence-transformers

    Compares each file with its hash in the manifest, and the engine with the golden sample of the export. With
    CHECKPOINT, it compares the engine with PyTorch too, over batches, lengths and paddings. A difference beyond
    tolerance is an error.
    """
    import edgebert_exporters

    with step_progress() as progress:
        figures = edgebert_exporters.verify_bundle(
            bundle, checkpoint, reference=reference, allow_pickle=allow_pickle, progress=progress
        )
    if as_json:
        echo_json(figures)
    else:
        echo_table([("bundle", click.format_filename(bundle)), ("result", "verified"), *verified(figures)])
