"""``edgebert embed``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from edgebert.cli.logs import Command
from edgebert.cli.options import FOLDER, bundle_argument, engine_options
from edgebert.cli.output import count_progress
from edgebert.cli.texts import Errors, Window, argument_windows, file_size, line_windows
from edgebert.cli.vectors import NumpyFile, write_json, write_text


@click.command(cls=Command)
@bundle_argument
@click.argument("texts", nargs=-1)
@click.option(
    "--input", "file", type=FOLDER, metavar="FILE", show_default="standard input", help="Read texts, UTF-8, one a line."
)
@click.option(
    "--output", type=FOLDER, metavar="FILE.npy", help="Write float32 of shape (texts, dim) to a NumPy file, or nothing."
)
@click.option("--json", "as_json", is_flag=True, help="Write a JSON object a line: index, vector, tokens, truncated.")
@click.option(
    "--max-tokens", type=click.IntRange(min=1), show_default="the bundle's", help="Where a text is cut, in tokens."
)
@click.option("--no-truncate", is_flag=True, help="Fail if a text is longer, instead of cutting it.")
@click.option(
    "--max-batch-tokens",
    type=click.IntRange(min=1),
    show_default="the engine's",
    help="Size of a batch, in tokens with padding. Smaller takes less memory.",
)
@click.option(
    "--errors",
    type=click.Choice(["strict", "replace"]),
    default="strict",
    help="What to do with text that is not valid Unicode: fail, or put U+FFFD in its place.",
)
@engine_options
def embed(
    bundle: Path,
    texts: tuple[str, ...],
    file: Path | None,
    output: Path | None,
    as_json: bool,
    max_tokens: int | None,
    no_truncate: bool,
    max_batch_tokens: int | None,
    errors: Errors,
    device: str,
    threads: int | None,
) -> None:
    r"""Turn TEXTS, or each line of standard input, into vectors.

    \b
    Example:
        edgebert embed minilm/ "A text." "Another text."
        edgebert embed minilm/ --input texts.txt --output vectors.npy
        zcat texts.gz | edgebert embed minilm/ --json | gzip > vectors.jsonl.gz

    Prints a line for each text, in order: its numbers, separated by spaces. An empty line is an empty text and has a
    vector too. Texts are read, embedded and written as they come, in bounded memory. Put -- before a text that starts
    with a dash.
    """
    check_options(texts, file, output, as_json)
    with contextlib.ExitStack() as stack:
        windows, total = open_texts(stack, texts, file, errors)
        destination = stack.enter_context(NumpyFile(output)) if output else None
        import edgebert_runtime

        engine = edgebert_runtime.load(bundle, device=device, threads=threads)
        write = destination.start(engine.dim) if destination else write_json if as_json else write_text
        advance = stack.enter_context(count_progress(total, shown=output is not None or not sys.stdout.isatty()))
        cut = 0
        for window in windows:
            with window.naming():
                result = engine.embed_detailed(
                    window.texts,
                    max_tokens=max_tokens,
                    truncate=not no_truncate,
                    max_batch_tokens=max_batch_tokens,
                    errors=errors,
                )
            write(result, window.first)
            advance(len(window.texts) if total is None else window.read)
            cut += sum(map(bool, result.truncated))
    if cut:
        click.echo(f"edgebert: texts cut because they were too long: {cut:,} (see --max-tokens)", err=True)


def check_options(texts: tuple[str, ...], file: Path | None, output: Path | None, as_json: bool) -> None:
    """Refuse options that exclude each other."""
    if texts and file:
        raise click.UsageError("Give texts as arguments or with --input, not both.")
    if output and as_json:
        raise click.UsageError("Give --json or --output, not both: --output writes a NumPy file.")
    if output and output.suffix != ".npy":
        raise click.UsageError(f"--output writes a NumPy file: call it {output.stem or 'vectors'}.npy.")


def open_texts(
    stack: contextlib.ExitStack, texts: tuple[str, ...], file: Path | None, errors: Errors
) -> tuple[Iterator[Window], int | None]:
    """Return the texts, and how much there is to read if that is known."""
    if texts:
        return argument_windows(texts), sum(map(len, texts))
    stream: BinaryIO
    if file and str(file) != "-":
        stream, name = stack.enter_context(file.open("rb")), click.format_filename(file)
    else:
        if sys.stdin is None:
            raise click.UsageError("Standard input is closed: give texts as arguments or with --input.")
        stream, name = sys.stdin.buffer, "standard input"
        if stream.isatty():
            click.echo("edgebert: reading texts from the terminal, one a line; Ctrl-D ends them", err=True)
    return line_windows(stream, name, errors), file_size(stream)
