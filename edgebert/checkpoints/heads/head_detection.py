"""Detect the task of a checkpoint, and read its head.

``architectures`` in config.json says it, or the tensors do. A head is never made up: a checkpoint whose tensors do
not hold the head that was asked for is refused, with the tasks that its tensors do fit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from edgebert.checkpoints.config.config_reader import NAME, ModelConfig, required_problems
from edgebert.checkpoints.config.cross_encoder import CrossEncoder
from edgebert.checkpoints.config.head_tables import (
    ARCHITECTURE_ENDINGS,
    ARCHITECTURES,
    HEADS,
    POOLER,
    head_prefixes,
)
from edgebert.checkpoints.config.model_factory import Config
from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert.checkpoints.folder import some
from edgebert.checkpoints.heads.labels import (
    PROBLEM_TYPES,
    classifier_activation,
    read_labels,
    read_problem_type,
    reranker_activation,
)
from edgebert.checkpoints.weights.weight_files import WeightFiles
from edgebert.models.bert.heads import HeadConfig
from edgebert.models.bert.model import BertConfig
from edgebert.models.checkpoint_tables import HIDDEN_ACT, HeadNames
from edgebert.models.elmo.model import ElmoConfig
from edgebert_runtime.errors import CheckpointError, ConfigError
from edgebert_runtime.task_specs import TASKS


@dataclass(frozen=True)
class TaskHead:
    """The task and head of a checkpoint (see :class:`~edgebert.checkpoints.checkpoint.Checkpoint`)."""

    task: str
    names: HeadNames | None = None
    head: HeadConfig | None = None
    labels: tuple[str, ...] = ()
    problem_type: str = ""
    activation: str = ""
    prompt: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidates:
    """The canonical names of a checkpoint's tensors, and their rows."""

    model: ModelConfig
    rows: dict[str, int]

    @classmethod
    def of(cls, model: ModelConfig, weights: WeightFiles) -> Candidates:
        """Look at the tensors of ``weights``."""
        shapes = {plain: weights.tensors[name].shape for plain, name in weights.by_canonical(model.model_type).items()}
        return cls(model, {plain: shape[0] if shape else 0 for plain, shape in shapes.items()})

    def heads(self, task: str) -> tuple[HeadNames, ...]:
        """Return the possible heads of a task, biases in order."""
        mean = self.model.data.get("classifier_pooling") == "mean"
        heads = [
            head
            for head in HEADS[self.model.model_type].get(task, ())
            if task != "classify" or (head.reads == "mean") == mean
        ]
        return tuple(dataclasses.replace(head, biases=self.biases(head)) for head in heads)

    def biases(self, head: HeadNames) -> tuple[str, ...]:
        """Return the names of the bias, the layer's own first where it has one."""
        own = f"{head.out}.bias"
        return (own, *head.biases) if own in self.rows else head.biases

    def bias_notes(self, head: HeadNames) -> tuple[str, ...]:
        """Note a bias that transformers does not read, its own name for it being another."""
        own = f"{head.out}.bias"
        if not head.vocabulary or not head.bias or self.model.data.get("tie_word_embeddings") is not False:
            return ()
        if own in self.rows:
            return ()
        return (f"{own} is missing: took {head.biases[0]}, as transformers 4 does; transformers 5 takes zeros",)

    def missing(self, head: HeadNames) -> list[str]:
        """Return the tensors of a head that are not there."""
        names = [f"{module}.{leaf}" for module in (head.dense, head.norm) if module for leaf in ("weight", "bias")]
        names += [] if head.vocabulary and self.model.tied_head else [f"{head.out}.weight"]
        names += [] if not head.bias else [head.biases[0] if head.vocabulary else f"{head.out}.bias"]
        return [name for name in names if name not in self.rows]

    def outputs(self, head: HeadNames) -> int:
        """Return how many numbers a head gives."""
        if head.vocabulary:
            return self.model.model.vocab_size
        return 2 if head.binary else self.rows.get(f"{head.out}.weight", 0)

    def fits(self, task: str) -> HeadNames | None:
        """Return the complete head of ``task`` with a fitting width, or None."""
        whole = [head for head in self.heads(task) if not self.missing(head)]
        return next(
            (head for head in whole if self.outputs(head) in (TASKS[task].head_widths or (self.outputs(head),))), None
        )

    def tasks(self) -> list[str]:
        """Return the tasks that the tensors fit."""
        return [task for task in TASKS if task == self.headless_task == "embed" or self.fits(task)]

    @property
    def headless_task(self) -> str:
        """The task of a checkpoint without a head."""
        return MODEL_TYPES[self.model.model_type].headless_task

    def headless(self) -> bool:
        """Say whether there is no head but that of the headless task."""
        own = {POOLER, *(f"{head.out}." for head in self.heads(self.headless_task))}
        tops = tuple(prefix for prefix in head_prefixes(self.model.model_type) if prefix not in own)
        return not any(name.startswith(tops) for name in self.rows)


def check_arguments(task: str | None, problem_type: str | None) -> None:
    """Refuse names that no checkpoint could make right.

    Raises:
        ConfigError: naming the value, and those that there are.
    """
    if task is not None and task not in TASKS:
        raise ConfigError(f"is not one of {', '.join(TASKS)}", option="task", value=task)
    if problem_type is not None and problem_type not in PROBLEM_TYPES.values():
        raise ConfigError(
            f"is not one of {', '.join(PROBLEM_TYPES.values())}", option="problem_type", value=problem_type
        )


def read_task(
    model: ModelConfig,
    weights: WeightFiles,
    pools: bool,
    cross: CrossEncoder | None = None,
    task: str | None = None,
    problem_type: str | None = None,
    labels: Sequence[str] | None = None,
) -> TaskHead:
    """Detect or check the task, and read its head.

    ``pools`` says that the folder has modules of sentence-transformers which make one vector of a text, ``cross`` that
    it is a CrossEncoder.

    Raises:
        CheckpointError: if the tensors of the head are missing or do not fit the task.
        ConfigError: if config.json or the caller says something impossible about it.
    """
    there = Candidates.of(model, weights)
    chosen = task or ("embed" if pools else find_task(there, cross))
    for option, value in (("problem_type", problem_type), ("labels", labels)):
        if value is not None and option not in TASKS[chosen].options:
            owners = " and ".join(name for name, spec in TASKS.items() if option in spec.options)
            raise ConfigError(f"was given, which {chosen} does not have; only {owners}", option=option)
    if chosen == there.headless_task == "embed":
        return TaskHead("embed")
    names = find_head(there, chosen)
    if not TASKS[chosen].own_head:
        return TaskHead(chosen)  # the head is a part of the model
    config = head_config(names, model.model, there.outputs(names), model.tied_head)
    label_names, notes = read_labels(model.data, chosen, config, labels)
    notes += there.bias_notes(names)
    kind, activation, prompt = "", "", ""
    if chosen == "classify":
        kind = read_problem_type(model.data, problem_type)
        activation = classifier_activation(kind, config.num_outputs, cross if problem_type is None else None)
        if cross and cross.prompt:
            notes += (f"texts are classified without the prompt {cross.prompt!r:.60}; put it before each yourself",)
    if chosen == "rerank":
        activation = reranker_activation(config.num_outputs, cross)
        prompt = cross.prompt if cross else ""
    if cross and chosen in ("classify", "rerank"):
        notes += cross.notes
    return TaskHead(chosen, names, config, label_names, kind, activation, prompt, notes)


def find_task(there: Candidates, cross: CrossEncoder | None) -> str:
    """Return the task of config.json, or the only one that fits."""
    named = named_task(there.model)
    if named == "classify" and cross and (head := there.fits("rerank")) and there.outputs(head) == 1:
        return "rerank"
    if named:
        return named
    if there.headless():
        return there.headless_task
    fitting = there.tasks()
    own = [task for task in fitting if task != there.headless_task]
    if len(own) == 1 or own == ["next-sentence", "fill-mask"]:  # the two of BERT's pre-training
        return own[-1]
    raise CheckpointError(
        f"{NAME}: architectures names {there.model.architecture or 'none'!r:.60}, which does not say the task",
        hint=f"give {{task}}, one of {', '.join(fitting)}",
        options={"task": ...},
    )


def named_task(model: ModelConfig) -> str | None:
    """Return the task that the architecture in config.json names."""
    name = model.architecture or ""
    if name in ARCHITECTURES:
        return ARCHITECTURES[name]
    if name.endswith("Model") and "Head" not in name:
        return MODEL_TYPES[model.model_type].headless_task
    return next((task for ending, task in ARCHITECTURE_ENDINGS.items() if name.endswith(ending)), None)


def find_head(there: Candidates, task: str) -> HeadNames:
    """Return the head of ``task``, whose tensors must all exist.

    Raises:
        CheckpointError: naming those that are missing, and the tasks that the tensors fit.
    """
    model = there.model
    fitting = f"the tensors fit {', '.join(there.tasks())}"
    error = partial(CheckpointError, hint="give {task}, or use another checkpoint", options={"task": ...})
    heads = there.heads(task)
    if not heads:
        article = "an" if model.model_type[0] in "aeiou" else "a"
        raise error(f"{article} {model.model_type} has no head for {task}; {fitting}")
    if (names := there.fits(task)) is None:
        nearest = min(heads, key=lambda head: len(there.missing(head)))
        if missing := there.missing(nearest):
            raise error(f"tensors missing for {task}: {some(missing)}; {fitting}")
        widths = " or ".join(map(str, TASKS[task].head_widths))
        actual = f"{nearest.out} has {there.outputs(nearest)} outputs"
        raise error(f"{actual}, {task} needs {widths}; {fitting}")
    trained = named_task(model)
    if any(head.out == names.out and head.reads != names.reads for head in there.heads(trained or task)):
        raise CheckpointError(
            f"{NAME}: the head of {model.architecture} was trained for {trained} and not for {task}",
            hint="leave out {task}",
            options={"task": ...},
        )
    if problems := required_problems(model.data, names.required):
        raise ConfigError("; ".join(problems))
    return names


def head_config(names: HeadNames, config: Config, outputs: int, tied: bool = True) -> HeadConfig:
    """Return our configuration of a published head with ``outputs`` outputs.

    ``tied`` matters to a head over the vocabulary only.
    """
    assert not isinstance(config, ElmoConfig), "an ELMo has no heads"
    narrow = config.embedding_size if names.vocabulary and isinstance(config, BertConfig) else None
    return HeadConfig(
        reads=names.reads,
        num_outputs=outputs,
        activation=config.hidden_act if names.activation == HIDDEN_ACT else names.activation,
        hidden_size=(narrow or config.hidden_size) if names.dense else None,
        norm=names.norm is not None,
        bias=names.bias,
        tied=names.vocabulary and tied,
        binary=names.binary,
        spans=names.spans,
    )
