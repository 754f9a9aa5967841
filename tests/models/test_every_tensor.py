"""Of every file edgebert uses the tensors that transformers uses, and misses those that transformers misses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from edgebert.checkpoints import open_checkpoint
from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert_runtime.errors import CheckpointError
from tests.models import tiny_bert, tiny_gpt2, tiny_seq2seq
from tests.support.tiny import CLASSES, ENDINGS

ENCODERS = [kind for kind in MODEL_TYPES if MODEL_TYPES[kind].family == "bert"]
# The tasks of each type whose heads have different names, so that one file holds them all, and heads of no task.
TASKS = {
    **dict.fromkeys(ENCODERS, ("fill-mask", "answer", "classify")),
    "gpt2": ("generate", "classify"),
    "bart": ("translate",),
    "mbart": ("translate",),
    "marian": ("translate",),
}
OTHERS = {
    "bert": ("ForPreTraining",),
    "albert": ("ForPreTraining",),
    "gpt2": ("ForQuestionAnswering", "DoubleHeadsModel"),
    "bart": ("ForQuestionAnswering", "ForSequenceClassification"),
}


def class_of(kind: str, task: str) -> Any:
    if kind == "marian":
        return transformers.MarianMTModel
    return getattr(transformers, f"{CLASSES[kind]}{ENDINGS[task]}")


def randomized(kind: str, cls: Any) -> Any:
    if kind == "gpt2":
        return tiny_gpt2.randomized(cls.__name__.removeprefix("GPT2"))
    if kind in tiny_seq2seq.KINDS:
        return tiny_seq2seq.randomized(kind, cls.__name__)
    return tiny_bert.randomized(cls)


def write(folder: Path, kind: str, task: str) -> dict[str, Tensor]:
    """Write a model of a task with the heads of all others, and return the tensors of its file."""
    tensors: dict[str, Tensor] = {}
    classes = [class_of(kind, other) for other in TASKS[kind] if other != task]
    classes += [getattr(transformers, f"{CLASSES[kind]}{ending}") for ending in OTHERS.get(kind, ())]
    for cls in [*classes, class_of(kind, task)]:
        model = randomized(kind, cls)
        save = tiny_seq2seq.save if kind in tiny_seq2seq.KINDS else tiny_bert.save
        tensors |= load_file(save(model, folder) / "model.safetensors")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return tensors


def reported(folder: Path, kind: str, task: str) -> dict[str, set[str]]:
    """Return the missing and unexpected tensors of transformers, without its prefix."""
    _, info = class_of(kind, task).from_pretrained(folder, output_loading_info=True)
    prefix = MODEL_TYPES[kind].prefix
    return {part: {name.removeprefix(prefix) for name in info[part]} for part in ("missing_keys", "unexpected_keys")}


@pytest.mark.parametrize(("kind", "task"), [(kind, task) for kind, tasks in TASKS.items() for task in tasks])
def test_heads_of_other_tasks(tmp_path: Path, kind: str, task: str) -> None:
    """A file with every head: what transformers does not expect is what the task does not need."""
    write(tmp_path, kind, task)
    theirs = reported(tmp_path, kind, task)
    checkpoint = open_checkpoint(tmp_path, task=task)
    ignored = {name.removeprefix(MODEL_TYPES[kind].prefix) for name in checkpoint.ignored}
    assert (ignored, set()) == (theirs["unexpected_keys"], theirs["missing_keys"])


@pytest.mark.parametrize("kind", TASKS)
def test_missing_tensors(tmp_path: Path, kind: str) -> None:
    """Each tensor that is in no layer, and those of the first: one that transformers misses is refused."""
    task = TASKS[kind][0]
    tensors = write(tmp_path, kind, task)
    needed = set(tensors) - set(open_checkpoint(tmp_path, task=task).ignored)
    names = [name for name in sorted(needed) if not any(f".{layer}." in name for layer in range(1, 4))]
    names = [name for name in names if ".0." not in name or name.endswith((".weight", "c_attn.bias"))]
    for name in names:
        rest = {other: tensor for other, tensor in tensors.items() if other != name}
        save_file(rest, tmp_path / "model.safetensors", metadata={"format": "pt"})
        if reported(tmp_path, kind, task)["missing_keys"]:
            with pytest.raises(CheckpointError, match=re.escape(name.removeprefix(MODEL_TYPES[kind].prefix))):
                open_checkpoint(tmp_path, task=task)
        else:
            open_checkpoint(tmp_path, task=task)
