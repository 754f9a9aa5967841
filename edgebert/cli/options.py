"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from edgebert.cli.request import Request
from edgebert.cli.text_input import Errors

F = TypeVar("F", bound=Callable[..., Any])
Long = Literal["cut", "split", "refuse"]

FOLDER = click.Path(path_type=Path)

bundle_argument: Callable[[F], F] = click.argument("bundle", type=FOLDER)
json_option: Callable[[F], F] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, for programs, instead of text."
)
force_option: Callable[[F], F] = click.option(
    "--force", is_flag=True, help="Replace the destination if it is there; the old one stays until the new is complete."
)
pickle_option: Callable[[F], F] = click.option(
    "--allow-pickle",
    is_flag=True,
    help="Read weights from pytorch_model.bin where there are no safetensors. It is read with torch's weights_only, "
    "which builds tensors and nothing else; still, a pickle is a program: allow it from a source you trust.",
)


def top_k_option(default: int | None, what: str) -> Callable[[F], F]:
    """Return ``--top-k``: how many results to print, all unless there is a default."""
    return click.option(
        "--top-k", type=click.IntRange(min=1), default=default, show_default=True if default else "all", help=what
    )


def stride_option(default: str) -> Callable[[F], F]:
    """Return ``--stride``."""
    return click.option(
        "--stride",
        type=click.IntRange(min=0),
        show_default=default,
        help="How many tokens a window shares with the one before it.",
    )


def engine_options(function: F) -> F:
    """Add ``--device`` and ``--threads``: where, and how wide, an engine runs."""
    device = click.option(
        "--device",
        default="cpu",
        metavar="cpu|cuda|cuda:N|auto",
        help="Where to run. auto takes the GPU if it works, and says so if it does not.",
    )
    threads = click.option(
        "--threads",
        type=click.IntRange(min=1),
        show_default="all CPUs that this process may use",
        help="Number of threads.",
    )
    return device(threads(function))


def language_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add ``--source-language`` and ``--target-language``, and hand on those that were given, as ``languages``."""

    @functools.wraps(function)
    def gather(source_language: str | None, target_language: str | None, **others: Any) -> None:
        given = {"source_language": source_language, "target_language": target_language}
        function(languages={name: value for name, value in given.items() if value is not None}, **others)

    source, target = (
        click.option(
            f"--{side}-language",
            metavar="CODE",
            show_default="the bundle's",
            help=f"Language {way}, for bundles of several: a code that 'edgebert info' shows.",
        )
        for side, way in (("source", "of the text"), ("target", "to translate into"))
    )
    decorated: Callable[..., None] = source(target(gather))
    return decorated


def texts_options(metavar: str) -> Callable[[F], F]:
    """Add the texts to run over: arguments, the lines of ``--input``, or those of standard input."""
    texts = click.argument("texts", nargs=-1, metavar=metavar)
    file = click.option(
        "--input",
        "file",
        type=FOLDER,
        metavar="FILE",
        show_default="standard input",
        help="Read texts, UTF-8, one a line.",
    )
    return lambda function: texts(file(function))


def length_options(long: Long) -> list[Callable[[F], F]]:
    """Return what can be said about texts that are too long."""
    tokens = {"cut": "Where a text is cut, in tokens.", "split": "Length of a window, in tokens."}
    if long == "refuse":
        return []
    limit = click.option("--max-tokens", type=click.IntRange(min=1), show_default="the bundle's", help=tokens[long])
    strict = click.option("--no-truncate", is_flag=True, help="Fail if a text is longer, instead of cutting it.")
    return [limit, strict] if long == "cut" else [limit]


def request_options(*, json_help: str, long: Long = "cut") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add what every command that runs an engine takes, and hand it to the command as a :class:`Request`.

    ``long`` says what is done with a text that is too long: it is cut, split into windows, or refused.
    """
    options = [
        click.option("--json", "as_json", is_flag=True, help=json_help),
        *length_options(long),
        click.option(
            "--max-batch-tokens",
            type=click.IntRange(min=1),
            show_default="the engine's",
            help="Size of a batch, in tokens with padding. Smaller takes less memory.",
        ),
        click.option(
            "--errors",
            type=click.Choice(["strict", "replace"]),
            default="strict",
            help="What to do with text that is not valid Unicode: fail, or put U+FFFD in its place.",
        ),
        engine_options,
    ]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        decorated = gathering(function)
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def gathering(function: Callable[..., None]) -> Callable[..., None]:
    """Return a callback that makes a :class:`Request` of the shared options."""

    @functools.wraps(function)
    def gather(
        bundle: Path,
        device: str,
        threads: int | None,
        as_json: bool,
        max_batch_tokens: int | None,
        errors: Errors,
        no_truncate: bool | None = None,
        texts: tuple[str, ...] = (),
        file: Path | None = None,
        **others: Any,
    ) -> None:
        if texts and file:
            raise click.UsageError("Give texts as arguments or with --input, not both.")
        keywords = {"max_batch_tokens": max_batch_tokens, "encoding_errors": errors}
        if "max_tokens" in others:
            keywords["max_tokens"] = others.pop("max_tokens")
        if no_truncate is not None:
            keywords["truncate"] = not no_truncate
        verb = click.get_current_context().info_name or ""
        function(Request(verb, bundle, device, threads, as_json, errors, keywords, texts, file), **others)

    return gather
