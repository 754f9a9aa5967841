"""``edgebert choose``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edgebert.cli.errors import name_inputs
from edgebert.cli.logging_options import Command
from edgebert.cli.options import bundle_argument, request_options
from edgebert.cli.request import Request
from edgebert.cli.result_rows import echo_ranked

if TYPE_CHECKING:
    from edgebert_runtime import MultipleChoice
    from edgebert_runtime.errors import EdgebertError


@click.command(cls=Command)
@bundle_argument
@click.argument("prompt")
@click.argument("choices", nargs=-1, required=True)
@request_options(json_help="Write a JSON object a line: index, counted from 0, score, text, truncated.")
def choose(request: Request, prompt: str, choices: tuple[str, ...]) -> None:
    r"""Rank CHOICES, two or more, by fit to PROMPT.

    \b
    Example:
        edgebert choose swag/ "She opens the door." "She goes in." "The door eats her."

    Prints a line for each choice, best first: score, tab, choice. The scores sum to 1.
    """
    if len(choices) < 2:
        raise click.UsageError("Give two choices or more.")
    engine: MultipleChoice = request.load()
    name_inputs(text_name)
    echo_ranked(engine.choose(prompt, choices, **request.keywords), request.as_json)


def text_name(error: EdgebertError) -> str:
    """Return the words for a text of the only question."""
    if isinstance(error.part, tuple):
        return f"choice {error.part[1] + 1}"
    return error.part or "a choice with the prompt"
