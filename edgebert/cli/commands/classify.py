"""``edgebert classify``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edgebert.cli.batch_runner import reading
from edgebert.cli.errors import Failure
from edgebert.cli.logging_options import Command
from edgebert.cli.options import bundle_argument, request_options, texts_options, top_k_option
from edgebert.cli.request import Request
from edgebert.cli.result_rows import echo_object, echo_row
from edgebert.cli.text_input import split_pairs

if TYPE_CHECKING:
    from edgebert_runtime import Classification, Classifier

THRESHOLD = 0.5


@click.command(cls=Command)
@bundle_argument
@texts_options("[TEXTS]...")
@click.option("--pairs", is_flag=True, help="Take two texts, with a tab between them, from each line or argument.")
@top_k_option(None, "How many labels to print at most. A bundle that tells one label for a text prints 1 by default.")
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    show_default=str(THRESHOLD),
    help="Lowest score of a label that is printed, for bundles where a text can have several labels.",
)
@request_options(json_help="Write a JSON object a line: index, label, score, scores of all labels, truncated.")
def classify(request: Request, pairs: bool, top_k: int | None, threshold: float | None) -> None:
    r"""Label TEXTS, or each line of standard input.

    \b
    Example:
        edgebert classify sentiment/ "A fine film."
        edgebert classify topics/ --threshold 0.3 --input texts.txt
        printf 'A man eats.\tSomebody eats.\n' | edgebert classify nli/ --pairs --json

    Prints a line for each text, in order, with tabs between label, score, next label, next score and so on, best
    first. If a text can have several labels, the line has those that reach the threshold, and is empty if none does.
    If the bundle estimates numbers, the line has these. With --json there are always the scores of all labels. Bundles
    of the task next-sentence need --pairs; their labels are is_next and not_next.
    """
    with reading(request) as texts:
        engine: Classifier = request.load()
        check_options(request, engine, pairs, top_k, threshold)

        def compute(part: list[str]) -> list[Classification]:
            firsts, seconds = split_pairs(part, "--pairs") if pairs else (part, None)
            return list(engine.stream(firsts, seconds, **request.keywords))

        for index, found in texts.each(compute):
            if request.as_json:
                scores = dict(zip(engine.labels, found.scores.tolist(), strict=True))
                echo_object(
                    {
                        "index": index,
                        "label": found.label,
                        "score": found.score,
                        "scores": scores,
                        "truncated": bool(found.truncated),
                    }
                )
            elif engine.problem_type == "regression":
                echo_row(*found.scores)
            else:
                echo_row(*best(found, engine, top_k, THRESHOLD if threshold is None else threshold))
            texts.cut += bool(found.truncated)


def check_options(
    request: Request, engine: Classifier, pairs: bool, top_k: int | None, threshold: float | None
) -> None:
    """Refuse options that this bundle cannot follow."""
    name = click.format_filename(request.bundle)
    if engine.bundle.manifest.task == "next-sentence" and not pairs:
        raise Failure(f"{name} tells whether one text follows another; give --pairs, and a tab between the two")
    if top_k is not None and engine.problem_type == "regression":
        raise Failure(f"{name} estimates numbers, and all are printed; leave out --top-k")
    if threshold is not None and engine.problem_type != "multi_label":
        raise Failure(f"{name} does not give several labels to a text; leave out --threshold, or give --top-k")


def best(found: Classification, engine: Classifier, top_k: int | None, threshold: float) -> list[object]:
    """Return the labels to print, each with its score after it, best first."""
    order = (-found.scores).argsort(kind="stable").tolist()
    if engine.problem_type == "multi_label":
        order = [i for i in order if found.scores[i] >= threshold]
    elif top_k is None:
        top_k = 1
    return [cell for i in order[:top_k] for cell in (engine.labels[i], found.scores[i])]
