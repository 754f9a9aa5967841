"""The heads of all model types, and the tasks of architectures."""

from __future__ import annotations

from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert.models.checkpoint_tables import HeadNames
from edgebert_runtime.task_specs import MULTIPLE_CHOICE, TRANSLATE

# The heads of each model type by task, the first that a checkpoint has being taken.
HEADS: dict[str, dict[str, tuple[HeadNames, ...]]] = {name: kind.heads for name, kind in MODEL_TYPES.items()}

# Endings of the class names in config.json, and the task of each.
ARCHITECTURE_ENDINGS: dict[str, str] = {
    "ForMaskedLM": "fill-mask",
    "ForPreTraining": "fill-mask",
    "ForNextSentencePrediction": "next-sentence",
    "ForSequenceClassification": "classify",
    "ForTokenClassification": "tag",
    "ForQuestionAnswering": "answer",
    "ForMultipleChoice": MULTIPLE_CHOICE,
    "ForConditionalGeneration": TRANSLATE,
}
# Class names that end otherwise, or whose ending means something else.
ARCHITECTURES = {name: task for kind in MODEL_TYPES.values() for name, task in kind.architectures.items()}

# The pooler, which a head may read and which is no head by itself.
POOLER = "pooler."


def pooler_names(model_type: str) -> HeadNames | None:
    """Return the dense layer of the pooler as a head of its own, None where models of this type have none."""
    heads = (head for choices in MODEL_TYPES[model_type].heads.values() for head in choices)
    dense = next((head.dense for head in heads if head.dense and f"{head.dense}.".startswith(POOLER)), None)
    return HeadNames("first", dense) if dense else None


def head_prefixes(model_type: str) -> tuple[str, ...]:
    """Return the prefixes of the tensors of every head that models of this type have."""
    kind = MODEL_TYPES[model_type]
    heads = [head for choices in kind.heads.values() for head in choices]
    modules = [module for head in heads for module in (head.out, head.dense, head.norm) if module]
    return tuple(sorted({f"{module.partition('.')[0]}." for module in (*modules, *kind.other_heads)}))
