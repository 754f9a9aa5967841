"""Read labels, problem type and the activation of scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgebert.checkpoints.config.cross_encoder import CrossEncoder
from edgebert.checkpoints.folder import some
from edgebert.models.bert.heads import HeadConfig
from edgebert_runtime.errors import ConfigError

NAME = "config.json"
NEXT_SENTENCE = ("is_next", "not_next")
REPLACED = ("original", "replaced")

# What problem_type says, and our names of it.
PROBLEM_TYPES = {
    "single_label_classification": "single_label",
    "multi_label_classification": "multi_label",
    "regression": "regression",
}

# The activation that makes scores of logits, by problem type.
SCORES = {"single_label": "softmax", "multi_label": "sigmoid", "regression": "identity"}
# Activations over all outputs, which make nothing of one.
OVER_ALL = ("softmax", "logsoftmax")


def read_labels(
    data: dict[str, Any], task: str, head: HeadConfig, override: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the outputs by id, and notes.

    Raises:
        ConfigError: if the names given are not as many as the outputs.
    """
    count = head.num_outputs
    if task == "next-sentence":
        return NEXT_SENTENCE, ()
    if task not in ("classify", "tag"):
        return (), ()
    if override is not None:
        return check_given(override, count), ()
    if head.binary:
        return REPLACED, ()
    plain = tuple(f"LABEL_{number}" for number in range(count))
    listed = data.get("id2label")
    if listed is None:
        return plain, ()
    named = {**listed} if isinstance(listed, dict) else {}
    labels = tuple(named.get(str(number)) for number in range(count))
    sound = tuple(label for label in labels if isinstance(label, str) and label)
    if len(named) != count or len(sound) != count:
        fault = f"{len(named)} entries" if len(named) != count else "entries that do not name each"
        missing = f"{NAME}: id2label has {fault}, the head has {count} outputs: transformers fails or lacks names"
        return plain, (f"{missing}, this bundle has {some(plain, 2)}",)
    if repeated := sorted({label for label in sound if sound.count(label) > 1}):
        several = f"{NAME}: id2label gives {some(repeated)} to several outputs: transformers names them so"
        return plain, (f"{several}, this bundle has {some(plain, 2)}",)
    return sound, ()


def check_given(labels: Sequence[str], count: int) -> tuple[str, ...]:
    """Return the labels of the caller, checked."""
    if isinstance(labels, str) or not all(isinstance(label, str) and label for label in labels):
        raise ConfigError("are not names", option="labels", value=labels, hint="give a sequence of strings")
    if len(labels) != count or len(set(labels)) != count:
        raise ConfigError(
            f"{{labels}}: {len(set(labels))} different names were given, the head has {count} outputs",
            options={"labels": ...},
        )
    return tuple(labels)


def read_problem_type(data: dict[str, Any], override: str | None) -> str:
    """Return the problem type of a classifier.

    It is single_label, multi_label or regression.

    Raises:
        ConfigError: if config.json names something else.
    """
    if override is not None:
        return override
    kind = data.get("problem_type")
    if kind is None:
        return "single_label"
    if not isinstance(kind, str) or kind not in PROBLEM_TYPES:
        raise ConfigError(
            f"{NAME}: problem_type={kind!r:.60} is not one of {', '.join(PROBLEM_TYPES)}",
            hint="give {problem_type}",
            options={"problem_type": ...},
        )
    return PROBLEM_TYPES[kind]


def classifier_activation(problem_type: str, count: int, cross: CrossEncoder | None) -> str:
    """Return the activation that makes scores of a classifier's logits.

    That is the one of a CrossEncoder, or else of the pipeline of transformers, which takes a sigmoid of one output
    unless the problem is a regression.

    Raises:
        ConfigError: if it makes nothing of one output.
    """
    if cross:
        activation = cross.activation or ("sigmoid" if count == 1 else "identity")
    elif count == 1 and problem_type != "regression":
        activation = "sigmoid"
    else:
        activation = SCORES[problem_type]
    return check_outputs(activation, count)


def reranker_activation(count: int, cross: CrossEncoder | None) -> str:
    """Return the activation that makes scores of a reranker's logits.

    Of two outputs it is softmax, the score being that of label 1.

    Raises:
        ConfigError: if it makes nothing of one output.
    """
    if count == 2:
        return "softmax"
    return check_outputs((cross and cross.activation) or "sigmoid", count)


def check_outputs(activation: str, count: int) -> str:
    """Refuse an activation that gives one and the same score of every input."""
    if count == 1 and activation in OVER_ALL:
        raise ConfigError(
            f"the activation {activation} gives the same score for every input of a model with one output; correct "
            "activation_fn where the checkpoint has it, to torch.nn.Sigmoid or torch.nn.Identity"
        )
    return activation
