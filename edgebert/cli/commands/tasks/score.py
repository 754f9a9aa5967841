"""``edgebert score``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edgebert.cli.batch_runner import TEXTS_AT_ONCE, reading
from edgebert.cli.errors import Failure
from edgebert.cli.files.rows import TEXT, Fields
from edgebert.cli.logging_options import Command
from edgebert.cli.options import bundle_argument, language_options, request_options, texts_options
from edgebert.cli.request import Request
from edgebert.cli.result_rows import echo_object, echo_row

if TYPE_CHECKING:
    from edgebert_runtime import Scored

SOURCE_AND_TARGET = Fields(("source", "target"), "a bundle that translates")


@click.command(cls=Command)
@bundle_argument
@texts_options("[TEXTS]...")
@language_options
@request_options(
    json_help="Write a JSON object a line for each text: index, tokens, token_logprobs, score, perplexity.",
    long_texts="refuse",
)
def score(request: Request, languages: dict[str, str]) -> None:
    r"""Score TEXTS, or lines of standard input, by log-probability.

    \b
    Example:
        edgebert score gpt2/ "The cat sat on the mat." "Mat the on sat cat the."
        edgebert score gpt2/ --input texts.txt --json
        printf 'How are you?\tWie geht es dir?\n' | edgebert score opus-mt-en-de/

    Prints a line for each text, in order: log-probability (natural logarithm), perplexity and number of tokens, with
    tabs between. A lower perplexity is a more likely text, whatever its length. For an encoder-decoder bundle a text is
    a source and its target, with a tab between, and the target is scored.
    """
    from edgebert_runtime.task_specs import TASKS

    with reading(request) as texts:
        engine = request.load()
        pairs = TASKS[engine.bundle.manifest.task].kind == "encoder-decoder"
        if languages and not pairs:
            option = f"--{next(iter(languages)).replace('_', '-')}"
            raise Failure(f"{click.format_filename(request.bundle)} translates nothing; leave out {option}")
        options: dict[str, Any] = {**languages, **request.keywords}

        def compute(firsts: list[str], targets: list[str] | None = None) -> list[Scored]:
            items = firsts if targets is None else list(zip(firsts, targets, strict=True))
            results: list[Scored] = engine.score(items, **options)
            return results

        for row, result in texts.each(compute, SOURCE_AND_TARGET if pairs else TEXT, TEXTS_AT_ONCE):
            if request.as_json:
                echo_object(row, result)
            else:
                echo_row(result.score, result.perplexity, len(result.tokens))
