"""``edgebert answer``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgebert.cli.batch_runner import TEXTS_AT_ONCE, reading
from edgebert.cli.errors import input_name
from edgebert.cli.files.rows import Fields
from edgebert.cli.logging_options import Command
from edgebert.cli.options import FOLDER, bundle_argument, input_options, request_options, stride_option, top_k_option
from edgebert.cli.request import Request
from edgebert.cli.result_rows import echo_object, echo_row
from edgebert.cli.text_input import opened, read_whole

if TYPE_CHECKING:
    from edgebert_runtime import Answer, Answerer
    from edgebert_runtime.errors import EdgebertError

QUESTION_AND_CONTEXT = Fields(("question", "context"), "edgebert answer")


@click.command(cls=Command)
@bundle_argument
@click.argument("texts", nargs=-1, metavar="[QUESTIONS]...")
@input_options("question and context", "questions with their contexts", "none")
@click.option("--context", metavar="TEXT", show_default="standard input", help="The text to search.")
@click.option(
    "--context-file", type=FOLDER, metavar="FILE", show_default="none", help="The file of the context, UTF-8."
)
@top_k_option(1, "Answers to print for each question.")
@click.option(
    "--max-answer-tokens", type=click.IntRange(min=1), default=15, help="Maximum length of an answer, in tokens."
)
@click.option("--no-answer", is_flag=True, help="Allow the result that the context holds no answer.")
@stride_option("a quarter of a window, at most 128")
@request_options(
    json_help="Write a JSON object a line for each question: index, answers with text, score, start, end.",
    long_texts="split",
)
def answer(
    request: Request,
    context: str | None,
    context_file: Path | None,
    top_k: int,
    max_answer_tokens: int,
    no_answer: bool,
    stride: int | None,
) -> None:
    r"""Find answers to QUESTIONS in a text, the context.

    \b
    Example:
        edgebert answer squad/ "Who wrote it?" --context "Ada Lovelace wrote the first program."
        edgebert answer squad/ "Who wrote it?" "When?" --top-k 3 < article.txt
        edgebert answer squad/ --input questions.jsonl --json

    Prints a line for each answer, in the order of the questions, best first: number of the question from 1 or its --id,
    score, start, end and answer, with tabs between. Start and end count characters of the context from 0. With
    --no-answer, a line with an empty answer, from 0 to 0, stands for none. A long context is read in windows.

    With --input, each row has a question and its context: two fields, or a line with a tab between.
    """
    check_options(request, context, context_file)
    arguments = [(question, read_context(request, context, context_file)) for question in request.texts[:1]]
    arguments += [(question, arguments[0][1]) for question in request.texts[1:]]
    with reading(request, arguments=arguments, name_argument=text_name) as texts:
        engine: Answerer = request.load()
        options = {"top_k": top_k, "max_answer_tokens": max_answer_tokens, "stride": stride, **request.keywords}

        def compute(questions: list[str], contexts: list[str]) -> list[list[Answer]]:
            pairs = list(zip(questions, contexts, strict=True))
            return engine.answer_many(pairs, handle_impossible_answer=no_answer, **options)

        for row, answers in texts.each(compute, QUESTION_AND_CONTEXT, TEXTS_AT_ONCE):
            if request.as_json:
                echo_object(row, {"answers": answers})
                continue
            for span in answers:
                echo_row(row.label, span.score, span.start, span.end, span.text)


def check_options(request: Request, context: str | None, file: Path | None) -> None:
    """Refuse options that exclude each other, or need each other."""
    if context is not None and file is not None:
        raise click.UsageError("Give --context or --context-file, not both.")
    if not request.texts and request.file is None:
        raise click.UsageError("Give QUESTIONS with their context, or --input.")
    if not request.texts and (context is not None or file is not None):
        raise click.UsageError("Give QUESTIONS beside --context or --context-file: rows of --input have their own.")


def read_context(request: Request, context: str | None, file: Path | None) -> str:
    """Return the context: the option, its file, or standard input."""
    if context is not None:
        return context
    with opened(file, "the context", "of any length", "--context") as (stream, name):
        return read_whole(stream, name, request.encoding_errors)


def text_name(error: EdgebertError) -> str:
    """Return the words for a question, or for a question with its context."""
    if error.index is None or error.item == "question":
        return input_name(error)
    return f"question {error.index + 1} with its context"
