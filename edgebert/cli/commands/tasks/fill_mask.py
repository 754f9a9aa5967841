"""``edgebert fill-mask``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edgebert.cli.batch_runner import reading
from edgebert.cli.logging_options import Command
from edgebert.cli.options import bundle_argument, request_options, texts_options, top_k_option
from edgebert.cli.request import Request
from edgebert.cli.result_rows import echo_object, echo_row

if TYPE_CHECKING:
    from edgebert_runtime import MaskFiller


@click.command("fill-mask", cls=Command)
@bundle_argument
@texts_options("[TEXTS]...")
@top_k_option(5, "Fillings to print for each mask.")
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="TOKEN",
    show_default="the whole vocabulary",
    help="Restrict fillings to this token. May be given several times.",
)
@request_options(
    json_help="Write a JSON object a line for each text: index, masks, each a list of fillings with token, token_id, "
    "score, text, start, end."
)
def fill_mask(request: Request, top_k: int, targets: tuple[str, ...]) -> None:
    r"""Fill in the masks of TEXTS, or of each line of standard input.

    \b
    Example:
        edgebert fill-mask bert/ "Paris is the [MASK] of France."
        edgebert fill-mask bert/ "Ships [MASK] the sea." --target cross --target love

    Prints a line for each filling, best first: number of the text from 1 or its --id, number of the mask in it from 1,
    score, token, and the text with this mask filled in, with tabs between. 'edgebert info' shows the mask token.
    """
    with reading(request) as texts:
        engine: MaskFiller = request.load()
        options = {"top_k": top_k, "targets": targets or None, **request.keywords}
        for row, masks in texts.each(lambda part: engine.fill(part, **options)):
            if request.as_json:
                echo_object(row, {"masks": masks})
                continue
            for mask, fillings in enumerate(masks, 1):
                for filling in fillings:
                    echo_row(row.label, mask, filling.score, filling.token, filling.text)
