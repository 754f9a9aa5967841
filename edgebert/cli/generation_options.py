"""What commands that write text share: the options of transformers' ``generate``, with dashes, and how they print."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from edgebert.cli.batch_runner import AT_ONCE, Reading, reading
from edgebert.cli.errors import Failure, name_inputs
from edgebert.cli.request import Request
from edgebert.cli.result_rows import echo_object, echo_row, echo_text, exact

if TYPE_CHECKING:
    from edgebert_runtime import Generation, Generator, Translator

F = TypeVar("F", bound=Callable[..., Any])

WHOLE, REAL, TEXTS, FLAG = click.INT, click.FLOAT, click.STRING, click.BOOL
STOPPING = click.Choice(["false", "true", "never"])
STOPPING_VALUES = {"false": False, "true": True}
DEFAULTS = {"max_new_tokens": "the bundle's, or 128", "seed": "another one each time", "stop": "none"}

# The library's name of each option, its type, and what it does. What a value can be, and whether it has an effect, is
# for the library to say; options that are not given are the bundle's.
TABLE: tuple[tuple[str, click.ParamType[Any], str], ...] = (
    ("max_new_tokens", WHOLE, "How many tokens to add at most."),
    ("min_new_tokens", WHOLE, "How many tokens to add at least."),
    ("max_length", WHOLE, "How many tokens there may be at most, those before the first new one counted."),
    ("stop", TEXTS, "End before this text. May be given several times."),
    ("repetition_penalty", REAL, "More than 1 makes tokens that were there before less likely."),
    ("no_repeat_ngram_size", WHOLE, "Never repeat so many tokens in a row."),
    ("prompt_lookup", FLAG, "Guess what repeats itself, and check it many tokens at once: the same text, sooner."),
    ("num_return_sequences", WHOLE, "How many results to give for each, with --sample or --num-beams."),
    ("num_beams", WHOLE, "Search with so many beams for the most likely text."),
    ("length_penalty", REAL, "Beams: the score is divided by the length to this power; more makes longer text."),
    ("early_stopping", STOPPING, "Beams: end when there are as many, or better ones are unlikely, or impossible."),
    ("do_sample", FLAG, "Draw tokens at random, instead of taking the most likely ones."),
    ("temperature", REAL, "Sampling: less than 1 prefers what is likely, more than 1 evens out."),
    ("top_k", WHOLE, "Sampling: draw from the so many most likely tokens."),
    ("top_p", REAL, "Sampling: draw from the most likely tokens that together have this probability."),
    ("min_p", REAL, "Sampling: leave out what is less likely than this share of the most likely token."),
    ("typical_p", REAL, "Sampling: draw from the most typical tokens that together have this probability."),
    ("seed", WHOLE, "Sampling: the same seed gives the same text."),
)


def generation_options(without: tuple[str, ...] = (), **defaults: str) -> Callable[[F], F]:
    """Add the options in the table but ``without``; :func:`asked` returns those that the user gave.

    ``defaults`` say what holds for some of them if they are not given, where it is not what the table says.
    """

    def decorate(function: F) -> F:
        for name, kind, text in reversed([row for row in TABLE if row[0] not in without]):
            flags = "--sample/--no-sample" if name == "do_sample" else f"--{name.replace('_', '-')}"
            default = {**DEFAULTS, **defaults}.get(name, "the bundle's")
            values = {"type": kind, "multiple": kind is TEXTS, "show_default": default} if kind is not FLAG else {}
            add = click.option(flags, name, default=None, is_flag=kind is FLAG or None, help=text, **values)
            function = add(function)
        return function

    return decorate


def asked() -> dict[str, Any]:
    """Return the generation options that stand on the command line.

    Raises:
        InputError: for a value that an option can never have.
    """
    from edgebert_runtime.generation.option_parsers import CHECKS

    ctx = click.get_current_context()
    names = [name for name, *_ in TABLE if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    given = {name: STOPPING_VALUES.get(ctx.params[name], ctx.params[name]) for name in names}
    for name in CHECKS.keys() & given.keys():
        CHECKS[name](name, given[name])
    return given


def write_texts(request: Request, whole: bool, stream: bool, options: dict[str, Any], what: str) -> None:
    """Print what the engine's method of the command's name makes of each text, which users call ``what``."""
    check_options(request, whole, stream, options, what)
    with reading(request, whole) as texts:
        engine = request.load()
        if stream:
            print_stream(engine, texts, {**options, "encoding_errors": request.errors}, what)
            return
        write, asked = getattr(engine, request.verb), {**options, **request.keywords}
        found: list[Generation] | Generation
        for index, found in texts.each(lambda part: write(part, **asked), AT_ONCE):
            print_results(request, index, found, as_it_is=whole or len(request.texts) == 1)


def check_options(request: Request, whole: bool, stream: bool, options: dict[str, Any], what: str) -> None:
    """Refuse options that exclude each other; ``what`` is what users call a text."""
    if whole and request.texts:
        raise click.UsageError(f"Give {what.upper()}S or --whole, not both: --whole is for --input and standard input.")
    if not stream:
        return
    if request.as_json:
        raise click.UsageError("Give --json or --stream, not both: what --stream prints is text.")
    if len(request.texts) > 1:
        raise click.UsageError(f"--stream takes one {what}, not {len(request.texts)}.")
    for name in ("num_beams", "num_return_sequences"):
        if options.get(name, 1) > 1:
            raise click.UsageError(f"Give --{name.replace('_', '-')} or --stream, not both.")
    if request.keywords["max_batch_tokens"] is not None:
        raise click.UsageError(f"Give --max-batch-tokens or --stream, not both: one {what} makes no batches.")


def print_stream(engine: Generator | Translator, texts: Reading, options: dict[str, Any], what: str) -> None:
    """Print what is made of the only text while it is made."""
    window = texts.whole()
    if len(window.texts) != 1:
        raise Failure(f"--stream takes one {what}, not {len(window.texts)}; --whole makes one of many lines")
    name_inputs(window.text_name)
    echo_text(engine.stream(window.texts[0], **options))


def print_results(request: Request, index: int, found: Generation | list[Generation], as_it_is: bool) -> None:
    """Print what is made of the text with this number; one result may be printed with its ends of lines."""
    several = isinstance(found, list)
    for sequence, one in enumerate(found if isinstance(found, list) else [found]):
        if request.as_json:
            place = {"index": index, "sequence": sequence} if several else {"index": index}
            echo_object({**place, **exact(one)})
        elif as_it_is and not several:
            echo_text([one.text])
        else:
            echo_row(one.text)
