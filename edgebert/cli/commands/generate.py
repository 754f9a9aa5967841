"""``edgebert generate``."""

from __future__ import annotations

from typing import Any

import click

from edgebert.cli.generation_options import asked, generation_options, write_texts
from edgebert.cli.logging_options import Command
from edgebert.cli.options import bundle_argument, request_options, texts_options
from edgebert.cli.request import Request


@click.command(cls=Command)
@bundle_argument
@texts_options("[PROMPTS]...")
@click.option("--whole", is_flag=True, help="Take all of --input or standard input as one prompt of many lines.")
@click.option("--stream", is_flag=True, help="Print the text while it is made. For one prompt, without beams.")
@generation_options()
@request_options(
    json_help="Write a JSON object a line for each result: index of the prompt, text, tokens, token_logprobs, score, "
    "finish_reason; with several results for a prompt, sequence as well.",
    long="refuse",
)
def generate(request: Request, whole: bool, stream: bool, **_options: Any) -> None:
    r"""Continue PROMPTS, or each line of standard input.

    \b
    Example:
        edgebert generate gpt2/ "The state of the union is" --stream
        edgebert generate gpt2/ "Once" --sample --top-p 0.9 --seed 1 --num-return-sequences 3
        edgebert generate gpt2/ --input prompts.txt --num-beams 4 --max-new-tokens 40 --json
        edgebert generate gpt2/ --whole --stop $'\n\n' < question.txt

    Prints what was added, without the prompt. For one PROMPT, or with --whole or --stream, that is the text as it is,
    with an end of line after it. Otherwise it is a line for each result, in the order of the prompts, those of one
    prompt best first, with spaces where the text has ends of lines; --json keeps these. Options of generation that
    are not given are what 'edgebert info' shows as decoding; without --sample and --num-beams, and if the bundle does
    not say otherwise, each token is the most likely one.
    """
    write_texts(request, whole, stream, asked(), "prompt")
