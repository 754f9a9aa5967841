"""``edgebert score``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edgebert.cli.logs import Command
from edgebert.cli.options import bundle_argument, request_options, texts_options
from edgebert.cli.reading import AT_ONCE, reading
from edgebert.cli.results import echo_object, echo_row, exact
from edgebert.cli.verbs import Request

if TYPE_CHECKING:
    from edgebert_runtime import Generator


@click.command(cls=Command)
@bundle_argument
@texts_options("[TEXTS]...")
@request_options(
    json_help="Write a JSON object a line for each text: index, tokens, token_logprobs, score, perplexity.",
    long="refuse",
)
def score(request: Request) -> None:
    r"""Tell how likely TEXTS, or lines of standard input, are.

    \b
    Example:
        edgebert score gpt2/ "The cat sat on the mat." "Mat the on sat cat the."
        edgebert score gpt2/ --input texts.txt --json

    Prints a line for each text, in order, with tabs between the natural logarithm of its probability, its perplexity
    and the number of its tokens. Less perplexity is more likely text, whatever its length.
    """
    with reading(request) as texts:
        engine: Generator = request.load()
        for index, found in texts.each(lambda part: engine.score(part, **request.keywords), AT_ONCE):
            if request.as_json:
                echo_object({"index": index, **exact(found)})
            else:
                echo_row(found.score, found.perplexity, len(found.tokens))
