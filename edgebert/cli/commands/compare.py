"""``edgebert compare``."""

from __future__ import annotations

from pathlib import Path

import click

from edgebert.cli.formatting import echo_json, echo_table
from edgebert.cli.logging_options import Command
from edgebert.cli.options import FOLDER, engine_options, json_option
from edgebert.cli.progress import step_progress
from edgebert.cli.text_input import read_texts


@click.command(cls=Command)
@click.argument("bundles", type=FOLDER, nargs=-1, required=True, metavar="BUNDLE...")
@engine_options
@click.option(
    "--texts",
    type=FOLDER,
    metavar="FILE",
    show_default="built-in sample texts",
    help="Texts for fidelity, UTF-8, one a line; not those of --calibration.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True, max=3600),
    default=5.0,
    help="How long to measure the speed of each bundle, in seconds.",
)
@click.option("--html", type=FOLDER, metavar="FILE", show_default="nothing", help="Write a page with drawings as well.")
@json_option
def compare(
    bundles: tuple[Path, ...],
    device: str,
    threads: int | None,
    texts: Path | None,
    seconds: float,
    html: Path | None,
    as_json: bool,
) -> None:
    r"""Compare bundles side by side on this machine.

    \b
    Example:
        edgebert compare minilm/ minilm-int8/ minilm-int4/ --html comparison.html

    Size, speed, fidelity, start and peak memory are measured. The first bundle is the baseline: speed is for bundles of
    its task, in turns, and fidelity for bundles of its model. Start and memory are those of processes of their own.
    """
    if len(bundles) < 2:
        raise click.UsageError("Give two bundles or more; 'edgebert bench' measures one.")
    from edgebert_exporters.compare import compare_bundles
    from edgebert_exporters.reports import comparison
    from edgebert_exporters.reports.html_page import check_page, write_text

    if html is not None:
        check_page(html)
    with step_progress() as progress:
        result = compare_bundles(
            bundles,
            texts=None if texts is None else read_texts(texts, "--texts"),
            texts_name=None if texts is None else click.format_filename(texts, shorten=True),
            seconds=seconds,
            device=device,
            threads=threads,
            progress=progress,
        )
    if html is not None:
        write_text(html, comparison.comparison_page(result))
    if as_json:
        echo_json(result)
        return
    echo_table([(name, f"{model}, {weights}") for name, model, weights in comparison.identity_rows(result)])
    for chart in comparison.comparison_charts(result):
        rows = [(bar.name, comparison.in_words(bar)) for bar in chart.bars]
        echo_table(rows, title=f"{chart.title}. {chart.about}")
    for row in result["bundles"]:
        title = f"{row['name']} against {result['baseline']}"
        echo_table(comparison.measures(row, result["baseline"]).items(), title=title)
    echo_table(comparison.condition_rows(result), title="Conditions")
    echo_table([("note", remark) for remark in comparison.remarks(result)], title="Notes")
