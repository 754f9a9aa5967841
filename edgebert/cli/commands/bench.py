"""``edgebert bench``."""

from __future__ import annotations

from pathlib import Path

import click

from edgebert.cli.formatting import echo_json, echo_table, flatten
from edgebert.cli.logging_options import Command
from edgebert.cli.options import bundle_argument, engine_options, json_option


@click.command(cls=Command)
@bundle_argument
@engine_options
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True, max=3600),
    default=10.0,
    help="How long to measure, in seconds.",
)
@json_option
def bench(bundle: Path, device: str, threads: int | None, seconds: float, as_json: bool) -> None:
    r"""Measure how fast BUNDLE runs on this machine.

    \b
    Example:
        edgebert bench minilm/ --threads 1 --seconds 5
    """
    import edgebert_runtime
    from edgebert_runtime.benchmark import measure

    engine = edgebert_runtime.load(bundle, device=device, threads=threads)
    figures = measure(engine, seconds=seconds)
    if as_json:
        echo_json(figures)
    else:
        echo_table([("bundle", click.format_filename(bundle)), *flatten(figures)])
