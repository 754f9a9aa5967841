"""``edgebert generate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edgebert.cli.errors import Failure
from edgebert.cli.generation import asked, generation_options
from edgebert.cli.logs import Command
from edgebert.cli.options import bundle_argument, request_options, texts_options
from edgebert.cli.reading import AT_ONCE, Reading, reading
from edgebert.cli.results import echo_object, echo_row, echo_text, exact
from edgebert.cli.verbs import Request

if TYPE_CHECKING:
    from edgebert_runtime import Generation, Generator


@click.command(cls=Command)
@bundle_argument
@texts_options("[PROMPTS]...")
@click.option("--whole", is_flag=True, help="Take all of --input or standard input as one prompt of many lines.")
@click.option("--stream", is_flag=True, help="Print the text while it is made. For one prompt, without beams.")
@generation_options
@request_options(
    json_help="Write a JSON object a line for each result: index of the prompt, text, tokens, token_logprobs, score, "
    "finish_reason; with several results for a prompt, sequence as well.",
    long="refuse",
)
def generate(request: Request, whole: bool, stream: bool, **_options: Any) -> None:
    r"""Continue PROMPTS, or each line of standard input.

    \b
    Example:
        edgebert generate gpt2/ "The state of the union is" --stream
        edgebert generate gpt2/ "Once" --sample --top-p 0.9 --seed 1 --num-return-sequences 3
        edgebert generate gpt2/ --input prompts.txt --num-beams 4 --max-new-tokens 40 --json
        edgebert generate gpt2/ --whole --stop $'\n\n' < question.txt

    Prints what was added, without the prompt. For one PROMPT, or with --whole or --stream, that is the text as it is,
    with an end of line after it. Otherwise it is a line for each result, in the order of the prompts, those of one
    prompt best first, with spaces where the text has ends of lines; --json keeps these. Options of generation that
    are not given are what 'edgebert info' shows as decoding; without --sample and --num-beams, and if the bundle does
    not say otherwise, each token is the most likely one.
    """
    options = asked()
    check_options(request, whole, stream, options)
    with reading(request, whole) as texts:
        engine: Generator = request.load()
        if stream:
            print_stream(engine, texts, {**options, "errors": request.errors})
            return
        options |= request.keywords
        for index, found in texts.each(lambda prompts: engine.generate(prompts, **options), AT_ONCE):
            if isinstance(found, list):
                for sequence, one in enumerate(found):
                    print_result(request, {"index": index, "sequence": sequence}, one)
            else:
                print_result(request, {"index": index}, found, as_it_is=whole or len(request.texts) == 1)


def check_options(request: Request, whole: bool, stream: bool, options: dict[str, Any]) -> None:
    """Refuse options that exclude each other."""
    if whole and request.texts:
        raise click.UsageError("Give PROMPTS or --whole, not both: --whole is for --input and standard input.")
    if not stream:
        return
    if request.as_json:
        raise click.UsageError("Give --json or --stream, not both: what --stream prints is text.")
    if len(request.texts) > 1:
        raise click.UsageError(f"--stream takes one prompt, not {len(request.texts)}.")
    for name in ("num_beams", "num_return_sequences"):
        if options.get(name, 1) > 1:
            raise click.UsageError(f"Give --{name.replace('_', '-')} or --stream, not both.")
    if request.keywords["max_batch_tokens"] is not None:
        raise click.UsageError("Give --max-batch-tokens or --stream, not both: one prompt makes no batches.")


def print_stream(engine: Generator, texts: Reading, options: dict[str, Any]) -> None:
    """Print the continuation of the only prompt while it is made."""
    window = texts.whole()
    if len(window.texts) != 1:
        raise Failure(f"--stream takes one prompt, not {len(window.texts)}; --whole makes one of many lines")
    with window.naming():
        echo_text(engine.stream(window.texts[0], **options))


def print_result(request: Request, place: dict[str, int], one: Generation, as_it_is: bool = False) -> None:
    """Print a result."""
    if request.as_json:
        echo_object({**place, **exact(one)})
    elif as_it_is:
        echo_text([one.text])
    else:
        echo_row(one.text)
