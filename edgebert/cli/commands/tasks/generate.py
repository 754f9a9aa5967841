"""``edgebert generate``."""

from __future__ import annotations

from typing import Any

import click

from edgebert.cli.generation_options import generation_options, given_options, write_texts
from edgebert.cli.logging_options import Command
from edgebert.cli.options import bundle_argument, request_options, texts_options
from edgebert.cli.request import Request


@click.command(cls=Command)
@bundle_argument
@texts_options("[PROMPTS]...")
@click.option("--one-text", is_flag=True, help="Read all of --input or standard input as one prompt of many lines.")
@click.option("--stream", is_flag=True, help="Print the text while it is generated. One prompt, no beams.")
@generation_options()
@request_options(
    json_help="Write a JSON object a line for each result: index of the prompt, text, tokens, token_logprobs, score, "
    "finish_reason; with several results for a prompt, sequence as well.",
    long_texts="refuse",
)
def generate(request: Request, one_text: bool, stream: bool, **_options: Any) -> None:
    r"""Continue PROMPTS, or each line of standard input.

    \b
    Example:
        edgebert generate gpt2/ "The state of the union is" --stream
        edgebert generate gpt2/ "Once" --do-sample --top-p 0.9 --seed 1 --num-return-sequences 3
        edgebert generate gpt2/ --input prompts.txt --num-beams 4 --max-new-tokens 40 --json
        edgebert generate gpt2/ --one-text --stop $'\n\n' < question.txt

    Prints the continuation without the prompt. For one PROMPT, or with --one-text or --stream, the text is printed as
    it is. Otherwise each result is a line, in the order of the prompts, best first, with spaces for its ends of lines;
    --json keeps these. Defaults are the bundle's, which 'edgebert info' shows as decoding; a bundle without any decodes
    greedily.
    """
    write_texts(request, one_text, stream, given_options(), "prompt")
