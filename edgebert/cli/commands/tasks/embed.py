"""``edgebert embed``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edgebert.cli.batch_runner import reading
from edgebert.cli.logging_options import Command
from edgebert.cli.options import bundle_argument, request_options, stride_option, texts_options
from edgebert.cli.param_types import Choice
from edgebert.cli.request import Request
from edgebert.cli.vector_output import vector_output

if TYPE_CHECKING:
    from edgebert_runtime import Embedder


@click.command(cls=Command)
@bundle_argument
@texts_options("[TEXTS]...")
@click.option(
    "--long-texts",
    type=Choice(["truncate", "mean"]),
    default="truncate",
    help="A text over --max-tokens: truncate cuts it; mean splits it into windows and averages their vectors.",
)
@stride_option("0")
@click.option(
    "--prompt", metavar="NAME", show_default="the bundle's", help="Put a prompt of the bundle before each text."
)
@click.option("--prompt-text", metavar="TEXT", help="Put TEXT before texts; '' switches the default prompt off.")
@click.option(
    "--dim",
    type=click.IntRange(min=1),
    show_default="the bundle's",
    help="Cut vectors to so many numbers. Their length is below 1 then, unless --normalize.",
)
@click.option(
    "--normalize/--no-normalize",
    default=None,
    show_default="the bundle's",
    help="Scale vectors to length 1, after the cut.",
)
@request_options(
    json_help="Write a JSON object a line: index, vector, tokens, truncated.",
    output_help="Write vectors to a file, which appears when it is complete: .npy for float32 of shape (texts, dim), "
    ".parquet, or .jsonl.",
)
def embed(request: Request, long_texts: str, stride: int | None, dim: int | None, **choices: str | bool | None) -> None:
    r"""Embed TEXTS, or each line of standard input, as vectors.

    \b
    Example:
        edgebert embed minilm/ "A text." "Another text."
        edgebert embed minilm/ --input texts.txt --output vectors.npy
        edgebert embed minilm/ --input articles.jsonl --field body --id url --output vectors.parquet
        zcat texts.gz | edgebert embed minilm/ --json | gzip > vectors.jsonl.gz
        edgebert embed minilm/ --long-texts mean --stride 32 < long.txt
        edgebert embed minilm/ --prompt-text "query: " --dim 64 --normalize "A text."

    Prints a line for each text, in order: its numbers, separated by spaces. An empty line is an empty text and has a
    vector too. Texts are read, embedded and written as they come, in bounded memory. Put -- before a text that starts
    with a dash.
    """
    check_options(request, long_texts, stride)
    with reading(request) as texts, vector_output(request) as start:
        engine: Embedder = request.load()
        write = start(dim or engine.dim)
        vectors = {name: value for name, value in {"dim": dim, **choices}.items() if value is not None}
        options = {"long_texts": long_texts, "stride": stride or 0, **vectors, **request.keywords}
        for rows, result in texts.results(lambda part: engine.embed_detailed(part, **options)):
            write(rows, result)
            texts.num_truncated += int(result.truncated.sum())


def check_options(request: Request, long_texts: str, stride: int | None) -> None:
    """Refuse options that exclude each other, or need each other."""
    if stride is not None and long_texts != "mean":
        raise click.UsageError("--stride is for --long-texts mean: otherwise a text is cut.")
    if long_texts == "mean" and not request.keywords["truncate"]:
        raise click.UsageError("Give --long-texts mean or --no-truncate, not both: windows leave nothing to cut.")
