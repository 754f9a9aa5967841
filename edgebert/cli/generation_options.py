"""The options of generative models: those of transformers' ``generate``, with dashes, and the printing of results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from edgebert.cli.batch_runner import TEXTS_AT_ONCE, Reading, reading
from edgebert.cli.errors import Failure
from edgebert.cli.files.rows import Row
from edgebert.cli.param_types import Choice
from edgebert.cli.request import Request
from edgebert.cli.result_rows import echo_object, echo_row, echo_text, exact

if TYPE_CHECKING:
    from edgebert_runtime import Generation, Generator, Translator

F = TypeVar("F", bound=Callable[..., Any])

INTEGER, REAL, TEXTS, FLAG = click.INT, click.FLOAT, click.STRING, click.BOOL
STOPPING = Choice(["false", "true", "never"])
STOPPING_VALUES = {"false": False, "true": True}
DEFAULTS = {"max_new_tokens": "the bundle's, or 128", "seed": "random", "stop": "none"}

# The name in the library, the type, and the help. The library checks values and whether they have an effect. Options
# that are not given are the bundle's.
TABLE: tuple[tuple[str, click.ParamType[Any], str], ...] = (
    ("max_new_tokens", INTEGER, "Maximum number of new tokens."),
    ("min_new_tokens", INTEGER, "Minimum number of new tokens."),
    ("max_length", INTEGER, "Maximum number of tokens, those before the first new one included."),
    ("stop", TEXTS, "Stop string: end before this text. May be given several times."),
    ("repetition_penalty", REAL, "Above 1, tokens that occurred before are less likely."),
    ("no_repeat_ngram_size", INTEGER, "Never repeat an n-gram of this size."),
    ("prompt_lookup", FLAG, "Prompt lookup decoding: draft tokens from earlier text. The same text, sooner."),
    ("num_return_sequences", INTEGER, "Results for each text, with --do-sample or --num-beams."),
    ("num_beams", INTEGER, "Beam search with this many beams."),
    ("length_penalty", REAL, "Beam search: the score is divided by length ** penalty; more gives longer text."),
    (
        "early_stopping",
        STOPPING,
        "Beam search stops: true = once num_beams hypotheses are finished; false = when a better one is unlikely; "
        "never = when none can be better.",
    ),
    ("do_sample", FLAG, "Sample tokens, instead of taking the most likely ones."),
    ("temperature", REAL, "Sampling: below 1 sharpens the distribution, above 1 flattens it."),
    ("top_k", INTEGER, "Sampling: keep the k most likely tokens."),
    ("top_p", REAL, "Sampling: keep the most likely tokens that together have this probability (nucleus)."),
    ("min_p", REAL, "Sampling: drop tokens below this share of the most likely one's probability."),
    ("typical_p", REAL, "Sampling: keep the most typical tokens that together have this probability."),
    ("seed", INTEGER, "Sampling: the same seed gives the same text."),
)


def generation_options(without: tuple[str, ...] = (), **defaults: str) -> Callable[[F], F]:
    """Add the options of the table but ``without``; :func:`given_options` returns those on the command line.

    ``defaults`` are the words for defaults that differ from those of the table.
    """

    def decorate(function: F) -> F:
        for name, kind, text in reversed([row for row in TABLE if row[0] not in without]):
            flags = f"--{name.replace('_', '-')}"
            if name == "do_sample":
                flags += "/--no-do-sample"
            default = {**DEFAULTS, **defaults}.get(name, "the bundle's")
            values = {"type": kind, "multiple": kind is TEXTS, "show_default": default} if kind is not FLAG else {}
            add = click.option(flags, name, default=None, is_flag=kind is FLAG or None, help=text, **values)
            function = add(function)
        return function

    return decorate


def given_options() -> dict[str, Any]:
    """Return the generation options that stand on the command line.

    Raises:
        InputError: for a value that an option can never have.
    """
    from edgebert_runtime.generation.option_parsers import CHECKS

    ctx = click.get_current_context()
    names = [name for name, *_ in TABLE if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    options = {name: STOPPING_VALUES.get(ctx.params[name], ctx.params[name]) for name in names}
    for name in CHECKS.keys() & options.keys():
        CHECKS[name](name, options[name])
    return options


def write_texts(request: Request, one_text: bool, stream: bool, options: dict[str, Any], item: str) -> None:
    """Print the results of the engine's method of the command's name; ``item`` is the word for one text."""
    check_options(request, one_text, stream, options, item)
    with reading(request, one_text=one_text) as texts:
        engine = request.load()
        if stream:
            keywords = {name: value for name, value in request.keywords.items() if name != "max_batch_tokens"}
            print_stream(engine, texts, {**options, **keywords}, item)
            return
        options = with_count_of_bundle(options, engine)
        write, keywords = getattr(engine, request.verb), {**options, **request.keywords}
        for row, result in texts.each(lambda part: write(part, **keywords), max_texts=TEXTS_AT_ONCE):
            print_results(request, row, result, verbatim=one_text or len(request.texts) == 1)


def with_count_of_bundle(options: dict[str, Any], engine: Generator | Translator) -> dict[str, Any]:
    """Return the options of a call with the number of results that the bundle asks for beside them."""
    from edgebert_runtime.generation.option_parsers import CHECKS
    from edgebert_runtime.generation.options import Options

    search = {name: value for name, value in options.items() if name in CHECKS}
    count = Options.read(engine.decoding, **search).num_return_sequences
    return {**options, "num_return_sequences": count} if count > 1 else options


def check_options(request: Request, one_text: bool, stream: bool, options: dict[str, Any], item: str) -> None:
    """Refuse options that exclude each other."""
    if one_text and request.texts:
        raise click.UsageError(
            f"Give {item.upper()}S or --one-text, not both: --one-text is for --input and standard input."
        )
    if one_text and request.input_format != "text":
        raise click.UsageError("Give --one-text or --input-format, not both: one text is all of a file.")
    if not stream:
        return
    if request.as_json:
        raise click.UsageError("Give --json or --stream, not both: --stream prints text.")
    if len(request.texts) > 1:
        raise click.UsageError(f"--stream takes one {item}, not {len(request.texts)}.")
    for name in ("num_beams", "num_return_sequences"):
        if options.get(name, 1) > 1:
            raise click.UsageError(f"Give --{name.replace('_', '-')} or --stream, not both.")
    if request.keywords["max_batch_tokens"] is not None:
        raise click.UsageError(f"Give --max-batch-tokens or --stream, not both: one {item} makes no batches.")


def print_stream(engine: Generator | Translator, texts: Reading, options: dict[str, Any], item: str) -> None:
    """Print the result for the only text while it is generated."""
    _, prompts = texts.whole()
    if len(prompts) != 1:
        raise Failure(f"--stream takes one {item}, not {len(prompts)}; --one-text makes one of many lines")
    echo_text(engine.stream(prompts[0], **options))


def print_results(request: Request, row: Row, result: Generation | list[Generation], verbatim: bool) -> None:
    """Print the results for the text of a row; a single one may be printed with its ends of lines."""
    several = isinstance(result, list)
    for sequence, generation in enumerate(result if isinstance(result, list) else [result]):
        if request.as_json:
            echo_object(row, {"sequence": sequence, **exact(generation)} if several else generation)
        elif verbatim and not several:
            echo_text([generation.text])
        else:
            echo_row(generation.text)
