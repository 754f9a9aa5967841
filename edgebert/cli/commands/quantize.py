"""``edgebert quantize``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from edgebert.cli.bundle_summary import as_dict, costs_of_weights, echo_report, figures_of, headline
from edgebert.cli.formatting import echo_json, echo_table
from edgebert.cli.logging_options import Command
from edgebert.cli.options import FOLDER, bundle_argument, force_option, json_option
from edgebert.cli.param_types import Choice
from edgebert.cli.progress import step_progress
from edgebert.cli.text_input import read_texts

# The options of --sensitivity.
SENSITIVITY_OPTIONS = ("granularity", "exclude")
PERCENT = re.compile(r"([0-9.]+)\s*%")


def as_share(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Return a percentage, or a number from 0 to 1, as such a number."""
    if value is None:
        return None
    match = PERCENT.fullmatch(value.strip())
    try:
        share = float(match[1]) / 100 if match else float(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is neither a percentage, such as 0.5%, nor a number.") from error
    if not 0 < share < 1:
        raise click.BadParameter(f"{value!r} is not between 0% and 100%.")
    return share


@click.command(cls=Command)
@bundle_argument
@click.argument("out", type=FOLDER, required=False)
@click.option(
    "--scheme",
    type=Choice(["int8", "int4", "int8-static", "fp16"]),
    default="int8",
    help="Format of the weights: int8 for encoders and decoders, int4 for the smallest files, int8-static for engines "
    "with standard operators only, fp16 for GPUs.",
)
@click.option(
    "--granularity",
    type=Choice(["block", "channel"]),
    show_default="block for the task generate, channel for all others",
    help="Scales per block of weights, fastest for one token at a time, or per output channel, fastest for batches and "
    "long prompts.",
)
@click.option(
    "--block-size",
    type=Choice(["16", "32", "64", "128", "256"]),
    callback=lambda context, option, value: None if value is None else int(value),
    show_default="128, or 64 with int4",
    help="Weights per scale.",
)
@click.option("--asymmetric", is_flag=True, help="Store a zero point beside the scale of each block.")
@click.option(
    "--algorithm",
    type=Choice(["rtn", "gptq"]),
    show_default="rtn, or gptq with int4",
    help="Rounding of weights in blocks: rtn takes the nearest integer, gptq compensates rounding errors on sample "
    "texts, which takes longer.",
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    show_default="nothing",
    help="Leave weights whose name matches in float32, such as '*.ffn_down.weight'. May be given several times.",
)
@click.option(
    "--calibration",
    type=FOLDER,
    metavar="FILE",
    show_default="built-in sample texts",
    help="Texts like yours, UTF-8, one a line. Every second one sets scales; the others measure fidelity.",
)
@click.option(
    "--calibration-method",
    type=Choice(["min-max", "percentile", "entropy", "mse"]),
    show_default="min-max",
    help="Calibration method of the activation ranges of int8-static.",
)
@click.option(
    "--mixed-precision",
    callback=as_share,
    metavar="MAX_LOSS",
    show_default="none",
    help="Mixed precision: picks int4, int8 or float32 per weight so that the total fidelity loss stays within "
    "MAX_LOSS, such as 0.5%.",
)
@click.option(
    "--sensitivity",
    is_flag=True,
    help="Measure the fidelity loss of quantizing each weight alone, and write nothing. "
    "Takes --granularity, --exclude and --calibration.",
)
@click.option(
    "--eval",
    type=FOLDER,
    metavar="FILE",
    show_default="nothing",
    help="Labelled examples that both bundles are evaluated on: a JSON object a line, with text and label for a "
    "classifier. The error of a wrong line names the fields of other tasks.",
)
@click.option(
    "--min-fidelity",
    type=click.FloatRange(0, 1),
    show_default="0.99; with int4 0.95, with fp16 0.999, with --mixed-precision 1 - MAX_LOSS",
    help="Fail below this fidelity to float32, from 0 to 1: the mean cosine of the outputs, or their correlation where "
    "a text gives one number.",
)
@click.option(
    "--max-slowdown",
    type=click.FloatRange(min=0, min_open=True),
    metavar="TIMES",
    show_default="any",
    help="Fail if the quantized bundle is slower, in times of float32, such as 1.2; the median of all timed shapes.",
)
@click.option(
    "--html", type=FOLDER, metavar="FILE", show_default="nothing", help="Write the report as an HTML page as well."
)
@force_option
@json_option
def quantize(
    bundle: Path,
    out: Path | None,
    calibration: Path | None,
    html: Path | None,
    sensitivity: bool,
    as_json: bool,
    **options: Any,
) -> None:
    r"""Quantize the float32 bundle BUNDLE into the folder OUT.

    \b
    Example:
        edgebert quantize minilm/ minilm-int8/ --calibration texts.txt --html report.html
        edgebert quantize gpt2/ gpt2-int4/ --scheme int4 --block-size 64 --max-slowdown 1
        edgebert quantize minilm/ --sensitivity

    Reports the layers that were quantized, size, speed, fidelity to float32, and with --eval the quality of both
    bundles. A bundle that misses --min-fidelity or --max-slowdown is not written.
    """
    settings = {name: value for name, value in options.items() if value is not None and value is not False}
    if sensitivity:
        check_sensitivity_options(settings, out, html)
    elif out is None:
        raise click.UsageError("Missing argument 'OUT'.")
    if calibration is not None:
        settings["calibration"] = read_texts(calibration, "--calibration")
        if not sensitivity:
            settings["calibration_name"] = click.format_filename(calibration, shorten=True)
    if sensitivity or out is None:
        echo_sensitivity(bundle, settings, as_json)
    else:
        quantize_and_report(bundle, out, settings, html, as_json)


def check_sensitivity_options(settings: dict[str, Any], out: Path | None, html: Path | None) -> None:
    """Refuse options that --sensitivity does not have; drop the default scheme from ``settings``."""
    if settings["scheme"] == "int8":
        del settings["scheme"]
    refused = [f"--{name.replace('_', '-')}" for name in settings if name not in SENSITIVITY_OPTIONS]
    refused += ["--html"] * (html is not None) + ["OUT"] * (out is not None)
    if refused:
        raise click.UsageError(f"--sensitivity writes nothing, leave out {', '.join(refused)}.")


def echo_sensitivity(bundle: Path, settings: dict[str, Any], as_json: bool) -> None:
    """Measure the fidelity loss of each weight alone, and print it."""
    from edgebert_exporters.quantize import measure_sensitivity

    with step_progress() as progress:
        rows = measure_sensitivity(bundle, progress=progress, **settings)
    if as_json:
        echo_json(rows)
    else:
        echo_table(costs_of_weights(rows, None))


def quantize_and_report(bundle: Path, out: Path, settings: dict[str, Any], html: Path | None, as_json: bool) -> None:
    """Quantize, and print and write the report."""
    import edgebert_exporters
    from edgebert_exporters.reports.html_page import check_page
    from edgebert_exporters.reports.html_report import write_page

    if html is not None:
        check_page(html)
    with step_progress() as progress:
        quantized = edgebert_exporters.quantize_bundle(bundle, out, progress=progress, **settings)
    if html is not None:
        write_page(html, quantized, figures_of(quantized.manifest.report))
    if as_json:
        echo_json(as_dict(quantized))
        return
    echo_table(headline(quantized))
    echo_report(quantized)
