"""Every command that runs an engine, over a tiny bundle of each task: what is printed is what the library gives."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgebert_runtime
from tests.support.verbs import VERBS

TEXTS = ["the cat sat on a mat", "a dog ran , and ran in rain", "sun"]
STDIN = "".join(f"{text}\n" for text in TEXTS)
LONG = "the cat sat on a mat and a dog ran in rain " * 4
TaskBundle = Callable[[str], Path]


def rows(result: Any) -> list[list[str]]:
    """Return the cells of what was printed."""
    assert (result.exit_code, result.stderr) == (0, "")
    return [line.split("\t") for line in result.stdout.splitlines()]


def objects(result: Any) -> list[dict[str, Any]]:
    """Return the objects that were printed."""
    assert (result.exit_code, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


def same(printed: object, score: float) -> bool:
    """Say whether a printed score is the float32 that the library gives."""
    return bool(np.float32(str(printed)) == np.float32(score))


def test_embed_windows(run: Any, task_bundle: TaskBundle) -> None:
    engine = edgebert_runtime.Embedder.load(task_bundle("embed"))
    expected = engine.embed([LONG], max_tokens=9, long_texts="mean", stride=2)
    options = ["--max-tokens", "9", "--long-texts", "mean", "--stride", "2", "--json"]
    (parsed,) = objects(run("embed", task_bundle("embed"), LONG, *options))
    assert np.array(parsed["vector"], np.float32).tolist() == expected[0].tolist()
    assert parsed["truncated"] is False


def test_classify(run: Any, task_bundle: TaskBundle) -> None:
    folder = task_bundle("classify")
    expected = edgebert_runtime.Classifier.load(folder).classify(TEXTS)
    printed = rows(run("classify", folder, "--top-k", "2", stdin=STDIN))
    parsed = objects(run("classify", folder, "--json", *TEXTS))
    for reference, cells, item in zip(expected, printed, parsed, strict=True):
        assert (cells[0], item["label"]) == (reference.label, reference.label)
        assert same(cells[1], reference.score)
        assert same(cells[3], np.sort(reference.scores)[-2])
        assert np.array(list(item["scores"].values()), np.float32).tolist() == reference.scores.tolist()
    (cut,) = run("classify", folder, "--max-tokens", "5", LONG).stderr.splitlines()
    assert cut == "edgebert: texts cut because they were too long: 1 (see --max-tokens)"


def test_classify_pairs(run: Any, task_bundle: TaskBundle) -> None:
    folder = task_bundle("next-sentence")
    expected = edgebert_runtime.Classifier.load(folder).classify(TEXTS[:2], TEXTS[1:])
    printed = rows(run("classify", folder, "--pairs", stdin=f"{TEXTS[0]}\t{TEXTS[1]}\n{TEXTS[1]}\t{TEXTS[2]}\n"))
    assert [cells[0] for cells in printed] == [reference.label for reference in expected]
    assert all(same(cells[1], reference.score) for cells, reference in zip(printed, expected, strict=True))
    assert "give --pairs" in run("classify", folder, *TEXTS).stderr


def test_rerank(run: Any, task_bundle: TaskBundle) -> None:
    folder = task_bundle("rerank")
    expected = edgebert_runtime.Reranker.load(folder).rerank("the dog", TEXTS)
    printed = rows(run("rerank", folder, "the dog", stdin=STDIN))
    assert [cells[1] for cells in printed] == [reference.text for reference in expected]
    assert all(same(cells[0], reference.score) for cells, reference in zip(printed, expected, strict=True))
    parsed = objects(run("rerank", folder, "the dog", *TEXTS, "--json", "--top-k", "2"))
    assert [item["index"] for item in parsed] == [reference.index for reference in expected[:2]]
    result = run("rerank", folder, "the dog", "--no-truncate", "--max-tokens", "9", stdin=f"sun\n{LONG}\n")
    assert result.stderr.startswith("edgebert: error: line 2 of standard input has ")


def test_choose(run: Any, task_bundle: TaskBundle) -> None:
    folder = task_bundle("multiple-choice")
    expected = edgebert_runtime.MultipleChoice.load(folder).choose("the dog", TEXTS)
    printed = rows(run("choose", folder, "the dog", *TEXTS))
    assert [cells[1] for cells in printed] == [reference.text for reference in expected]
    assert all(same(cells[0], reference.score) for cells, reference in zip(printed, expected, strict=True))
    parsed = objects(run("choose", folder, "the dog", *TEXTS, "--json"))
    assert [item["index"] for item in parsed] == [reference.index for reference in expected]
    assert "choice 2 has the lone surrogate" in run("choose", folder, "the dog", "a", "\udcff").stderr
    result = run("choose", folder, "the dog", "sun", LONG, "--no-truncate", "--max-tokens", "9")
    assert result.stderr.startswith("edgebert: error: a choice with the prompt has ")
    assert run("choose", folder, "the dog", "sun", "\udcff", "--encoding-errors", "replace").exit_code == 0


@pytest.mark.parametrize("aggregation", ["none", "simple", "first", "max"])
def test_tag(run: Any, task_bundle: TaskBundle, aggregation: str) -> None:
    folder, texts = task_bundle("tag"), [*TEXTS, LONG]
    options: dict[str, Any] = {"aggregation": aggregation, "max_tokens": 9, "stride": 2}
    expected = edgebert_runtime.Tagger.load(folder).tag(texts, **options)
    arguments = ["--aggregation", aggregation, "--max-tokens", "9", "--stride", "2"]
    printed = rows(run("tag", folder, *arguments, stdin=f"{STDIN}{LONG}\n"))
    places = [(index, reference) for index, entities in enumerate(expected, 1) for reference in entities]
    assert len(places) > 4
    for cells, (index, reference) in zip(printed, places, strict=True):
        assert (*cells[:4], cells[5]) == (
            str(index),
            str(reference.start),
            str(reference.end),
            reference.label,
            reference.text,
        )
        assert texts[index - 1][int(cells[1]) : int(cells[2])] == cells[5]
        assert same(cells[4], reference.score)
    parsed = objects(run("tag", folder, *arguments, "--json", *texts))
    assert [len(item["entities"]) for item in parsed] == [len(entities) for entities in expected]


def test_answer(run: Any, task_bundle: TaskBundle, tmp_path: Path) -> None:
    folder = task_bundle("answer")
    pairs = [(question, LONG.strip()) for question in TEXTS]
    options: dict[str, Any] = {"top_k": 3, "handle_impossible_answer": True, "max_answer_tokens": 4, "max_tokens": 20}
    expected = edgebert_runtime.Answerer.load(folder).answer_many(pairs, **options)
    arguments = ["--top-k", "3", "--no-answer", "--max-answer-tokens", "4", "--max-tokens", "20"]
    printed = rows(run("answer", folder, *TEXTS, *arguments, stdin=LONG.strip()))
    answers = [(index, reference) for index, spans in enumerate(expected, 1) for reference in spans]
    for cells, (index, reference) in zip(printed, answers, strict=True):
        assert (cells[0], *cells[2:]) == (str(index), str(reference.start), str(reference.end), reference.text)
        assert same(cells[1], reference.score)
    (tmp_path / "c.txt").write_text(LONG.strip())
    parsed = objects(run("answer", folder, *TEXTS, *arguments, "--json", "--context-file", tmp_path / "c.txt"))
    assert [[reference["text"] for reference in item["answers"]] for item in parsed] == [
        [o.text for o in a] for a in expected
    ]
    result = run("answer", folder, "sun", LONG, "--context", "the mat and the dog")
    assert result.stderr.startswith("edgebert: error: question 2 with its context ")


def test_fill_mask(run: Any, task_bundle: TaskBundle) -> None:
    folder, texts = task_bundle("fill-mask"), ["the [MASK] sat on a [MASK]", "[MASK]"]
    expected = edgebert_runtime.MaskFiller.load(folder).fill(texts, top_k=2)
    printed = rows(run("fill-mask", folder, "--top-k", "2", stdin="".join(f"{text}\n" for text in texts)))
    fillings = [
        (str(index), str(mask), reference)
        for index, masks in enumerate(expected, 1)
        for mask, ranked in enumerate(masks, 1)
        for reference in ranked
    ]
    for cells, (index, mask, reference) in zip(printed, fillings, strict=True):
        assert (*cells[:2], *cells[3:]) == (index, mask, reference.token, reference.text)
        assert same(cells[2], reference.score)
    parsed = objects(run("fill-mask", folder, "--target", "cat", "--target", "mat", "--json", texts[0]))
    assert [{reference["token"] for reference in mask} for mask in parsed[0]["masks"]] == [{"cat", "mat"}] * 2
    assert "line 2 of standard input has no [MASK]" in run("fill-mask", folder, stdin="[MASK]\nsun\n").stderr
    assert "--target: 'the cat' is not one token" in run("fill-mask", folder, "[MASK]", "--target", "the cat").stderr


def test_generate(run: Any, task_bundle: TaskBundle) -> None:
    folder = task_bundle("generate")
    engine = edgebert_runtime.Generator.load(folder)
    options = ["--max-new-tokens", "6", "--num-beams", "3", "--num-return-sequences", "2"]
    expected = engine.generate(TEXTS, max_new_tokens=6, num_beams=3, num_return_sequences=2)
    parsed = objects(run("generate", folder, *options, "--json", stdin=STDIN))
    places = [
        (index, rank, reference) for index, several in enumerate(expected) for rank, reference in enumerate(several)
    ]
    for item, (index, rank, reference) in zip(parsed, places, strict=True):
        assert (item["index"], item["sequence"], item["text"]) == (index, rank, reference.text)
        assert (item["tokens"], item["finish_reason"]) == (list(reference.tokens), reference.finish_reason)
        assert (
            np.array(item["token_logprobs"], np.float32).tolist()
            == np.array(reference.token_logprobs, np.float32).tolist()
        )
        assert same(item["score"], reference.score)
    (greedy,) = engine.generate(["\n".join(TEXTS)], max_new_tokens=6)
    command = ["generate", folder, "--max-new-tokens", "6", "--one-text"]
    outputs = [run(*command, *more, stdin=STDIN) for more in ([], ["--stream"])]
    assert {output.stderr for output in outputs} == {""}
    assert {output.stdout for output in outputs} == {f"{as_it_is(greedy.text)}\n"}
    assert run("generate", folder, "sun", LONG * 9).stderr.startswith("edgebert: error: text 2 has ")
    result = run("generate", folder, "sun", "--prompt-lookup", "--num-beams", "2")
    assert "--prompt-lookup guesses for one sequence at a time; leave out --num-beams" in result.stderr


def as_it_is(text: str) -> str:
    """Return a text without control characters but the ends of its lines and tabs."""
    return "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") and c not in "\n\t" else c for c in text)


def test_score(run: Any, task_bundle: TaskBundle) -> None:
    folder = task_bundle("generate")
    expected = edgebert_runtime.Generator.load(folder).score(TEXTS)
    printed = rows(run("score", folder, stdin=STDIN))
    parsed = objects(run("score", folder, "--json", *TEXTS))
    for reference, cells, item in zip(expected, printed, parsed, strict=True):
        assert same(cells[0], reference.score)
        assert same(cells[1], reference.perplexity)
        assert (int(cells[2]), item["tokens"]) == (len(reference.tokens), list(reference.tokens))
        assert (
            np.array(item["token_logprobs"], np.float32).tolist()
            == np.array(reference.token_logprobs, np.float32).tolist()
        )
    wrong = run("score", task_bundle("embed"), "a").stderr
    assert wrong.endswith("is a bundle of task embed; run 'edgebert embed'\n")


def test_bundles_that_generate_are_shown_and_quantized(run: Any, task_bundle: TaskBundle, tmp_path: Path) -> None:
    folder = task_bundle("generate")
    shown = run("info", folder).stdout
    defaults = json.loads(run("info", folder, "--json").stdout)["decoding"]
    assert f"decoding\n  eos_token_id  {defaults['eos_token_id']}\n" in shown
    quantized = run(
        "quantize", folder, tmp_path / "q", "--scheme", "int4", "--block-size", "16", "--min-fidelity", "0.5"
    )
    assert (quantized.exit_code, quantized.stderr) == (0, "")
    for part in ("int4", "fidelity", "perplexity", "generated"):
        assert part in quantized.stdout
    assert run("generate", tmp_path / "q", "sun", "--max-new-tokens", "3").exit_code == 0


def test_translate(run: Any, task_bundle: TaskBundle) -> None:
    folder = task_bundle("translate")
    engine = edgebert_runtime.Translator.load(folder)
    options = ["--max-new-tokens", "6", "--num-beams", "3"]
    expected = engine.translate([*TEXTS, ""], max_new_tokens=6, num_beams=3)
    parsed = objects(run("translate", folder, *options, "--json", stdin=f"{STDIN}\n"))
    for item, reference in zip(parsed, expected, strict=True):
        assert (item["text"], item["tokens"], item["finish_reason"]) == (
            reference.text,
            list(reference.tokens),
            reference.finish_reason,
        )
        assert same(item["score"], reference.score)
    (split,) = engine.translate(["\n".join(TEXTS)], max_new_tokens=6, split_sentences=True)
    command = ["translate", folder, "--max-new-tokens", "6", "--one-text", "--split-sentences"]
    for more in ([], ["--stream"]):
        assert run(*command, *more, stdin=STDIN).stdout == f"{as_it_is(split.text)}\n"
    long = run("translate", folder, "sun", LONG * 9)
    assert long.stderr.startswith("edgebert: error: text 2 has ")
    assert long.stderr.endswith("the limit is 40; split it, or pass --split-sentences\n")
    unheard = run("translate", folder, "sun", "--target-language", "de")
    assert "--target-language de has no effect: the model knows one pair of languages" in unheard.stderr
    (scored,) = engine.score([(TEXTS[0], TEXTS[1])])
    (printed,) = rows(run("score", folder, f"{TEXTS[0]}\t{TEXTS[1]}"))
    assert same(printed[0], scored.score)
    assert "translate (seq2seq, target cpu)" in run("info", folder).stdout


@pytest.mark.parametrize("task", [task for task in VERBS if task not in ("generate", "translate")])
def test_bundles_of_all_tasks_are_shown_and_measured(run: Any, task_bundle: TaskBundle, task: str) -> None:
    folder = task_bundle(task)
    shown = run("info", folder)
    assert f"{task} (bert, target cpu)" in shown.stdout
    assert ("settings" in shown.stdout) is bool(json.loads(run("info", folder, "--json").stdout)["settings"])
    wrong = next(verb for verb in ("tag", "embed") if VERBS[task] != verb)
    assert run(wrong, folder, "a").stderr == (
        f"edgebert: error: {folder} is a bundle of task {task}; run 'edgebert {VERBS[task]}'\n"
    )
    figures = json.loads(run("bench", folder, "--seconds", "0.05", "--threads", "1", "--json").stdout)
    assert figures["throughput"]["texts_per_second"] > 0
