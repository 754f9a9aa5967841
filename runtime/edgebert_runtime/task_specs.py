"""The tasks: one entry for each, from which every layer reads its part. Data only.

A new task is an entry here, an engine in :mod:`edgebert_runtime.tasks` and a command of the CLI.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["encoder", "decoder", "encoder-decoder"]
# Inputs of an engine: token ids, ids with a mask, texts, pairs of texts, first and second texts, prompts with choices.
Workload = Literal["ids", "masked", "texts", "pairs", "columns", "choices"]

EMBED, CLASSIFY, NEXT_SENTENCE, RERANK = "embed", "classify", "next-sentence", "rerank"
MULTIPLE_CHOICE, TAG, ANSWER, FILL_MASK = "multiple-choice", "tag", "answer", "fill-mask"
GENERATE, TRANSLATE = "generate", "translate"

# Values of the fields of labelled examples.
TEXT, NUMBER, INDEX = "a text", "a number", "a whole number from 0"
TEXTS, SOME_TEXTS, SPANS = "a list of texts", "a list of texts that is not empty", "a list of [start, end, label]"

# Dimensions of an output that is a width: numbers of a vector, labels, or tokens of a vocabulary.
WIDTH = "width"
LOGITS: Mapping[str, tuple[str, ...]] = {"logits": ("batch", WIDTH)}


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """Everything that distinguishes one task from the others.

    Attributes:
        name: The name in manifests, options and messages.
        kind: The architecture of its models.
        engine: The class in ``edgebert_runtime``.
        verb: The command of the CLI.
        other_verbs: Further commands that run bundles of this task.
        aliases: Names of the same task elsewhere, first of all pipelines of Hugging Face.
        outputs: The result outputs of a graph, with the dimensions of each. ``rows`` are chosen tokens.
        own_head: Whether a checkpoint has tensors of a head beside the model.
        head_widths: The numbers of outputs that a head may have; empty is any.
        options: The options of an export.
        settings: The settings of the engine in the manifest that the checkpoint decides.
        method: The method of the engine that takes many inputs at once.
        workload: The inputs of ``method``.
        examples: The fields of labelled examples, with alternatives.
        min_examples: The fewest examples that give a figure.
        metrics: The figures of labelled examples.
    """

    name: str
    kind: Kind = "encoder"
    engine: str
    verb: str
    other_verbs: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    outputs: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: LOGITS)
    own_head: bool = True
    head_widths: tuple[int, ...] = ()
    options: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    method: str
    workload: Workload
    examples: tuple[Mapping[str, str], ...]
    min_examples: int = 1
    metrics: tuple[str, ...]

    @property
    def generative(self) -> bool:
        """Whether the model writes text token by token."""
        return self.kind != "encoder"

    @property
    def embeds(self) -> bool:
        """Whether the result is a vector, to be compared with other vectors."""
        return "sentence_embedding" in self.outputs

    @property
    def reads_pairs(self) -> bool:
        """Whether the model reads two texts at once."""
        return self.workload in ("pairs", "columns", "choices")

    @property
    def reads_chosen_tokens(self) -> bool:
        """Whether the results are those of chosen tokens."""
        return any("rows" in dimensions for dimensions in self.outputs.values())


VOCABULARY: Mapping[str, tuple[str, ...]] = {"logits": ("rows", WIDTH)}
LABELLED_PAIR = {"text": TEXT, "pair": TEXT, "label": TEXT}

_SPECS = (
    TaskSpec(
        name=EMBED,
        engine="Embedder",
        verb="embed",
        aliases=("feature-extraction", "sentence-similarity"),
        outputs={"sentence_embedding": ("batch", WIDTH)},
        own_head=False,
        options=("pooling", "normalize", "dim"),
        settings=("pooling", "normalize", "dim", "prompts", "default_prompt", "include_prompt", "truncation_side"),
        method="embed",
        workload="ids",
        examples=({"text": TEXT, "other": TEXT, "score": NUMBER}, {"text": TEXT, "label": TEXT}),
        min_examples=3,
        metrics=("spearman", "accuracy"),
    ),
    TaskSpec(
        name=CLASSIFY,
        engine="Classifier",
        verb="classify",
        aliases=("text-classification", "sentiment-analysis"),
        options=("problem_type", "labels"),
        settings=("labels", "problem_type", "activation", "truncation_side"),
        method="classify",
        workload="ids",
        examples=({"text": TEXT, "label": TEXT}, LABELLED_PAIR),
        metrics=("accuracy", "macro_f1"),
    ),
    TaskSpec(
        name=NEXT_SENTENCE,
        engine="Classifier",
        verb="classify",
        aliases=("next-sentence-prediction",),
        head_widths=(2,),
        settings=("labels", "problem_type", "truncation_side"),
        method="classify",
        workload="columns",
        examples=(LABELLED_PAIR,),
        metrics=("accuracy", "macro_f1"),
    ),
    TaskSpec(
        name=RERANK,
        engine="Reranker",
        verb="rerank",
        aliases=("text-ranking",),
        head_widths=(1, 2),
        settings=("activation", "prompt", "truncation_side"),
        method="score",
        workload="pairs",
        examples=({"query": TEXT, "passages": SOME_TEXTS, "best": INDEX},),
        metrics=("reciprocal_rank",),
    ),
    TaskSpec(
        name=MULTIPLE_CHOICE,
        engine="MultipleChoice",
        verb="choose",
        head_widths=(1,),
        settings=("truncation_side",),
        method="choose_many",
        workload="choices",
        examples=({"prompt": TEXT, "choices": SOME_TEXTS, "best": INDEX},),
        metrics=("accuracy",),
    ),
    TaskSpec(
        name=TAG,
        engine="Tagger",
        verb="tag",
        aliases=("token-classification", "ner"),
        outputs={"logits": ("batch", "sequence", WIDTH)},
        options=("labels",),
        settings=("labels",),
        method="tag",
        workload="texts",
        examples=({"text": TEXT, "entities": SPANS},),
        metrics=("span_f1",),
    ),
    TaskSpec(
        name=ANSWER,
        engine="Answerer",
        verb="answer",
        aliases=("question-answering",),
        outputs={"start_logits": ("batch", "sequence"), "end_logits": ("batch", "sequence")},
        head_widths=(2,),
        method="answer_many",
        workload="pairs",
        examples=({"question": TEXT, "context": TEXT, "answers": TEXTS},),
        metrics=("exact_match", "f1"),
    ),
    TaskSpec(
        name=FILL_MASK,
        engine="MaskFiller",
        verb="fill-mask",
        outputs=VOCABULARY,
        settings=("mask_token",),
        method="fill",
        workload="masked",
        examples=({"text": TEXT, "token": TEXT},),
        metrics=("accuracy",),
    ),
    TaskSpec(
        name=GENERATE,
        kind="decoder",
        engine="Generator",
        verb="generate",
        other_verbs=("score",),
        aliases=("text-generation",),
        outputs=VOCABULARY,
        method="generate",
        workload="ids",
        examples=({"text": TEXT},),
        metrics=("perplexity", "bits_per_byte"),
    ),
    TaskSpec(
        name=TRANSLATE,
        kind="encoder-decoder",
        engine="Translator",
        verb="translate",
        other_verbs=("score",),
        aliases=("translation", "text2text-generation", "summarization"),
        outputs=VOCABULARY,
        own_head=False,
        method="translate",
        workload="ids",
        examples=({"source": TEXT, "targets": SOME_TEXTS},),
        metrics=("exact_match", "word_errors"),
    ),
)
TASKS: Mapping[str, TaskSpec] = {spec.name: spec for spec in _SPECS}
ALIASES: Mapping[str, str] = {alias: spec.name for spec in _SPECS for alias in spec.aliases}


def canonical_task(name: str) -> str:
    """Return the name of a task for an alias; others are unchanged."""
    return ALIASES.get(name, name)
