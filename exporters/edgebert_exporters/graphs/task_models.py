"""A checkpoint prepared for its task: modules to export, signatures, and settings of the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from edgebert.checkpoints import Checkpoint
from edgebert.models.bert.model import Bert
from edgebert.models.elmo.model import Elmo
from edgebert.models.gpt2.heads import Gpt2Classifier, Gpt2LanguageModel
from edgebert.models.pooling import POOLER, POOLINGS, PoolerEncoder, SentenceEncoder
from edgebert.models.seq2seq.model import Seq2Seq
from edgebert_exporters.graphs.decoder_modules import ForcedTranslation, RankedDecoder, SourceEncoder, TargetDecoder
from edgebert_exporters.graphs.signatures import (
    Signature,
    decoder_signature,
    encoder_signature,
    seq2seq_signatures,
)
from edgebert_runtime.errors import ExportError
from edgebert_runtime.task_specs import TASKS


@dataclass(frozen=True)
class Graph:
    """A module to export, and its signature."""

    module: nn.Module
    signature: Signature


@dataclass(frozen=True)
class TaskModel:
    """The ``graphs`` of a checkpoint, their ``reference``, and the engine's ``settings``."""

    graphs: dict[str, Graph]
    reference: nn.Module
    settings: dict[str, Any]

    @classmethod
    def of(cls, module: nn.Module, signature: Signature, settings: dict[str, Any]) -> TaskModel:
        """Return a model with one graph, which is its own reference."""
        return cls({"model": Graph(module, signature)}, module, settings)


def check_options(task: str, options: dict[str, Any]) -> None:
    """Refuse an unknown task, and options that do not belong to ``task``.

    Raises:
        ExportError: naming what is wrong.
    """
    if task not in TASKS:
        raise ExportError(f"is not one of {', '.join(TASKS)}", option="task", value=task)
    for name, value in options.items():
        if value is not None and name not in TASKS[task].options:
            owners = " and ".join(spec.name for spec in TASKS.values() if name in spec.options)
            raise ExportError(
                f"means nothing for the task {task}, only for {owners}", option=name, value=value, hint="leave it out"
            )


def prepare(
    checkpoint: Checkpoint,
    pooling: str | None = None,
    normalize: bool | None = None,
    target: str = "portable",
    dim: int | None = None,
) -> TaskModel:
    """Load the weights of ``checkpoint`` and prepare it for its task.

    Raises:
        ExportError: if the pooling of sentence vectors is unknown, or they are not as long as ``dim``.
        CheckpointError: if weights are not finite, or the files have changed since they were opened.
    """
    config = checkpoint.config
    if TASKS[checkpoint.task].embeds:
        return prepare_embedding(checkpoint, *settle_pooling(checkpoint, pooling, normalize), dim)
    model = checkpoint.load_model()
    segments = getattr(config, "type_vocab_size", 0)
    if isinstance(model, Gpt2LanguageModel):
        own = model.gpt2.config
        sizes = own.vocab_size, own.num_hidden_layers, own.num_attention_heads, own.head_dim
        return TaskModel.of(RankedDecoder(model).eval(), decoder_signature(target, *sizes), {})
    if isinstance(model, Seq2Seq):
        modules = {"encoder": SourceEncoder(model).eval(), "decoder": TargetDecoder(model).eval()}
        signatures = seq2seq_signatures(target, model.config)
        graphs = {name: Graph(module, signatures[name]) for name, module in modules.items()}
        return TaskModel(graphs, ForcedTranslation(model).eval(), checkpoint.settings)
    assert not isinstance(model, Bert | Elmo), f"the task {checkpoint.task} came without its head"
    width = model.head.out_features if isinstance(model, Gpt2Classifier) else model.head.config.num_outputs
    settings = {**head_settings(checkpoint), **checkpoint.settings}
    return TaskModel.of(model.eval(), encoder_signature(checkpoint.task, width, segments), settings)


def prepare_embedding(checkpoint: Checkpoint, pooling: str, normalize: bool, dim: int | None) -> TaskModel:
    """Load the weights of ``checkpoint`` and prepare it for sentence vectors.

    The graph gives whole vectors; the engine cuts them to the ``dim`` of its settings.
    """
    width, segments = checkpoint.config.hidden_size, getattr(checkpoint.config, "type_vocab_size", 0)
    if dim is not None and not 1 <= dim <= width:
        raise ExportError(f"is not between 1 and {width}, the length of the model's vectors", option="dim", value=dim)
    settings = {"pooling": pooling, "normalize": normalize, **checkpoint.settings}
    settings["dim"] = dim or min(settings.get("dim", width), width)
    if pooling == POOLER:
        settings.pop("include_prompt", None)  # the pooler reads the first token, whatever the prompt
        module: nn.Module = PoolerEncoder(checkpoint.load_pooler(), normalize)
    else:
        body = checkpoint.load_model()
        assert isinstance(body, Bert | Elmo), f"the task {checkpoint.task} has a head"
        module = SentenceEncoder(body, pooling, normalize)
    signature = encoder_signature(checkpoint.task, width, segments, settings.get("include_prompt", True))
    return TaskModel.of(module.eval(), signature, settings)


def head_settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the settings of an engine whose task has a head."""
    settings = {
        "labels": list(checkpoint.labels),
        "problem_type": checkpoint.problem_type or "single_label",
        "activation": checkpoint.activation,
        "prompt": checkpoint.prompt,
        "mask_token": checkpoint.mask_token,
    }
    return {name: settings[name] for name in TASKS[checkpoint.task].settings if name in settings}


def settle_pooling(checkpoint: Checkpoint, pooling: str | None, normalize: bool | None) -> tuple[str, bool]:
    """Return the options, or what the checkpoint says.

    Raises:
        ExportError: if the pooling is unknown or not given; a guess would make vectors that look right.
    """
    pooling = pooling or checkpoint.pooling
    if pooling is None:
        raise ExportError(
            f"{checkpoint.path} holds no 1_Pooling/config.json, so it does not say how token vectors become a "
            "sentence vector",
            hint=f"give {{pooling}}, one of {', '.join(POOLINGS)}",
            options={"pooling": ...},
        )
    if pooling not in POOLINGS:
        raise ExportError(f"is not one of {', '.join(POOLINGS)}", option="pooling", value=pooling)
    return pooling, bool(checkpoint.normalize if normalize is None else normalize)
