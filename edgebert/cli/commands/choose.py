"""``edgebert choose``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from edgebert.cli.logging_options import Command
from edgebert.cli.options import bundle_argument, request_options
from edgebert.cli.request import Request
from edgebert.cli.result_rows import echo_ranked
from edgebert.cli.text_input import naming

if TYPE_CHECKING:
    from edgebert_runtime import MultipleChoice

TEXT = r"\btext (?:of (?:choice (\d+)|the prompt) of question )?0\b"


@click.command(cls=Command)
@bundle_argument
@click.argument("prompt")
@click.argument("choices", nargs=-1, required=True)
@request_options(json_help="Write a JSON object a line: index, counted from 0, score, text, truncated.")
def choose(request: Request, prompt: str, choices: tuple[str, ...]) -> None:
    r"""Tell which of CHOICES, two or more, goes best with PROMPT.

    \b
    Example:
        edgebert choose swag/ "She opens the door." "She goes in." "The door eats her."

    Prints a line for each choice, best first: score, tab, choice. The scores add up to 1.
    """
    if len(choices) < 2:
        raise click.UsageError("Give two choices or more.")
    engine: MultipleChoice = request.load()
    with naming(called, TEXT):
        found = engine.choose(prompt, choices, **request.keywords)
    echo_ranked(found, request.as_json)


def called(match: re.Match[str]) -> str:
    """Return what users call a text of the only question."""
    return f"choice {int(match[1]) + 1}" if match[1] else "a choice with the prompt"
