"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from edgebert.cli.files.input_formats import INPUT_FORMATS, WITH_FIELDS, format_of
from edgebert.cli.param_types import Choice, DeviceType
from edgebert.cli.request import JSON_FILES, VECTOR_FILES, Request
from edgebert.cli.text_input import EncodingErrors

F = TypeVar("F", bound=Callable[..., Any])
# The treatment of a text that is too long: cut, split into windows, or refused.
LongTexts = Literal["cut", "split", "refuse"]

FOLDER = click.Path(path_type=Path)
OUTPUT_HELP = "Write results to a file, which appears when it is complete; .jsonl is JSON Lines."
# The shared options that a request holds under their own names.
REQUEST_OPTIONS = {field.name for field in fields(Request)}


bundle_argument: Callable[[F], F] = click.argument("bundle", type=FOLDER)
json_option: Callable[[F], F] = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
force_option: Callable[[F], F] = click.option(
    "--force", is_flag=True, help="Replace the destination; the old one stays until the new one is complete."
)
reference_option: Callable[[F], F] = click.option(
    "--reference",
    type=Choice(["transformers", "sentence-transformers"]),
    show_default="none",
    help="Also compare the results of texts with those of this library, which has to be installed.",
)
pickle_option: Callable[[F], F] = click.option(
    "--allow-pickle",
    is_flag=True,
    help="Read weights from pytorch_model.bin where there are no safetensors, with weights_only of torch. "
    "A pickle is a program: allow it from a source you trust.",
)


def top_k_option(default: int | None, text: str) -> Callable[[F], F]:
    """Return ``--top-k``, the number of results; all unless there is a default."""
    return click.option(
        "--top-k", type=click.IntRange(min=1), default=default, show_default=True if default else "all", help=text
    )


def stride_option(default: str) -> Callable[[F], F]:
    """Return ``--stride``."""
    return click.option(
        "--stride",
        type=click.IntRange(min=0),
        show_default=default,
        help="Tokens that a window shares with the one before it.",
    )


def engine_options(function: F) -> F:
    """Add ``--device`` and ``--threads``."""
    device = click.option(
        "--device",
        type=DeviceType(),
        default="cpu",
        metavar="cpu|cuda|cuda:N|auto",
        help="Device. auto takes the GPU if it works, and logs why if it does not.",
    )
    threads = click.option(
        "--threads",
        type=click.IntRange(min=1),
        show_default="all CPUs that this process may use",
        help="Number of threads.",
    )
    return device(threads(function))


def language_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add ``--source-language`` and ``--target-language``; the command gets those given as ``languages``."""

    @functools.wraps(function)
    def gather(source_language: str | None, target_language: str | None, **options: Any) -> None:
        languages = {"source_language": source_language, "target_language": target_language}
        function(languages={name: code for name, code in languages.items() if code is not None}, **options)

    source, target = (
        click.option(
            f"--{side}-language",
            metavar="CODE",
            show_default="the bundle's",
            help=f"Language {role}: a code that 'edgebert info' lists.",
        )
        for side, role in (("source", "of the text"), ("target", "to translate into"))
    )
    decorated: Callable[..., None] = source(target(gather))
    return decorated


def texts_options(metavar: str, content: str = "texts") -> Callable[[F], F]:
    """Add the texts: arguments, the rows of ``--input``, or those of standard input."""
    texts = click.argument("texts", nargs=-1, metavar=metavar)
    return lambda function: texts(input_options("text", content)(function))


def input_options(fields: str, content: str, file_default: str = "standard input") -> Callable[[F], F]:
    """Add the options about a file of rows; ``fields`` are the names of those that are read by default."""
    options = [
        click.option(
            "--input",
            "file",
            type=FOLDER,
            metavar="FILE",
            show_default=file_default,
            help=f"Read {content} from a file; - is standard input.",
        ),
        click.option(
            "--input-format",
            type=Choice(INPUT_FORMATS),
            show_default="by the suffix of FILE, or text",
            help="text: one a line. jsonl: JSON Lines. csv and tsv: with a header. nul: a NUL behind each. parquet.",
        ),
        click.option(
            "--field",
            "fields",
            multiple=True,
            metavar="NAME",
            show_default=fields,
            help="Field or column with the text; a.b leads into objects. Several times where a row has several texts.",
        ),
        click.option(
            "--id",
            "id_field",
            metavar="NAME",
            show_default="none",
            help="Field or column with the id of a row, for the results.",
        ),
    ]
    return lambda function: functools.reduce(lambda decorated, option: option(decorated), reversed(options), function)


def length_options(long_texts: LongTexts) -> list[Callable[[F], F]]:
    """Return the options about texts that are too long."""
    texts = {"cut": "Where a text is cut, in tokens.", "split": "Length of a window, in tokens."}
    if long_texts == "refuse":
        return []
    limit = click.option(
        "--max-tokens", type=click.IntRange(min=1), show_default="the bundle's", help=texts[long_texts]
    )
    strict = click.option("--no-truncate", is_flag=True, help="Fail if a text is too long, instead of cutting it.")
    return [limit, strict] if long_texts == "cut" else [limit]


def request_options(
    *, json_help: str, long_texts: LongTexts = "cut", output_help: str = OUTPUT_HELP
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of every command that runs an engine; the command gets them as a :class:`Request`."""
    options = [
        click.option("--json", "as_json", is_flag=True, help=json_help),
        click.option("--output", type=FOLDER, metavar="FILE", show_default="standard output", help=output_help),
        *length_options(long_texts),
        click.option(
            "--max-batch-tokens",
            type=click.IntRange(min=1),
            show_default="the engine's",
            help="Size of a batch, in tokens with padding. Smaller takes less memory.",
        ),
        click.option(
            "--encoding-errors",
            type=Choice(["strict", "replace"]),
            default="strict",
            help="Text that is not valid Unicode: strict fails; replace puts U+FFFD in its place.",
        ),
        click.option(
            "--special-tokens",
            is_flag=True,
            help="Read special tokens that stand in a text, such as [SEP], as tokens. For texts that you trust.",
        ),
        engine_options,
    ]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        decorated = as_request(function)
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def as_request(function: Callable[..., None]) -> Callable[..., None]:
    """Return a callback that makes a :class:`Request` of the shared options."""

    @functools.wraps(function)
    def gather(
        max_batch_tokens: int | None,
        encoding_errors: EncodingErrors,
        special_tokens: bool,
        no_truncate: bool | None = None,
        **options: Any,
    ) -> None:
        keywords: dict[str, Any] = {"max_batch_tokens": max_batch_tokens, "encoding_errors": encoding_errors}
        if special_tokens:
            keywords["special_tokens"] = True
        if "max_tokens" in options:
            keywords["max_tokens"] = options.pop("max_tokens")
        if no_truncate is not None:
            keywords["truncate"] = not no_truncate
        shared = {name: options.pop(name) for name in REQUEST_OPTIONS if name in options}
        shared["input_format"] = shared.get("input_format") or format_of(shared.get("file"))
        verb = click.get_current_context().info_name or ""
        request = Request(verb=verb, encoding_errors=encoding_errors, keywords=keywords, **shared)
        function(checked(request), **options)

    return gather


def checked(request: Request) -> Request:
    """Return a request whose options about input and output fit together.

    Raises:
        UsageError: naming those that do not.
    """
    has_fields = request.input_format in WITH_FIELDS and not request.texts
    if request.texts and request.file:
        raise click.UsageError("Give texts as arguments or with --input, not both.")
    if request.input_format == "parquet" and str(request.file or "-") == "-":
        raise click.UsageError("Parquet is read from a file: give its name with --input.")
    for option, value in (("--field", request.fields), ("--id", request.id_field)):
        if value and not has_fields:
            raise click.UsageError(f"{option} is for rows with fields: an input format of {', '.join(WITH_FIELDS)}.")
    if request.output is None:
        return request
    if str(request.output) == "-":
        return replace(request, output=None)
    suffix = request.output.suffix.lower()
    if suffix in VECTOR_FILES:
        if request.verb != "embed":
            raise click.UsageError(f"{suffix} is for vectors: edgebert {request.verb} writes lines, or .jsonl.")
        if request.as_json:
            raise click.UsageError(f"Give --json or --output FILE{suffix}, not both.")
    elif request.verb == "embed" and not (suffix in JSON_FILES or request.as_json):
        stem = request.output.stem or "vectors"
        raise click.UsageError(f"--output writes vectors: call it {stem}.npy, {stem}.parquet or {stem}.jsonl.")
    return replace(request, as_json=request.as_json or suffix in JSON_FILES)
