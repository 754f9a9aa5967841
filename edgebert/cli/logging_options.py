"""Logging to standard error, and the options about messages that every command takes."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click

from edgebert.cli.errors import COMMAND, DEBUG, one_line

VERBOSE, QUIET = "edgebert.verbose", "edgebert.quiet"
OURS = ("edgebert", "edgebert_exporters", "edgebert_runtime")


class Command(click.Command):
    """A command that takes the options about messages after its name as well as before it.

    Errors name options as it has them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += logging_options()
        self.help = unwrapped(self.help)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and let the error boundary know its options."""
        ctx.meta[COMMAND] = ctx
        return super().invoke(ctx)


def unwrapped(text: str | None) -> str | None:
    r"""Turn the ``\b`` of a raw docstring into the character with which click keeps a paragraph's lines as they are."""
    return text and text.replace("\\b", "\b")


def logging_options() -> list[click.Parameter]:
    """Return fresh ``--verbose``, ``--quiet`` and ``--debug`` options."""
    return [
        click.Option(
            ["-v", "--verbose"],
            count=True,
            expose_value=False,
            callback=add_verbosity,
            show_default=False,
            help="Log progress to standard error; -vv logs details, and the messages of other libraries.",
        ),
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=set_quiet,
            help="Show errors only: no progress, no warnings.",
        ),
        click.Option(
            ["--debug"],
            is_flag=True,
            expose_value=False,
            callback=set_debug,
            help="Show the traceback of an error.",
        ),
    ]


def add_verbosity(ctx: click.Context, _param: click.Parameter, value: int) -> None:
    """Count the ``-v`` before and after the command's name."""
    ctx.meta[VERBOSE] = ctx.meta.get(VERBOSE, 0) + value
    set_levels(ctx)


def set_quiet(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    """Remember ``--quiet``, before or after the command's name."""
    ctx.meta[QUIET] = ctx.meta.get(QUIET, False) or value
    set_levels(ctx)


def is_quiet() -> bool:
    """Return whether the running command shows errors only."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.meta.get(QUIET))


def set_debug(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    """Remember ``--debug`` for the error boundary."""
    ctx.meta[DEBUG] = ctx.meta.get(DEBUG, False) or value


def set_levels(ctx: click.Context) -> None:
    """Set the levels of our packages: errors, warnings, progress, or details.

    Raises:
        UsageError: if both less and more than warnings are asked for.
    """
    if ctx.meta.get(QUIET) and ctx.meta.get(VERBOSE, 0):
        raise click.UsageError("Give --quiet or --verbose, not both.", ctx)
    level = {0: logging.WARNING, 1: logging.INFO}.get(ctx.meta.get(VERBOSE, 0), logging.DEBUG)
    for name in OURS:
        logging.getLogger(name).setLevel(logging.ERROR if ctx.meta.get(QUIET) else level)


class EchoHandler(logging.Handler):
    """A line for each record on standard error; other libraries log at ``-vv`` only."""

    def __init__(self, ctx: click.Context) -> None:
        super().__init__()
        self.meta = ctx.meta

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        if record.name.partition(".")[0] in OURS or self.meta.get(VERBOSE, 0) >= 2:
            click.echo(f"edgebert: {record.levelname.lower()}: {one_line(record.getMessage())}", err=True)


def show_warning(
    show: Callable[..., None], message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any
) -> None:
    """Log a warning of ours in one line, and ``show`` any other."""
    if category.__module__.partition(".")[0] in OURS:
        logging.getLogger("edgebert").warning("%s", message)
    else:
        show(message, category, *args, **kwargs)


@contextlib.contextmanager
def log_to_stderr(ctx: click.Context) -> Iterator[None]:
    """Send log records and Python's warnings to standard error while the command runs."""
    handler, root = EchoHandler(ctx), logging.getLogger()
    root.addHandler(handler)
    logging.captureWarnings(True)
    warnings.showwarning = partial(show_warning, warnings.showwarning)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("always", category=UserWarning, module=r"edgebert\.cli\b")  # of a command's call
            yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        for name in OURS:
            logging.getLogger(name).setLevel(logging.NOTSET)
