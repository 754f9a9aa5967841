"""Evaluation: how well both bundles do their task on labelled examples, run by the engines.

===============  =======================================================================================
task             figures
===============  =======================================================================================
classify,        accuracy and macro F1 of the labels
next-sentence
tag              F1 of entities whose place and label are right
answer           exact match and F1 of words, against the best of the right answers
fill-mask        accuracy of the most likely token
embed            Spearman's correlation of cosines with scores; or the accuracy of the nearest neighbor's label
rerank           mean reciprocal rank of the right passage
multiple-choice  accuracy
generate         perplexity, and bits per byte where the bytes of tokens are known
translate        exact match, and the word error rate against the nearest right translation
===============  =======================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import edgebert_runtime
from edgebert_exporters.fidelity.comparison import nearest
from edgebert_exporters.fidelity.token_bytes import token_bytes
from edgebert_exporters.progress import Progress
from edgebert_exporters.reports.labelled_examples import Examples, Row
from edgebert_exporters.reports.metrics import (
    Doubles,
    Figure,
    answer_f1,
    bootstrap,
    edits,
    macro_f1,
    mean,
    perplexity,
    plain,
    ratio,
    span_f1,
    spearman,
    wilson,
)
from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.errors import InputError
from edgebert_runtime.task_specs import TASKS

# The function of each figure, of an array with a row for each example. The first ones are shares of right answers.
SHARES: dict[str, Figure] = dict.fromkeys(("accuracy", "exact_match"), mean)
FIGURES: dict[str, Figure] = SHARES | {
    "macro_f1": macro_f1,
    "span_f1": span_f1,
    "f1": mean,
    "spearman": spearman,
    "reciprocal_rank": mean,
    "perplexity": perplexity,
    "bits_per_byte": ratio,
    "word_errors": ratio,
}
Scores = dict[str, Doubles]


def evaluate(before: Bundle, after: Bundle, examples: Examples, progress: Progress) -> dict[str, Any]:
    """Evaluate two bundles on examples.

    Returns:
        The ``file``, its number of ``examples``, and the ``figures``: each ``before``, ``after`` and as a
        ``difference``, with the interval of each.

    Raises:
        InputError: if an engine cannot take an example.
    """
    sides = []
    for done, bundle in enumerate((before, after)):
        progress("measure quality", done, 2)
        sides.append(score_examples(edgebert_runtime.ENGINES[bundle.manifest.task](bundle), examples))
    progress("measure quality", 2, 2)
    old, new = sides
    figures = {name: compare_figure(name, old[name], new[name]) for name in old}
    return {"file": Path(examples.file).name, "examples": len(examples.rows), "figures": figures}


def compare_figure(name: str, old: Doubles, new: Doubles) -> dict[str, Any]:
    """Return a figure of both sides and their difference, with intervals."""
    figure, before, after = FIGURES[name], FIGURES[name](old), FIGURES[name](new)
    old_range, new_range = (wilson(rows) if name in SHARES else bootstrap(figure, rows) for rows in (old, new))
    return {
        "before": before,
        "before_interval": list(old_range),
        "after": after,
        "after_interval": list(new_range),
        "difference": after - before,
        "difference_interval": list(bootstrap(figure, old, new)),
    }


def score_examples(engine: Any, examples: Examples) -> Scores:
    """Return the array (n, k) of each figure for the results of an engine.

    Raises:
        InputError: naming the file, and the line that the engine cannot take.
    """
    try:
        return SCORERS[TASKS[examples.task].engine](engine, examples.rows)
    except InputError as error:
        if error.index is not None:
            line = examples.lines[error.index]
            error.item, error.index = f"line {line} of {examples.file}", None
        raise


def column(numbers: Sequence[float]) -> Doubles:
    """Return numbers as an array (n, 1)."""
    return np.array(numbers, np.float64)[:, None]


def values(rows: Sequence[Row], name: str) -> list[Any]:
    """Return a field of all examples."""
    return [row[name] for row in rows]


def classifier_scores(engine: Any, rows: Sequence[Row]) -> Scores:
    """Score a classifier."""
    pairs = values(rows, "pair") if "pair" in rows[0] else None
    labels = [result.label for result in engine.classify(values(rows, "text"), pairs)]
    numbers = [[engine.labels.index(label) for label in side] for side in (values(rows, "label"), labels)]
    table = np.array(numbers, np.float64).T
    return {"accuracy": column(table[:, 0] == table[:, 1]), "macro_f1": table}


def tagger_scores(engine: Any, rows: Sequence[Row]) -> Scores:
    """Score a tagger."""
    counts = []
    for row, entities in zip(rows, engine.tag(values(rows, "text")), strict=True):
        expected = {(start, end, label) for start, end, label in row["entities"]}
        actual = {(entity.start, entity.end, entity.label) for entity in entities}
        counts.append([len(expected & actual), len(actual), len(expected)])
    return {"span_f1": np.array(counts, np.float64)}


def answerer_scores(engine: Any, rows: Sequence[Row]) -> Scores:
    """Score an answerer, which may say that there is no answer if an example has none."""
    pairs = [(row["question"], row["context"]) for row in rows]
    results = engine.answer_many(pairs, handle_impossible_answer=not all(values(rows, "answers")))
    texts = [answers[0].text if answers else "" for answers in results]
    right = [answers or [""] for answers in values(rows, "answers")]
    scored = list(zip(texts, right, strict=True))
    exact = [max(plain(text) == plain(answer) for answer in answers) for text, answers in scored]
    overlap = [max(answer_f1(text, answer) for answer in answers) for text, answers in scored]
    return {"exact_match": column(exact), "f1": column(overlap)}


def mask_filler_scores(engine: Any, rows: Sequence[Row]) -> Scores:
    """Score a mask filler.

    A token may be written as in the vocabulary or as in a text.
    """
    best = [masks[0][0] for masks in engine.fill(values(rows, "text"), top_k=1)]
    spellings = [(filling.token, filling.text[filling.start : filling.end]) for filling in best]
    return {"accuracy": column([row["token"] in both_ways for row, both_ways in zip(rows, spellings, strict=True)])}


def embedder_scores(engine: Any, rows: Sequence[Row]) -> Scores:
    """Score vectors, by scores of pairs or by labels of texts."""
    vectors = engine.embed(values(rows, "text"))
    if "label" in rows[0]:
        labels = np.array(values(rows, "label"))
        return {"accuracy": column(labels[nearest(vectors)] == labels)}
    others = engine.embed(values(rows, "other"))
    sizes = np.linalg.norm(vectors, axis=1) * np.linalg.norm(others, axis=1)
    cosines = (vectors * others).sum(1) / np.maximum(sizes, 1e-12)
    return {"spearman": np.stack([cosines.astype(np.float64), np.array(values(rows, "score"), np.float64)], 1)}


def reranker_scores(engine: Any, rows: Sequence[Row]) -> Scores:
    """Score a reranker."""
    orders = [[passage.index for passage in engine.rerank(row["query"], row["passages"])] for row in rows]
    ranks = [1 + order.index(row["best"]) for order, row in zip(orders, rows, strict=True)]
    return {"reciprocal_rank": column([1 / rank for rank in ranks])}


def choice_scores(engine: Any, rows: Sequence[Row]) -> Scores:
    """Score an engine of multiple choice."""
    choices = engine.choose_many([(row["prompt"], row["choices"]) for row in rows])
    return {"accuracy": column([best.index == row["best"] for (best, *_), row in zip(choices, rows, strict=True)])}


def generator_scores(engine: Any, rows: Sequence[Row]) -> Scores:
    """Score the probabilities that a decoder gives to texts."""
    results = engine.score(values(rows, "text"))
    scores = {"perplexity": np.array([[-result.score, len(result.tokens)] for result in results], np.float64)}
    sizes = token_bytes(engine.bundle)
    if sizes is not None:
        bits = [[-result.score / math.log(2), sizes[list(result.tokens)].sum()] for result in results]
        scores["bits_per_byte"] = np.array(bits, np.float64)
    return scores


def translator_scores(engine: Any, rows: Sequence[Row]) -> Scores:
    """Score translations, against the nearest of the right ones."""
    results = engine.translate(values(rows, "source"), do_sample=False)
    counts = []
    for result, row in zip(results, rows, strict=True):
        right = [target.split() for target in row["targets"]]
        counts.append(min((edits(result.text.split(), words), len(words)) for words in right))
    table = np.array(counts, np.float64)
    return {"exact_match": column(table[:, 0] == 0), "word_errors": table}


# By the class of the engine.
SCORERS: dict[str, Callable[[Any, Sequence[Row]], Scores]] = {
    "Classifier": classifier_scores,
    "Tagger": tagger_scores,
    "Answerer": answerer_scores,
    "MaskFiller": mask_filler_scores,
    "Embedder": embedder_scores,
    "Reranker": reranker_scores,
    "MultipleChoice": choice_scores,
    "Generator": generator_scores,
    "Translator": translator_scores,
}
