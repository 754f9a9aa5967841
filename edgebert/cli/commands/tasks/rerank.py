"""``edgebert rerank``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edgebert.cli.batch_runner import reading
from edgebert.cli.logging_options import Command
from edgebert.cli.options import bundle_argument, request_options, texts_options, top_k_option
from edgebert.cli.progress import call_progress
from edgebert.cli.request import Request
from edgebert.cli.result_rows import echo_ranked

if TYPE_CHECKING:
    from edgebert_runtime import Reranker


@click.command(cls=Command)
@bundle_argument
@click.argument("query")
@texts_options("[PASSAGES]...", "passages")
@top_k_option(None, "Passages to print.")
@request_options(json_help="Write a JSON object a line: index, counted from 0, score, text, truncated.")
def rerank(request: Request, query: str, top_k: int | None) -> None:
    r"""Sort PASSAGES, or lines of standard input, by fit to QUERY.

    \b
    Example:
        edgebert rerank reranker/ "How fast is light?" "About 300,000 km/s." "It is bright."
        edgebert rerank reranker/ "How fast is light?" --input passages.txt --top-k 5

    Prints a line for each passage, best first: score, tab, passage. All passages are read before the first is printed.
    """
    with reading(request) as texts:
        engine: Reranker = request.load()
        rows, passages = texts.whole()
        with call_progress(request.verb) as progress:
            ranked = engine.rerank(query, passages, top_k=top_k, progress=progress, **request.keywords)
        echo_ranked(rows, ranked, request.as_json)
