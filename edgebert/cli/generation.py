"""The options of ``edgebert generate``: those of transformers' ``generate``, with dashes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from edgebert.cli.texts import in_options

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
    ("max_length", WHOLE, "How many tokens there may be at most, those of the prompt counted."),
    ("stop", TEXTS, "End before this text. May be given several times."),
    ("repetition_penalty", REAL, "More than 1 makes tokens that were there before less likely."),
    ("no_repeat_ngram_size", WHOLE, "Never repeat so many tokens in a row."),
    ("lookup", FLAG, "Guess what repeats itself, and check it many tokens at once: the same text, sooner."),
    ("num_return_sequences", WHOLE, "How many results to give for each prompt, with --sample or --num-beams."),
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


def generation_options(function: F) -> F:
    """Add the options in the table; :func:`asked` returns those that the user gave."""
    for name, kind, text in reversed(TABLE):
        flags = "--sample/--no-sample" if name == "do_sample" else f"--{name.replace('_', '-')}"
        default = DEFAULTS.get(name, "the bundle's")
        values = {"type": kind, "multiple": kind is TEXTS, "show_default": default} if kind is not FLAG else {}
        function = click.option(flags, name, default=None, is_flag=kind is FLAG or None, help=text, **values)(function)
    return function


def asked() -> dict[str, Any]:
    """Return the generation options that stand on the command line.

    Raises:
        UsageError: for a value that an option can never have.
    """
    from edgebert_runtime.decoding.option_checks import CHECKS
    from edgebert_runtime.errors import InputError

    ctx = click.get_current_context()
    names = [name for name, *_ in TABLE if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    given = {name: STOPPING_VALUES.get(ctx.params[name], ctx.params[name]) for name in names}
    try:
        for name in CHECKS.keys() & given.keys():
            CHECKS[name](name, given[name])
    except InputError as error:
        raise click.UsageError(in_options(str(error)), ctx) from error
    return given
