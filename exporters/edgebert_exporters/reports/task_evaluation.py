"""Say how well two bundles do what they are for, on labelled examples and through the engines that will do it.

===============  =======================================================================================
task             figures
===============  =======================================================================================
classify,        accuracy and the mean F1 of the labels
next-sentence
tag              F1 of entities whose place and label are right
answer           exact match, and F1 of words, by the best of the right answers
fill-mask        accuracy of the likeliest token
embed            Spearman's correlation of cosines with scores; or the share of texts whose nearest other has
                 the same label
rerank           the mean of 1 / the rank of the right passage
multiple-choice  accuracy
generate         perplexity, and bits for a byte where the bytes of tokens are known
translate        exact match, and the share of words that have to be changed for the nearest right translation
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
from edgebert_runtime.errors import InputError
from edgebert_runtime.task_specs import TASKS

# By figure, how it is made of what is known of each example. The first ones are shares of what is right.
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
Judged = dict[str, Doubles]


def evaluate(before: Path, after: Path, examples: Examples, progress: Progress) -> dict[str, Any]:
    """Judge the bundles in two folders by examples.

    Returns:
        The ``file``, how many ``examples`` it has, and for each of the ``figures`` what it is ``before`` and
        ``after``, the ``difference``, and the interval of each.

    Raises:
        InputError: if an engine cannot take an example.
    """
    sides = []
    for done, folder in enumerate((before, after)):
        progress("measure quality", done, 2)
        sides.append(judge(edgebert_runtime.load(folder, verify="size"), examples))
    progress("measure quality", 2, 2)
    old, new = sides
    figures = {name: compared(name, old[name], new[name]) for name in old}
    return {"file": Path(examples.file).name, "examples": len(examples.rows), "figures": figures}


def compared(name: str, old: Doubles, new: Doubles) -> dict[str, Any]:
    """Return a figure of both sides and their difference, with intervals. Both sides are drawn alike."""
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


def judge(engine: Any, examples: Examples) -> Judged:
    """Return, by figure, what an engine makes of examples, an array (n, k) each.

    Raises:
        InputError: naming the file, and the line that the engine cannot take.
    """
    try:
        return JUDGES[TASKS[examples.task].engine](engine, examples.rows)
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


def classified(engine: Any, rows: Sequence[Row]) -> Judged:
    """Judge a classifier."""
    pairs = values(rows, "pair") if "pair" in rows[0] else None
    found = [one.label for one in engine.classify(values(rows, "text"), pairs)]
    numbers = [[engine.labels.index(label) for label in side] for side in (values(rows, "label"), found)]
    table = np.array(numbers, np.float64).T
    return {"accuracy": column(table[:, 0] == table[:, 1]), "macro_f1": table}


def tagged(engine: Any, rows: Sequence[Row]) -> Judged:
    """Judge a tagger."""
    counts = []
    for row, entities in zip(rows, engine.tag(values(rows, "text")), strict=True):
        wanted = {(start, end, label) for start, end, label in row["entities"]}
        found = {(entity.start, entity.end, entity.label) for entity in entities}
        counts.append([len(wanted & found), len(found), len(wanted)])
    return {"span_f1": np.array(counts, np.float64)}


def answered(engine: Any, rows: Sequence[Row]) -> Judged:
    """Judge an engine that answers; if an example has no answer, it may say so."""
    pairs = [(row["question"], row["context"]) for row in rows]
    found = engine.answer_many(pairs, handle_impossible_answer=not all(values(rows, "answers")))
    said = [answers[0].text if answers else "" for answers in found]
    right = [answers or [""] for answers in values(rows, "answers")]
    exact = [max(plain(one) == plain(way) for way in ways) for one, ways in zip(said, right, strict=True)]
    alike = [max(answer_f1(one, way) for way in ways) for one, ways in zip(said, right, strict=True)]
    return {"exact_match": column(exact), "f1": column(alike)}


def filled(engine: Any, rows: Sequence[Row]) -> Judged:
    """Judge an engine that fills masks; a token may be written as in the vocabulary or as in a text."""
    found = [masks[0][0] for masks in engine.fill(values(rows, "text"), top_k=1)]
    pairs = zip(found, values(rows, "token"), strict=True)
    return {"accuracy": column([token in (one.token, one.text[one.start : one.end]) for one, token in pairs])}


def embedded(engine: Any, rows: Sequence[Row]) -> Judged:
    """Judge vectors, by scores or by labels."""
    vectors = engine.embed(values(rows, "text"))
    if "label" in rows[0]:
        labels = np.array(values(rows, "label"))
        return {"accuracy": column(labels[nearest(vectors)] == labels)}
    others = engine.embed(values(rows, "other"))
    sizes = np.linalg.norm(vectors, axis=1) * np.linalg.norm(others, axis=1)
    cosines = (vectors * others).sum(1) / np.maximum(sizes, 1e-12)
    return {"spearman": np.stack([cosines.astype(np.float64), np.array(values(rows, "score"), np.float64)], 1)}


def ranked(engine: Any, rows: Sequence[Row]) -> Judged:
    """Judge a reranker."""
    orders = [[one.index for one in engine.rerank(row["query"], row["passages"])] for row in rows]
    return {
        "reciprocal_rank": column([1 / (1 + order.index(row["best"])) for order, row in zip(orders, rows, strict=True)])
    }


def chosen(engine: Any, rows: Sequence[Row]) -> Judged:
    """Judge an engine that chooses."""
    found = engine.choose_many([(row["prompt"], row["choices"]) for row in rows])
    return {"accuracy": column([one[0].index == row["best"] for one, row in zip(found, rows, strict=True)])}


def expected(engine: Any, rows: Sequence[Row]) -> Judged:
    """Judge how likely a decoder finds texts, by the tokens that count."""
    scored = engine.score(values(rows, "text"))
    judged = {"perplexity": np.array([[-one.score, len(one.tokens)] for one in scored], np.float64)}
    sizes = token_bytes(engine.bundle)
    if sizes is not None:
        bits = [[-one.score / math.log(2), sizes[list(one.tokens)].sum()] for one in scored]
        judged["bits_per_byte"] = np.array(bits, np.float64)
    return judged


def translated(engine: Any, rows: Sequence[Row]) -> Judged:
    """Judge a translator, by the nearest of the right translations."""
    said = [one.text.split() for one in engine.translate(values(rows, "source"), do_sample=False)]
    right = [[target.split() for target in targets] for targets in values(rows, "targets")]
    pairs = zip(said, right, strict=True)
    counts = np.array([min((edits(one, way), len(way)) for way in ways) for one, ways in pairs], np.float64)
    return {"exact_match": column(counts[:, 0] == 0), "word_errors": counts}


# By the class of the engine.
JUDGES: dict[str, Callable[[Any, Sequence[Row]], Judged]] = {
    "Classifier": classified,
    "Tagger": tagged,
    "Answerer": answered,
    "MaskFiller": filled,
    "Embedder": embedded,
    "Reranker": ranked,
    "MultipleChoice": chosen,
    "Generator": expected,
    "Translator": translated,
}
