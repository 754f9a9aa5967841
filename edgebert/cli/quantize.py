"""``edgebert quantize``."""

from __future__ import annotations

from pathlib import Path

import click

from edgebert.cli.logs import Command
from edgebert.cli.options import FOLDER, bundle_argument, force_option, json_option
from edgebert.cli.output import echo_json, echo_table, step_progress
from edgebert.cli.summary import as_dict, echo_report, headline
from edgebert.cli.texts import naming, read_texts


@click.command(cls=Command)
@bundle_argument
@click.argument("out", type=FOLDER)
@click.option("--scheme", type=click.Choice(["int8", "int4"]), default="int8", help="How the weights are stored.")
@click.option("--block-size", type=int, show_default="128, or 32 with int4", help="How many weights share a scale.")
@click.option(
    "--rows",
    type=click.Choice(["few", "many"]),
    show_default="few",
    help="Be fast for few rows, one text at a time, or for many: batches and long prompts.",
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    show_default="nothing",
    help="Leave the weights whose name matches in float32, as in '*.contract.weight'. May be given several times.",
)
@click.option(
    "--calibration",
    type=FOLDER,
    metavar="FILE",
    show_default="built-in sample texts",
    help="Texts of your own, UTF-8, one a line, that set the scales and measure what was lost.",
)
@click.option(
    "--min-agreement",
    type=click.FloatRange(0, 1),
    show_default="0.99, or 0.95 with int4",
    help="Fail if new and old results agree less than this, from 0 to 1: their mean cosine, or their correlation where "
    "a text gives one number.",
)
@force_option
@json_option
def quantize(
    bundle: Path,
    out: Path,
    scheme: str,
    block_size: int | None,
    rows: str | None,
    exclude: tuple[str, ...],
    calibration: Path | None,
    min_agreement: float | None,
    force: bool,
    as_json: bool,
) -> None:
    r"""Store the weights of BUNDLE in fewer bits, in the folder OUT.

    \b
    Example:
        edgebert quantize minilm/ minilm-int8/ --calibration texts.txt
        edgebert quantize gpt2/ gpt2-int4/ --scheme int4 --block-size 64

    The options int4, --block-size and --rows are for bundles that generate or translate. An encoder that reads what is
    to be translated is int8 always.

    Reports which layers were quantized, the size and speed of both, and how far the results differ.
    """
    import edgebert_exporters

    with naming(), step_progress() as progress:
        made = edgebert_exporters.quantize_bundle(
            bundle,
            out,
            scheme=scheme,
            block_size=block_size,
            rows=rows,
            exclude=exclude,
            calibration=None if calibration is None else read_texts(calibration),
            min_agreement=min_agreement,
            force=force,
            progress=progress,
        )
    if as_json:
        echo_json(as_dict(made))
        return
    echo_table(headline(made))
    echo_report(made)
