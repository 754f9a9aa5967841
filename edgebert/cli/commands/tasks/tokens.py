"""``edgebert tokens``."""

from __future__ import annotations

import click

from edgebert.cli.batch_runner import reading
from edgebert.cli.logging_options import Command
from edgebert.cli.options import bundle_argument, request_options, texts_options
from edgebert.cli.request import Request
from edgebert.cli.result_rows import echo_object, echo_row


@click.command(cls=Command)
@bundle_argument
@texts_options("[TEXTS]...")
@click.option("--target", is_flag=True, help="Texts that a translator writes, instead of those that it reads.")
@request_options(
    json_help="Write a JSON object a line: index, count, ids, tokens, offsets, special.", long_texts="refuse"
)
def tokens(request: Request, target: bool) -> None:
    r"""Count the tokens of TEXTS, or of each line of standard input.

    \b
    Example:
        edgebert tokens minilm/ "A text." "Another text."
        edgebert tokens minilm/ --json --input texts.txt

    Prints a number for each text, in order: its tokens before it is cut, special ones included. --json has the tokens
    too, with their characters in the text. No model is loaded. Numbers include the default prompt of an embed bundle.
    """
    from edgebert_runtime import Tokenizer

    for option, value in (("--threads", request.threads), ("--max-batch-tokens", request.keywords["max_batch_tokens"])):
        if value is not None:
            raise click.UsageError(f"Leave out {option}: no model is run.")
    with reading(request) as texts:
        tokenizer = Tokenizer.load(request.bundle)
        options = {name: value for name, value in request.keywords.items() if name != "max_batch_tokens"}
        options["side"] = "target" if target else "source"

        def compute(part: list[str]) -> list[tuple[str, int]]:
            return list(zip(part, tokenizer.count_tokens(part, **options), strict=True))

        for row, (text, count) in texts.each(compute):
            if request.as_json:
                read = tokenizer.tokenize(text, **options)
                echo_object(row, {"count": count, **vars(read)})
            else:
                echo_row(count)
