"""``edgebert export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgebert.cli.bundle_summary import as_dict, echo_verification, headline, settings
from edgebert.cli.formatting import echo_json, echo_table, step_progress
from edgebert.cli.logging_options import Command
from edgebert.cli.options import FOLDER, bundle_argument, force_option, json_option, pickle_option
from edgebert.cli.text_input import read_texts

if TYPE_CHECKING:
    StringType = click.ParamType[str]  # which the oldest Click does not know at run time
else:
    StringType = click.ParamType


class TaskType(StringType):
    """A task, by our name or by an alias such as ``text-classification``."""

    name = "task"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return our names."""
        from edgebert_runtime.task_specs import TASKS

        return f"[{'|'.join(TASKS)}]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return our name of a task."""
        from edgebert_runtime.task_specs import TASKS, canonical_task

        if (task := canonical_task(value)) not in TASKS:
            self.fail(f"{value!r} is not one of {', '.join(map(repr, TASKS))}.", param, ctx)
        return task


@click.command(cls=Command)
@click.argument("checkpoint", type=FOLDER)
@bundle_argument
@click.option(
    "--task",
    type=TaskType(),
    show_default="what the checkpoint is for",
    help="What the bundle is for. The name of a pipeline of Hugging Face (text-classification) does as well.",
)
@click.option(
    "--target",
    type=click.Choice(["cpu", "portable"]),
    default="cpu",
    help="cpu is fastest in ONNX Runtime on a CPU; portable has standard ONNX operators only, for other engines.",
)
@click.option(
    "--pooling",
    type=click.Choice(["cls", "mean", "max", "last"]),
    show_default="what the checkpoint says",
    help="How token vectors become the vector of a text.",
)
@click.option(
    "--normalize/--no-normalize",
    default=None,
    show_default="what the checkpoint says",
    help="Whether to scale vectors to length 1.",
)
@click.option(
    "--problem-type",
    type=click.Choice(["single_label", "multi_label", "regression"]),
    show_default="what the checkpoint says",
    help="Task classify: whether a text has one label, any number of them, or numbers of its own.",
)
@click.option(
    "--labels",
    type=FOLDER,
    metavar="FILE",
    show_default="what the checkpoint says",
    help="Tasks classify and tag: names of the labels, UTF-8, one a line, in the order of the model's outputs.",
)
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
    problem_type: str | None,
    labels: Path | None,
    allow_pickle: bool,
    force: bool,
    as_json: bool,
) -> None:
    r"""Turn the folder CHECKPOINT into the folder BUNDLE, verified.

    \b
    Example:
        edgebert export all-MiniLM-L6-v2/ minilm/
        edgebert export bert-base-uncased/ bert/ --task fill-mask
        edgebert export my-classifier/ topics/ --problem-type multi_label --labels names.txt

    CHECKPOINT is a local folder with config.json, safetensors and the tokenizer's files. The result is compared with
    PyTorch over batches, lengths and paddings. If it differs, that is an error, and BUNDLE is left as it was. Which
    command runs it depends on its task.
    """
    import edgebert_exporters

    with step_progress() as progress:
        made = edgebert_exporters.export_checkpoint(
            checkpoint,
            bundle,
            task=task,
            target=target,
            pooling=pooling,
            normalize=normalize,
            problem_type=problem_type,
            labels=None if labels is None else read_texts(labels, "labels"),
            allow_pickle=allow_pickle,
            force=force,
            progress=progress,
        )
    if as_json:
        echo_json(as_dict(made))
        return
    echo_table([*headline(made), *settings(made)])
    echo_verification(made)
