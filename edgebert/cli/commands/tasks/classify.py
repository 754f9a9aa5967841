"""``edgebert classify``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edgebert.cli.batch_runner import reading
from edgebert.cli.errors import Failure
from edgebert.cli.files.rows import TEXT, Fields
from edgebert.cli.logging_options import Command
from edgebert.cli.options import bundle_argument, request_options, texts_options, top_k_option
from edgebert.cli.request import Request
from edgebert.cli.result_rows import echo_object, echo_row

if TYPE_CHECKING:
    from edgebert_runtime import Classification, Classifier

THRESHOLD = 0.5
PAIR = Fields(("text", "pair"), "--pairs")


@click.command(cls=Command)
@bundle_argument
@texts_options("[TEXTS]...")
@click.option(
    "--pairs",
    is_flag=True,
    help="Read two texts from each row: the fields text and pair; from a line or argument, with a tab between.",
)
@top_k_option(None, "Labels to print at most. A single-label bundle prints 1 by default.")
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    show_default=str(THRESHOLD),
    help="Minimum score of a printed label, for multi-label bundles.",
)
@request_options(json_help="Write a JSON object a line: index, label, score, scores of all labels, truncated.")
def classify(request: Request, pairs: bool, top_k: int | None, threshold: float | None) -> None:
    r"""Label TEXTS, or each line of standard input.

    \b
    Example:
        edgebert classify sentiment/ "A fine film."
        edgebert classify topics/ --threshold 0.3 --input texts.txt
        printf 'A man eats.\tSomebody eats.\n' | edgebert classify nli/ --pairs --json

    Prints a line for each text, in order: labels and scores, best first, with tabs between. A multi-label bundle prints
    the labels that reach the threshold, perhaps none. A regression bundle prints its numbers. --json always has the
    scores of all labels. Bundles of the task next-sentence need --pairs; their labels are is_next and not_next.
    """
    with reading(request) as texts:
        engine: Classifier = request.load()
        check_options(request, engine, pairs, top_k, threshold)

        def compute(firsts: list[str], seconds: list[str] | None = None) -> list[Classification]:
            return list(engine.stream(firsts, seconds, **request.keywords))

        for row, result in texts.each(compute, PAIR if pairs else TEXT):
            if request.as_json:
                scores = dict(zip(engine.labels, result.scores.tolist(), strict=True))
                echo_object(
                    row,
                    {
                        "label": result.label,
                        "score": result.score,
                        "scores": scores,
                        "truncated": bool(result.truncated),
                    },
                )
            elif engine.problem_type == "regression":
                echo_row(*result.scores)
            else:
                echo_row(*best_labels(result, engine, top_k, THRESHOLD if threshold is None else threshold))
            texts.num_truncated += bool(result.truncated)


def check_options(
    request: Request, engine: Classifier, pairs: bool, top_k: int | None, threshold: float | None
) -> None:
    """Refuse options that this bundle cannot follow."""
    name = click.format_filename(request.bundle)
    if engine.bundle.manifest.task == "next-sentence" and not pairs:
        raise Failure(f"{name} classifies pairs of texts; give --pairs, and a tab between the two")
    if top_k is not None and engine.problem_type == "regression":
        raise Failure(f"{name} is a regression bundle, all numbers are printed; leave out --top-k")
    if threshold is not None and engine.problem_type != "multi_label":
        raise Failure(f"{name} is no multi-label bundle; leave out --threshold, or give --top-k")


def best_labels(result: Classification, engine: Classifier, top_k: int | None, threshold: float) -> list[object]:
    """Return the labels to print, each with its score after it, best first."""
    order = (-result.scores).argsort(kind="stable").tolist()
    if engine.problem_type == "multi_label":
        order = [i for i in order if result.scores[i] >= threshold]
    elif top_k is None:
        top_k = 1
    return [cell for i in order[:top_k] for cell in (engine.labels[i], result.scores[i])]
