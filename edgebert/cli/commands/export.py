"""``edgebert export``."""

from __future__ import annotations

from pathlib import Path

import click

from edgebert.cli.bundle_summary import as_dict, echo_verification, headline, settings
from edgebert.cli.formatting import echo_json, echo_table
from edgebert.cli.logging_options import Command
from edgebert.cli.options import FOLDER, bundle_argument, force_option, json_option, pickle_option, reference_option
from edgebert.cli.param_types import Choice, TaskType
from edgebert.cli.progress import step_progress
from edgebert.cli.text_input import read_texts


@click.command(cls=Command)
@click.argument("checkpoint", type=FOLDER)
@bundle_argument
@click.option(
    "--task",
    type=TaskType(),
    metavar="TASK",
    show_default="the checkpoint's",
    help="Task of the bundle: embed, classify, next-sentence, rerank, multiple-choice, tag, answer, fill-mask, "
    "generate or translate; or a pipeline of Hugging Face, such as text-classification.",
)
@click.option(
    "--target",
    type=Choice(["cpu", "portable"]),
    default="cpu",
    help="cpu is fastest in ONNX Runtime on a CPU; portable has standard ONNX operators only, for GPUs and other "
    "engines.",
)
@click.option(
    "--pooling",
    type=Choice(["cls", "mean", "max", "last", "mean_sqrt_len_tokens", "weightedmean", "pooler"]),
    show_default="the checkpoint's",
    help="Task embed: pooling of token vectors into the vector of a text.",
)
@click.option(
    "--normalize/--no-normalize",
    default=None,
    show_default="the checkpoint's",
    help="Task embed: scale vectors to length 1.",
)
@click.option(
    "--dim",
    type=click.IntRange(min=1),
    show_default="the checkpoint's",
    help="Task embed: cut vectors to so many numbers, after everything else (Matryoshka models).",
)
@click.option(
    "--problem-type",
    type=Choice(["single_label", "multi_label", "regression"]),
    show_default="the checkpoint's",
    help="Task classify: one label a text, any number of them, or numbers.",
)
@click.option(
    "--labels",
    type=FOLDER,
    metavar="FILE",
    show_default="the checkpoint's",
    help="Tasks classify and tag: label names, UTF-8, one a line, in the order of the outputs.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Fail if the bundle is known to give another result than transformers or sentence-transformers; otherwise "
    "each difference is a warning.",
)
@reference_option
@pickle_option
@force_option
@json_option
def export(
    checkpoint: Path,
    bundle: Path,
    task: str | None,
    target: str,
    pooling: str | None,
    normalize: bool | None,
    dim: int | None,
    problem_type: str | None,
    labels: Path | None,
    strict: bool,
    reference: str | None,
    allow_pickle: bool,
    force: bool,
    as_json: bool,
) -> None:
    r"""Export the folder CHECKPOINT as the folder BUNDLE, verified.

    \b
    Example:
        edgebert export all-MiniLM-L6-v2/ minilm/
        edgebert export bert-base-uncased/ bert/ --task fill-mask
        edgebert export my-classifier/ topics/ --problem-type multi_label --labels names.txt

    CHECKPOINT is a local folder with config.json, safetensors and the tokenizer's files. The bundle is compared with
    PyTorch over batches, lengths and paddings. A difference beyond tolerance is an error, and BUNDLE stays as it was.
    The task decides which command runs the bundle.
    """
    import edgebert_exporters

    with step_progress() as progress:
        exported = edgebert_exporters.export_checkpoint(
            checkpoint,
            bundle,
            task=task,
            target=target,
            pooling=pooling,
            normalize=normalize,
            dim=dim,
            problem_type=problem_type,
            labels=None if labels is None else read_texts(labels, "--labels", "labels"),
            strict=strict,
            reference=reference,
            allow_pickle=allow_pickle,
            force=force,
            progress=progress,
        )
    if as_json:
        echo_json(as_dict(exported))
        return
    echo_table([*headline(exported), *settings(exported)])
    echo_verification(exported)
