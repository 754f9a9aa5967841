"""What published heads call their tensors, and what they compute, by model type and task. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from edgebert_runtime.task_specs import MULTIPLE_CHOICE, TRANSLATE

# The activation of config.json, in the place of a name.
HIDDEN_ACT = "hidden_act"


@dataclass(frozen=True)
class HeadNames:
    """The modules of a published head, under their names without the prefix of the encoder.

    ``out`` is the last linear layer, with a ``bias`` or without; ``dense`` with ``activation``, and ``norm``, stand
    before it where they are named. A layer over the ``vocabulary`` multiplies by the table of token embeddings unless
    ``tie_word_embeddings`` is false; ``biases`` are the names that its bias has had. ``required``
    are keys of config.json with the values under which the head computes this.
    """

    reads: str
    out: str
    dense: str | None = None
    activation: str | None = None
    norm: str | None = None
    bias: bool = True
    vocabulary: bool = False
    biases: tuple[str, ...] = ()
    binary: bool = False
    spans: bool = False
    required: dict[str, tuple[Any, ...]] = field(default_factory=dict)


def vocabulary(out: str, dense: str, activation: str, norm: str, bias: str) -> HeadNames:
    """Name a head over the vocabulary, whose bias may also be saved as that of its last layer."""
    biases = tuple(dict.fromkeys([bias, f"{out}.bias"]))
    return HeadNames("chosen", out, dense, activation, norm, vocabulary=True, biases=biases)


TOKENS = HeadNames("every", "classifier")
SPANS = HeadNames("every", "qa_outputs", spans=True)
POOLED = HeadNames("first", "classifier", "pooler.dense", "tanh")
# With "classifier_pooling": "mean" in config.json, a key that ModernBERT brought in.
MEAN = HeadNames("mean", "classifier")
ROBERTA_CLASSIFIER = HeadNames("first", "classifier.out_proj", "classifier.dense", "tanh")
DISTILBERT_CLASSIFIER = HeadNames("first", "classifier", "pre_classifier", "relu")
ELECTRA_CLASSIFIER = HeadNames("first", "classifier.out_proj", "classifier.dense", "gelu")
ALBERT_CLASSIFIER = HeadNames("first", "classifier", "pooler", "tanh")

ROBERTA_HEADS: dict[str, tuple[HeadNames, ...]] = {
    "classify": (ROBERTA_CLASSIFIER, MEAN),
    "rerank": (ROBERTA_CLASSIFIER,),
    MULTIPLE_CHOICE: (POOLED,),
    "tag": (TOKENS,),
    "answer": (SPANS,),
    "fill-mask": (vocabulary("lm_head.decoder", "lm_head.dense", "gelu", "lm_head.layer_norm", "lm_head.bias"),),
}

GPT2_HEADS: dict[str, tuple[HeadNames, ...]] = {
    "classify": (HeadNames("last", "score", bias=False),),
    "generate": (HeadNames("chosen", "lm_head", bias=False, vocabulary=True),),
}
SEQ2SEQ_HEADS: dict[str, tuple[HeadNames, ...]] = {
    TRANSLATE: (HeadNames("chosen", "lm_head", bias=False, vocabulary=True),),
}

# The heads that serve a task, the first that a checkpoint has being taken.
HEADS: dict[str, dict[str, tuple[HeadNames, ...]]] = {
    "bert": {
        "classify": (POOLED, MEAN),
        "next-sentence": (HeadNames("first", "cls.seq_relationship", "pooler.dense", "tanh"),),
        "rerank": (POOLED,),
        MULTIPLE_CHOICE: (POOLED,),
        "tag": (TOKENS,),
        "answer": (SPANS,),
        "fill-mask": (
            vocabulary(
                "cls.predictions.decoder",
                "cls.predictions.transform.dense",
                HIDDEN_ACT,
                "cls.predictions.transform.LayerNorm",
                "cls.predictions.bias",
            ),
        ),
    },
    "roberta": ROBERTA_HEADS,
    "xlm-roberta": ROBERTA_HEADS,
    "camembert": ROBERTA_HEADS,
    "distilbert": {
        "classify": (DISTILBERT_CLASSIFIER, MEAN),
        "rerank": (DISTILBERT_CLASSIFIER,),
        MULTIPLE_CHOICE: (DISTILBERT_CLASSIFIER,),
        "tag": (TOKENS,),
        "answer": (SPANS,),
        "fill-mask": (
            vocabulary("vocab_projector", "vocab_transform", HIDDEN_ACT, "vocab_layer_norm", "vocab_projector.bias"),
        ),
    },
    "electra": {
        "classify": (ELECTRA_CLASSIFIER,),
        "rerank": (ELECTRA_CLASSIFIER,),
        MULTIPLE_CHOICE: (
            HeadNames(
                "first",
                "classifier",
                "sequence_summary.summary",
                "gelu",
                required={"summary_type": ("first",), "summary_use_proj": (True,), "summary_activation": ("gelu",)},
            ),
        ),
        "tag": (
            HeadNames(
                "every",
                "discriminator_predictions.dense_prediction",
                "discriminator_predictions.dense",
                HIDDEN_ACT,
                binary=True,
            ),
            TOKENS,
        ),
        "answer": (SPANS,),
        "fill-mask": (
            vocabulary(
                "generator_lm_head",
                "generator_predictions.dense",
                "gelu",
                "generator_predictions.LayerNorm",
                "generator_lm_head.bias",
            ),
        ),
    },
    "albert": {
        "classify": (ALBERT_CLASSIFIER,),
        "next-sentence": (HeadNames("first", "sop_classifier.classifier", "pooler", "tanh"),),
        "rerank": (ALBERT_CLASSIFIER,),
        MULTIPLE_CHOICE: (ALBERT_CLASSIFIER,),
        "tag": (TOKENS,),
        "answer": (SPANS,),
        "fill-mask": (
            vocabulary(
                "predictions.decoder", "predictions.dense", HIDDEN_ACT, "predictions.LayerNorm", "predictions.bias"
            ),
        ),
    },
    "gpt2": GPT2_HEADS,
    "marian": SEQ2SEQ_HEADS,
    "bart": SEQ2SEQ_HEADS,
    "mbart": SEQ2SEQ_HEADS,
    "seq2seq": SEQ2SEQ_HEADS,
    "elmo": {},
}

# Modules of heads that serve none of our tasks.
OTHER_HEADS: dict[str, tuple[str, ...]] = {
    "gpt2": ("multiple_choice_head", "classifier", "qa_outputs"),
    "bart": ("classification_head", "qa_outputs"),
    "mbart": ("classification_head", "qa_outputs"),
}

# The endings of the names of architectures in config.json, and the task of each.
ARCHITECTURES: dict[str, str] = {
    "ForMaskedLM": "fill-mask",
    "ForPreTraining": "fill-mask",
    "ForNextSentencePrediction": "next-sentence",
    "ForSequenceClassification": "classify",
    "ForTokenClassification": "tag",
    "ForQuestionAnswering": "answer",
    "ForMultipleChoice": MULTIPLE_CHOICE,
    "ForConditionalGeneration": TRANSLATE,
}
EXCEPTIONS = {
    "ElectraForPreTraining": "tag",
    "GPT2LMHeadModel": "generate",
    "GPT2DoubleHeadsModel": "generate",
    "MarianMTModel": TRANSLATE,
}

# The parts of a pooler, which a head may read and which is no head by itself.
POOLER = "pooler."


def head_prefixes(model_type: str) -> tuple[str, ...]:
    """Return the beginnings of the names of everything that can stand on top of a model of this type."""
    heads = [head for choices in HEADS[model_type].values() for head in choices]
    modules = [module for head in heads for module in (head.out, head.dense) if module]
    modules += OTHER_HEADS.get(model_type, ())
    return tuple(sorted({f"{module.partition('.')[0]}." for module in modules}))
