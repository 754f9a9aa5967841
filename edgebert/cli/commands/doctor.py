"""``edgebert doctor``."""

from __future__ import annotations

import dataclasses

import click

from edgebert.cli.errors import FAILED
from edgebert.cli.formatting import echo_json, echo_table, flatten
from edgebert.cli.logging_options import Command
from edgebert.cli.options import json_option


@click.command(cls=Command)
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    r"""Check this machine and its packages, and print repairs.

    \b
    Example:
        edgebert doctor

    Exits with code 1 if something is broken.
    """
    from edgebert.cli.environment_report import diagnose

    diagnosis = diagnose()
    if as_json:
        echo_json({"ok": not diagnosis.broken, **dataclasses.asdict(diagnosis)})
    else:
        for title, facts in diagnosis.facts.items():
            echo_table(flatten(facts), title=title)
        click.echo()
        for message in diagnosis.broken:
            click.echo(f"broken: {message}")
        for message in diagnosis.advice:
            click.echo(f"advice: {message}")
        if not diagnosis.broken:
            click.echo("nothing is broken")
    if diagnosis.broken:
        ctx.exit(FAILED)
