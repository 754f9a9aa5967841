"""``edgebert choose``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edgebert.cli.batch_runner import TEXTS_AT_ONCE, reading
from edgebert.cli.files.rows import Fields, Row
from edgebert.cli.logging_options import Command
from edgebert.cli.options import bundle_argument, input_options, request_options
from edgebert.cli.request import Request
from edgebert.cli.result_rows import echo_object, echo_ranked, echo_row

if TYPE_CHECKING:
    from edgebert_runtime import Choice, MultipleChoice
    from edgebert_runtime.errors import EdgebertError


PROMPT_AND_CHOICES = Fields(("prompt", "choices"), "edgebert choose", several_last=True)


@click.command(cls=Command)
@bundle_argument
@click.argument("texts", nargs=-1, metavar="[PROMPT CHOICES...]")
@input_options("prompt and choices", "prompts with their choices", "none")
@request_options(
    json_help="Write a JSON object a line for each choice: index, counted from 0, score, text, truncated; for each row "
    "of --input: index, choices, each with these."
)
def choose(request: Request) -> None:
    r"""Rank CHOICES, two or more, by fit to PROMPT.

    \b
    Example:
        edgebert choose swag/ "She opens the door." "She goes in." "The door eats her."
        edgebert choose swag/ --input swag.csv --field startphrase --field ending0 --field ending1

    Prints a line for each choice, best first: score, tab, choice. The scores sum to 1. With --input, the number of the
    row from 1 or its --id stands before. A row has its choices in a list, in several fields, or in a line with tabs
    between.
    """
    if not request.texts and request.file is None:
        raise click.UsageError("Give PROMPT and CHOICES, or --input.")
    if request.texts and len(request.texts) < 3:
        raise click.UsageError("Give two choices or more.")
    arguments = [(request.texts[0], list(request.texts[1:]))] if request.texts else []
    with reading(request, arguments=arguments, name_argument=text_name) as texts:
        engine: MultipleChoice = request.load()

        def compute(prompts: list[str], choices: list[list[str]]) -> list[list[Choice]]:
            return engine.choose_many(list(zip(prompts, choices, strict=True)), **request.keywords)

        for row, ranked in texts.each(compute, PROMPT_AND_CHOICES, TEXTS_AT_ONCE):
            if arguments:
                echo_ranked([Row(index) for index in range(len(ranked))], ranked, request.as_json)
            elif request.as_json:
                echo_object(row, {"choices": ranked})
            else:
                for choice in ranked:
                    echo_row(row.label, choice.score, choice.text)


def text_name(error: EdgebertError) -> str:
    """Return the words for a text of the only question."""
    if isinstance(error.part, tuple):
        return f"choice {error.part[1] + 1}"
    return error.part or "a choice with the prompt"
