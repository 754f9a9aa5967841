"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

FOLDER = click.Path(path_type=Path)

bundle_argument: Callable[[F], F] = click.argument("bundle", type=FOLDER)
json_option: Callable[[F], F] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, for programs, instead of text."
)
force_option: Callable[[F], F] = click.option(
    "--force", is_flag=True, help="Replace the destination if it is there; the old one stays until the new is complete."
)


def engine_options(function: F) -> F:
    """Add ``--device`` and ``--threads``: where, and how wide, an engine runs."""
    device = click.option(
        "--device",
        default="cpu",
        metavar="cpu|cuda|cuda:N|auto",
        help="Where to run. auto takes the GPU if it works, and says so if it does not.",
    )
    threads = click.option(
        "--threads",
        type=click.IntRange(min=1),
        show_default="all CPUs that this process may use",
        help="Number of threads.",
    )
    return device(threads(function))
