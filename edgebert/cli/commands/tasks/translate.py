"""``edgebert translate``."""

from __future__ import annotations

from typing import Any

import click

from edgebert.cli.generation_options import generation_options, given_options, write_texts
from edgebert.cli.logging_options import Command
from edgebert.cli.options import bundle_argument, language_options, request_options, texts_options
from edgebert.cli.request import Request


@click.command(cls=Command)
@bundle_argument
@texts_options("[TEXTS]...")
@click.option("--one-text", is_flag=True, help="Read all of --input or standard input as one text of many lines.")
@click.option("--stream", is_flag=True, help="Print the translation while it is generated. One text, no beams.")
@click.option("--split-sentences", is_flag=True, help="Translate sentence by sentence; white space between them stays.")
@click.option("--target-prefix", show_default="none", help="Let translations begin with this text.")
@language_options
@generation_options(("prompt_lookup",), max_new_tokens="the bundle's, or 3 for each token of the text and 16")
@request_options(
    json_help="Write a JSON object a line for each result: index of the text, text, tokens, token_logprobs, score, "
    "finish_reason; with several results for a text, sequence as well.",
    long_texts="refuse",
)
def translate(
    request: Request,
    one_text: bool,
    stream: bool,
    split_sentences: bool,
    target_prefix: str | None,
    languages: dict[str, str],
    **_options: Any,
) -> None:
    r"""Translate or summarize TEXTS, or each line of standard input.

    \b
    Example:
        edgebert translate opus-mt-en-de/ "How are you?"
        edgebert translate opus-mt-en-de/ --input lines.txt --num-beams 4 --num-return-sequences 2 --json
        edgebert translate opus-mt-en-de/ --one-text --split-sentences < letter.txt
        edgebert translate mbart-50/ "How are you?" --source-language en_XX --target-language de_DE

    For encoder-decoder (seq2seq) models. For one TEXT, or with --one-text or --stream, the result is printed as it is.
    Otherwise each result is a line, in the order of the texts, best first, with spaces for its ends of lines; --json
    keeps these. An empty line stays empty. A text longer than the model takes is refused; --split-sentences is for it.
    Defaults are the bundle's, which 'edgebert info' shows as decoding.
    """
    if split_sentences and target_prefix is not None:
        raise click.UsageError("Give --target-prefix or --split-sentences, not both: a text has many beginnings then.")
    own_options = {"split_sentences": split_sentences, "target_prefix": target_prefix, **languages}
    write_texts(request, one_text, stream, {**given_options(), **own_options}, "text")
