"""``edgebert tag``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edgebert.cli.batch_runner import reading
from edgebert.cli.logging_options import Command
from edgebert.cli.options import bundle_argument, request_options, stride_option, texts_options
from edgebert.cli.param_types import Choice
from edgebert.cli.request import Request
from edgebert.cli.result_rows import echo_object, echo_row

if TYPE_CHECKING:
    from edgebert_runtime import Tagger


@click.command(cls=Command)
@bundle_argument
@texts_options("[TEXTS]...")
@click.option(
    "--aggregation",
    type=Choice(["none", "simple", "first", "max", "average"]),
    default="simple",
    help="Entities from tokens: none prints each token; simple joins tokens of one label; first, max and average also "
    "keep words whole, with the label of the first or the most certain token, or the best one of their mean.",
)
@stride_option("a quarter of a window, at most 128")
@request_options(
    json_help="Write a JSON object a line for each text: index, entities with label, score, start, end, text.",
    long_texts="split",
)
def tag(request: Request, aggregation: str, stride: int | None) -> None:
    r"""Find named entities in TEXTS, or lines of standard input.

    \b
    Example:
        edgebert tag ner/ "Ada Lovelace lived in London."
        edgebert tag ner/ --aggregation first --input texts.txt --json

    Prints a line for each entity, in the order of the texts: number of the text from 1 or its --id, start, end, label,
    score and text, with tabs between. Start and end count characters from 0. A long text is read in windows, nothing is
    lost.
    """
    with reading(request) as texts:
        engine: Tagger = request.load()
        options = {"aggregation": aggregation, "stride": stride, **request.keywords}
        for row, entities in texts.each(lambda part: list(engine.stream(part, **options))):
            if request.as_json:
                echo_object(row, {"entities": entities})
                continue
            for entity in entities:
                echo_row(row.label, entity.start, entity.end, entity.label, entity.score, entity.text)
