"""Quality on labelled examples, against what the engines say and figures worked out from it by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgebert_runtime
from edgebert_exporters.progress import silent
from edgebert_exporters.reports.labelled_examples import Examples, Row
from edgebert_exporters.reports.task_evaluation import SCORERS, evaluate
from edgebert_runtime.errors import InputError
from edgebert_runtime.task_specs import TASKS

TEXTS = ["the cat sat on a mat", "sun and moon", "the dog ran in rain", "a ship", "mail, school.", "a cat and a dog"]
PAIRS = list(zip(TEXTS, TEXTS[1:], strict=False))
MASKED = ["the [MASK] sat", "a [MASK] and a dog", "sun [MASK] moon"]
# For each task, examples of which an engine gets all right; the questions that are asked, and the answers to them.
Made = Callable[[Any], list[Row]]


def entities_of(engine: Any) -> list[Row]:
    result = engine.tag(TEXTS)
    return [
        {"text": t, "entities": [[e.start, e.end, e.label] for e in es]} for t, es in zip(TEXTS, result, strict=True)
    ]


def answers_of(engine: Any) -> list[Row]:
    result = engine.answer_many(PAIRS)
    rows = [
        {"question": q, "context": c, "answers": ["nothing", a[0].text]}
        for (q, c), a in zip(PAIRS, result, strict=True)
    ]
    return rows


def scores_of(engine: Any) -> list[Row]:
    vectors = engine.embed(TEXTS).astype(np.float64)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return [
        {"text": TEXTS[i], "other": TEXTS[i + 1], "score": 3 * float(unit[i] @ unit[i + 1])} for i in range(len(PAIRS))
    ]


def ranked_by(engine: Any) -> list[Row]:
    return [{"query": q, "passages": TEXTS, "best": engine.rerank(q, TEXTS)[0].index} for q in TEXTS]


def chosen_by(engine: Any) -> list[Row]:
    return [{"prompt": p, "choices": TEXTS[:3], "best": engine.choose(p, TEXTS[:3])[0].index} for p in TEXTS]


def filled_by(engine: Any) -> list[Row]:
    return [{"text": t, "token": engine.fill([t])[0][0][0].token} for t in MASKED]


def labels_of(engine: Any) -> list[Row]:
    pairs = [second for _, second in PAIRS]
    result = engine.classify(TEXTS[:-1], pairs)
    return [{"text": t, "pair": p, "label": f.label} for (t, p), f in zip(PAIRS, result, strict=True)]


def translations_by(engine: Any) -> list[Row]:
    return [{"source": t, "targets": ["x y", engine.translate([t], do_sample=False)[0].text]} for t in TEXTS[:3]]


PERFECT: dict[str, tuple[Made, dict[str, float]]] = {
    "classify": (labels_of, {"accuracy": 1, "macro_f1": 1}),
    "next-sentence": (labels_of, {"accuracy": 1, "macro_f1": 1}),
    "tag": (entities_of, {"span_f1": 1}),
    "answer": (answers_of, {"exact_match": 1, "f1": 1}),
    "fill-mask": (filled_by, {"accuracy": 1}),
    "embed": (scores_of, {"spearman": 1}),
    "rerank": (ranked_by, {"reciprocal_rank": 1}),
    "multiple-choice": (chosen_by, {"accuracy": 1}),
    "translate": (translations_by, {"exact_match": 1, "word_errors": 0}),
}
Engines = Callable[[str], Any]


@pytest.fixture
def engine_of(task_bundle: Callable[[str], Path]) -> Engines:
    """Return a function from a task to the engine of a bundle."""
    return lambda task: edgebert_runtime.load(task_bundle(task))


def figures(engine: Any, rows: list[Row]) -> dict[str, Any]:
    """Judge a bundle beside itself."""
    task = engine.bundle.manifest.task
    result = evaluate(
        engine.bundle, engine.bundle, Examples("here/a.jsonl", task, rows, list(range(1, len(rows) + 1))), silent
    )
    assert (result["file"], result["examples"]) == ("a.jsonl", len(rows))
    return dict(result["figures"])


def test_every_task_is_judged() -> None:
    assert SCORERS.keys() == {spec.engine for spec in TASKS.values()}
    assert TASKS.keys() == PERFECT.keys() | {"generate"}


@pytest.mark.parametrize("task", PERFECT)
def test_what_an_engine_says_is_right(task: str, engine_of: Engines) -> None:
    make_rows, expected = PERFECT[task]
    engine = engine_of(task)
    result = figures(engine, make_rows(engine))
    assert {name: figure["before"] for name, figure in result.items()} == pytest.approx(expected)
    assert result.keys() <= set(TASKS[task].metrics)
    for figure in result.values():
        assert figure["after"] == figure["before"]
        assert (figure["difference"], figure["difference_interval"]) == (0, [0, 0])
        low, high = figure["before_interval"]
        assert low <= figure["before"] + 1e-9
        assert high >= figure["before"] - 1e-9


def test_labels_that_are_wrong_count(engine_of: Engines) -> None:
    engine = engine_of("classify")
    texts, labels = TEXTS[:4], list(engine.labels)
    said = [first.label for first in engine.classify(texts)]
    wrong = labels[(labels.index(said[0]) + 1) % len(labels)]
    rows = [{"text": t, "label": label} for t, label in zip(texts, [wrong, *said[1:]], strict=True)]
    result = figures(engine, rows)
    assert result["accuracy"]["before"] == 0.75
    low, high = result["accuracy"]["before_interval"]
    assert (low, high) == pytest.approx((0.3006, 0.9544), abs=1e-4)  # Wilson (1927), of 3 in 4


def test_nearest_texts_have_the_same_label(engine_of: Engines) -> None:
    engine = engine_of("embed")
    texts = [TEXTS[0], f"{TEXTS[0]}.", TEXTS[1], f"{TEXTS[1]}.", TEXTS[3]]
    rows = [{"text": t, "label": label} for t, label in zip(texts, "aabbc", strict=True)]
    vectors = engine.embed(texts).astype(np.float64)
    similar = vectors @ vectors.T - 9 * np.eye(len(texts))
    expected = np.mean(["aabbc"[j] == "aabbc"[i] for i, j in enumerate(similar.argmax(1))])
    assert figures(engine, rows)["accuracy"]["before"] == pytest.approx(expected)


def test_entities_count_by_place_and_label(engine_of: Engines) -> None:
    engine = engine_of("tag")
    rows = entities_of(engine)
    count = sum(len(row["entities"]) for row in rows)
    assert count > 1
    first = next(row for row in rows if row["entities"])
    start, end, label = first["entities"][0]
    first["entities"][0] = [start, end, "LOC" if label == "PER" else "PER"]
    assert figures(engine, rows)["span_f1"]["before"] == pytest.approx((count - 1) / count)


def test_no_answer_is_one(engine_of: Engines) -> None:
    engine = engine_of("answer")
    rows: list[Row] = [{"question": q, "context": c, "answers": []} for q, c in PAIRS]
    said = [result[0].text for result in engine.answer_many(PAIRS, handle_impossible_answer=True)]
    assert figures(engine, rows)["exact_match"]["before"] == pytest.approx(np.mean([text == "" for text in said]))


def test_ranks_count_from_the_right_passage(engine_of: Engines) -> None:
    engine = engine_of("rerank")
    order = [first.index for first in engine.rerank(TEXTS[0], TEXTS)]
    rows = [{"query": TEXTS[0], "passages": TEXTS, "best": order[place]} for place in (0, 1, 3)]
    assert figures(engine, rows)["reciprocal_rank"]["before"] == pytest.approx((1 + 1 / 2 + 1 / 4) / 3)


def test_what_texts_cost_a_decoder(engine_of: Engines) -> None:
    engine = engine_of("generate")
    texts = [*TEXTS, "naïve 日本"]
    scored = engine.score(texts)
    result = figures(engine, [{"text": text} for text in texts])
    total, tokens = sum(first.score for first in scored), sum(len(first.tokens) for first in scored)
    assert result["perplexity"]["before"] == pytest.approx(math.exp(-total / tokens))
    inner = engine._tokenizer.inner
    firsts = [
        0 if "bos_token_id" in engine.decoding else len(inner.decode(inner.encode(t).ids[:1]).encode()) for t in TEXTS
    ]
    count = sum(len(text.encode()) for text in TEXTS) - sum(firsts)
    bits = figures(engine, [{"text": text} for text in TEXTS])["bits_per_byte"]["before"]
    assert bits == pytest.approx(-sum(first.score for first in scored[:-1]) / math.log(2) / count)


def test_words_of_translations_by_hand(engine_of: Engines) -> None:
    engine = engine_of("translate")
    said = engine.translate([TEXTS[0]], do_sample=False)[0].text.split()
    rows = [{"source": TEXTS[0], "targets": [" ".join(["zzz", *said]), " ".join(["zzz"] * 90)]}]
    result = figures(engine, rows)
    assert result["exact_match"]["before"] == 0
    assert result["word_errors"]["before"] == pytest.approx(1 / (len(said) + 1))


def test_a_text_that_is_too_long_is_named_by_its_line(engine_of: Engines) -> None:
    engine = engine_of("translate")
    rows = [{"source": text, "targets": ["x"]} for text in ("a", "cat " * 99)]
    with pytest.raises(InputError, match=r"^line 7 of a\.jsonl has \d+ tokens, the limit is 40"):
        evaluate(engine.bundle, engine.bundle, Examples("a.jsonl", "translate", rows, [3, 7]), silent)


def test_both_sides_are_judged(fp32_bundle: Path, int8_bundle: Path) -> None:
    engines = [edgebert_runtime.Embedder.load(folder) for folder in (fp32_bundle, int8_bundle)]
    rows = scores_of(engines[0])
    for place, row in enumerate(rows):
        row["score"] = float(place)
    bundles = [engine.bundle for engine in engines]
    ours = evaluate(bundles[0], bundles[1], Examples("a.jsonl", "embed", rows, list(range(len(rows)))), silent)
    result = ours["figures"]["spearman"]
    for side, engine in zip(("before", "after"), engines, strict=True):
        first, second = (engine.embed([row[name] for row in rows]).astype(np.float64) for name in ("text", "other"))
        cosine = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
        order = cosine.argsort().argsort()
        assert result[side] == pytest.approx(np.corrcoef(order, np.arange(len(rows)))[0, 1])
    assert result["difference"] == result["after"] - result["before"]
