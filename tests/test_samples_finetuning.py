"""The samples of fine-tuning: their data by hand, their measures by hand, and runs of seconds."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import finetune_spans
import finetune_tagger
import finetuning
import numpy as np
import pytest
import torch
import wordnet_classifier
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

import edgebert
from edgebert.checkpoints import open_checkpoint
from edgebert.models.bert.heads import HeadedBert
from edgebert.training.bert_finetuning import span_examples, tagging_examples
from edgebert.training.examples import IGNORED, collate

TAGS = {name: number for number, name in enumerate(finetune_tagger.LABELS)}
Tagged = tuple[Path, list[finetune_tagger.Words], dict[str, finetune_tagger.Scores]]
Answered = tuple[Path, list[finetune_spans.Question], dict[str, finetune_spans.Scores]]


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Tagged:
    """Return the checkpoint of a run of seconds, the words that were held out, and the scores it reported."""
    folder = tmp_path_factory.mktemp("tagger") / "quick"
    data = finetune_tagger.quick(folder)
    return folder, data[2], finetune_tagger.main(folder, *data, finetune_tagger.QUICK)


@pytest.fixture(scope="module")
def answerer(tmp_path_factory: pytest.TempPathFactory) -> Answered:
    """Return the same of the sample that answers."""
    folder = tmp_path_factory.mktemp("spans") / "quick"
    data = finetune_spans.quick(folder)
    return folder, data[2], finetune_spans.main(folder, *data, finetune_spans.QUICK)


def loaded(folder: Path) -> tuple[HeadedBert, Tokenizer]:
    opened = open_checkpoint(folder)
    model = opened.load_model()
    assert isinstance(model, HeadedBert)
    return model, Tokenizer.from_str(opened.tokenizer_json)


def test_words_lose_capitals_and_punctuation() -> None:
    parts = finetune_tagger.read_words('"We paid $1,000," said U.S. men--and women; we\'re up-to-date! -- Why?')
    assert list(zip(parts.words, (finetune_tagger.LABELS[label] for label in parts.labels), strict=True)) == [
        ("we", "upper"),
        ("paid", "O"),
        ("1,000", "lower,"),
        ("said", "O"),
        ("u.s", "upper."),
        ("men", "O"),
        ("and", "O"),
        ("women", "lower,"),
        ("we're", "O"),
        ("up-to-date", "lower."),
        ("why", "upper."),
    ]


@given(st.lists(st.tuples(st.sampled_from(["tree", "don't", "é", "a-b"]), st.sampled_from(finetune_tagger.LABELS))))
def test_labels_write_words_as_they_were(pairs: list[tuple[str, str]]) -> None:
    words, labels = [word for word, _ in pairs], [TAGS[label] for _, label in pairs]
    written = finetune_tagger.restore(words, labels)
    assert finetune_tagger.read_words(written) == (words, labels)
    assert written.lower().translate(str.maketrans("", "", ",.")) == " ".join(words)


def test_a_text_is_cut_into_parts_that_keep_their_labels() -> None:
    text = finetune_tagger.Words([str(number) for number in range(11)], list(range(11)))
    parts = finetune_tagger.cut(text, 4)
    assert [part.labels for part in parts] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    assert all(part.words == [str(label) for label in part.labels] for part in parts)


def test_scores_of_labels_by_hand() -> None:
    scores = finetune_tagger.Scores.of([0, 0, 1, 3, 3, 0], [0, 1, 1, 3, 0, 0])
    assert scores.accuracy == pytest.approx(4 / 6)
    # O: 2 right of 3 found and 3 there; lower, 1 of 1 and 2; upper 1 of 2 and 1.
    assert scores.f1 == pytest.approx(
        {"O": 2 / 3, "lower,": 2 / 3, "lower.": 0.0, "upper": 2 / 3, "upper,": 0.0, "upper.": 0.0}
    )
    assert str(scores).split() == ["66.7%", "0.333", "0.667", "0.667", "0.000", "0.667", "0.000", "0.000"]


def test_the_tagger_learns_in_seconds_and_ships(tagger: Tagged) -> None:
    folder, held_out, scores = tagger
    assert list(scores) == ["always O", "PyTorch", "fp32 bundle", "int8 bundle"]
    right = [label for part in held_out for label in part.labels]
    assert scores["always O"].accuracy == pytest.approx(Counter(right)[0] / len(right))
    assert scores["PyTorch"].accuracy > scores["always O"].accuracy + 0.01
    assert scores["PyTorch"].f1["upper"] > 0.5
    assert scores["fp32 bundle"] == scores["PyTorch"]
    assert abs(scores["int8 bundle"].accuracy - scores["PyTorch"].accuracy) < 0.02
    assert sorted(file.name for file in folder.parent.iterdir()) == [
        "quick", "quick.bundle", "quick.encoder", "quick.int8"
    ]  # fmt: skip


@torch.no_grad()
def test_an_engine_labels_words_as_the_model_does(tagger: Tagged) -> None:
    folder, held_out, _ = tagger
    model, tokenizer = loaded(folder)
    texts, labels = [part.words for part in held_out], [part.labels for part in held_out]
    batch = collate(tagging_examples(tokenizer, texts, labels, max_tokens=finetune_tagger.MAX_TOKENS))
    logits = model(*batch[:3])
    assert isinstance(logits, torch.Tensor)
    expected = logits.argmax(-1)[batch.labels != IGNORED].tolist()
    assert finetune_tagger.label(edgebert.Tagger.load(folder.with_name("quick.bundle")), texts) == expected


def entries() -> list[finetune_spans.Entry]:
    return [finetune_spans.Entry(f"word{number}", f"meaning {number} of it") for number in range(40)]


def test_questions_are_about_their_contexts() -> None:
    questions = finetune_spans.ask(entries(), 600, seed=1)
    glosses = dict(entries())
    assert questions == finetune_spans.ask(entries(), 600, seed=1)
    assert questions != finetune_spans.ask(entries(), 600, seed=2)
    for question in questions:
        explained = re.findall(r"word\d+", question.context)
        assert len(set(explained)) == finetune_spans.ENTRIES
        assert all(f"{glosses[word]}." in question.context for word in explained)
        assert (question.word in explained) == (question.answer is not None)
        if question.answer:
            assert question.context[slice(*question.answer)] == glosses[question.word]
    absent = sum(question.answer is None for question in questions) / 600
    assert abs(absent - finetune_spans.ABSENT) < 4 * (2 / 9 / 600) ** 0.5  # four deviations
    places = Counter(
        re.findall(r"word\d+", question.context).index(question.word) for question in questions if question.answer
    )
    assert min(places[place] for place in range(finetune_spans.ENTRIES)) > 50


def test_entries_are_plain_words_with_their_first_definition(tmp_path: Path) -> None:
    lines = [
        '00001740 03 n 02 tree 0 oak 1 000 | a tall plant with wood; "an example"  ',
        "00001741 03 n 01 tree 0 000 | a figure that branches from one root  ",
        "00001742 03 n 01 oak_tree 0 000 | a tree with acorns on it  ",
        "00001743 03 n 01 bush 0 000 | a plant  ",
        "00001744 03 n 01 shrub 0 000 | a plant (low) of many stems  ",
    ]
    for name in wordnet_classifier.FILES:
        content = "  1 This software and database\n" + "".join(f"{line}\n" for line in lines if name == "data.noun")
        (tmp_path / name).write_text(content, encoding="utf-8")
    assert finetune_spans.read_entries(tmp_path) == [finetune_spans.Entry("tree", "a tall plant with wood")]


def test_words_are_held_out() -> None:
    many = [finetune_spans.Entry(f"word{number}", "x") for number in range(4000)]
    training, held_out = finetune_spans.split(many)
    assert sorted(training + held_out) == sorted(many)
    assert abs(len(held_out) - 200) < 60
    assert finetune_spans.split(many[::-1])[1] == held_out[::-1]


def test_scores_of_answers_by_hand() -> None:
    questions = [finetune_spans.Question("a", "abc", answer) for answer in ((0, 2), (1, 3), (1, 2), None, None)]
    scores = finetune_spans.Scores.of([(0, 2), None, (1, 3), None, (0, 1)], questions)
    assert (scores.exact, scores.absent, scores.total) == pytest.approx((1 / 3, 1 / 2, 2 / 5))
    assert str(scores).split() == ["33.33%", "50.00%", "40.00%"]


def test_answers_are_learned_in_seconds_and_ship(answerer: Answered) -> None:
    folder, questions, scores = answerer
    assert list(scores) == ["never an answer", "PyTorch", "fp32 bundle", "int8 bundle"]
    nowhere = sum(question.answer is None for question in questions) / len(questions)
    assert scores["never an answer"].exact == 0
    assert scores["never an answer"].total == pytest.approx(nowhere)
    assert scores["PyTorch"].exact > 0.15
    assert scores["fp32 bundle"] == scores["PyTorch"]
    assert abs(scores["int8 bundle"].total - scores["PyTorch"].total) < 0.1
    assert (folder.parent / "quick.int8" / "edgebert.json").is_file()


@torch.no_grad()
def test_the_reference_gives_an_engine_what_pytorch_computes(answerer: Answered) -> None:
    folder, questions, _ = answerer
    model, tokenizer = loaded(folder)
    words, contexts, answers = zip(*questions[:20], strict=True)
    batch = collate(span_examples(tokenizer, words, contexts, answers, max_tokens=finetune_spans.MAX_TOKENS))
    names = ("input_ids", "attention_mask", "token_type_ids")
    feeds = {name: tensor.numpy() for name, tensor in zip(names, batch, strict=False)}
    outputs = finetuning.Reference(model).run(["start_logits", "end_logits"], feeds)
    for ours, theirs in zip(outputs, model(*batch[:3]), strict=True):
        assert np.array_equal(ours, theirs.numpy())
    # Wherever the best start and the best end make an answer, or both say that there is none, the engine finds that.
    start, end = (np.where(feeds["attention_mask"] == 0, -np.inf, side).argmax(1) for side in outputs)
    texts = finetune_spans.answer(edgebert.Answerer.load(folder.with_name("quick.bundle")), questions[:20])
    inside = feeds["token_type_ids"][np.arange(20), start] == 1
    agreed = [row for row in range(20) if start[row] == end[row] == 0 or (inside[row] and start[row] <= end[row])]
    assert {texts[row] is None for row in agreed} == {True, False}
    assert all((texts[row] is None) == (end[row] == 0) for row in agreed)
