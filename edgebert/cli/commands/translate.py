"""``edgebert translate``."""

from __future__ import annotations

from typing import Any

import click

from edgebert.cli.generation_options import asked, generation_options, write_texts
from edgebert.cli.logging_options import Command
from edgebert.cli.options import bundle_argument, language_options, request_options, texts_options
from edgebert.cli.request import Request


@click.command(cls=Command)
@bundle_argument
@texts_options("[TEXTS]...")
@click.option("--whole", is_flag=True, help="Take all of --input or standard input as one text of many lines.")
@click.option("--stream", is_flag=True, help="Print the translation while it is made. For one text, without beams.")
@click.option("--split-sentences", is_flag=True, help="Translate sentences one by one, and keep what is between them.")
@click.option("--target-prefix", show_default="none", help="Let translations begin with this.")
@language_options
@generation_options(("prompt_lookup",), max_new_tokens="the bundle's, or 3 for each token of the text and 16")
@request_options(
    json_help="Write a JSON object a line for each result: index of the text, text, tokens, token_logprobs, score, "
    "finish_reason; with several results for a text, sequence as well.",
    long="refuse",
)
def translate(
    request: Request,
    whole: bool,
    stream: bool,
    split_sentences: bool,
    target_prefix: str | None,
    languages: dict[str, str],
    **_options: Any,
) -> None:
    r"""Translate TEXTS, or each line of standard input.

    \b
    Example:
        edgebert translate opus-mt-en-de/ "How are you?"
        edgebert translate opus-mt-en-de/ --input lines.txt --num-beams 4 --num-return-sequences 2 --json
        edgebert translate opus-mt-en-de/ --whole --split-sentences < letter.txt
        edgebert translate mbart-50/ "How are you?" --source-language en_XX --target-language de_DE

    Or summarizes them, or whatever else the model was trained to make of a text. For one TEXT, or with --whole or
    --stream, the result is printed as it is, with an end of line after it. Otherwise it is a line for each, in the
    order of the texts, those of one text best first, with spaces where the result has ends of lines; --json keeps
    these. An empty line stays empty. Texts that are longer than the model takes are refused; --split-sentences is for
    them. Options that are not given are what 'edgebert info' shows as decoding.
    """
    if split_sentences and target_prefix is not None:
        raise click.UsageError("Give --target-prefix or --split-sentences, not both: a text has many beginnings then.")
    own = {"split_sentences": split_sentences, "target_prefix": target_prefix, **languages}
    write_texts(request, whole, stream, {**asked(), **own}, "text")
