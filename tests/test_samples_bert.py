"""The BERT of the samples: its pre-training in seconds, its measure, and the bundles that come out of it."""

from __future__ import annotations

import math
from collections import Counter
from itertools import chain
from pathlib import Path

import pretrain_bert
import pytest
import torch
from pretraining_scores import Score, frequencies, judge
from torch import Tensor
from vocabularies import BERT_SPECIALS, word_pieces

import edgebert
from edgebert.models.bert.pretraining import MASKED, NEXT
from edgebert.training.bert_pretraining import Batch, Vocabulary
from edgebert.training.examples import IGNORED

TEXTS = pretrain_bert.read(None, quick=True)
SIZES, RECIPE = pretrain_bert.QUICK


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Score]]:
    """Return the checkpoint of a run of seconds, and what it said of itself and its bundles."""
    folder = tmp_path_factory.mktemp("bert") / "quick"
    return folder, pretrain_bert.main(folder, TEXTS, SIZES, RECIPE)


def test_a_run_of_seconds_learns_and_saves(quick: tuple[Path, dict[str, Score]]) -> None:
    folder, scores = quick
    assert [*scores] == ["frequencies alone", "PyTorch", "fp32 bundles", "int8 bundles"]
    assert scores["PyTorch"].token_loss < 0.95 * math.log(SIZES.vocabulary)
    names = [task + ending for task in (MASKED, NEXT) for ending in ("", ".int8")]
    assert {file.name for file in folder.parent.iterdir()} == {"quick", *(f"quick.{name}" for name in names)}


def test_bundles_are_worth_what_pytorch_says(quick: tuple[Path, dict[str, Score]]) -> None:
    _, scores = quick
    exact, exported = scores["PyTorch"], scores["fp32 bundles"]
    assert exported == pytest.approx(exact, rel=1e-4)
    assert (exact.tokens, exact.pairs) == (exported.tokens, exported.pairs)
    assert scores["int8 bundles"] == pytest.approx(exact, rel=0.02)


def test_bundles_are_used_as_any_others(quick: tuple[Path, dict[str, Score]]) -> None:
    folder, _ = quick
    filler = edgebert.load(folder.with_name(f"quick.{MASKED}"))
    assert isinstance(filler, edgebert.MaskFiller)
    assert len(filler.fill(["The [MASK] of the United States."], top_k=3)[0][0]) == 3
    classifier = edgebert.load(folder.with_name(f"quick.{NEXT}.int8"))
    assert isinstance(classifier, edgebert.Classifier)
    assert classifier.classify(["The harbor was frozen."], ["Ships could not leave."])[0].label in (
        "is_next",
        "not_next",
    )


def test_the_same_texts_are_held_out_each_time() -> None:
    texts = [[str(number)] for number in range(60)]
    training, held_out = pretrain_bert.split(texts)
    assert (training, held_out) == pretrain_bert.split(texts)
    assert len(held_out) == 3
    assert sorted([*training, *held_out]) == sorted(texts)
    assert training != texts[3:]
    assert len(pretrain_bert.split(texts[:9])[1]) == 2


def test_the_vocabulary_is_that_of_the_text() -> None:
    tokenizer = word_pieces([*chain.from_iterable(TEXTS)], SIZES.vocabulary)
    assert word_pieces([*chain.from_iterable(TEXTS)], SIZES.vocabulary).to_str() == tokenizer.to_str()
    vocabulary = Vocabulary.of(tokenizer)
    assert (vocabulary.size, vocabulary.pad) == (SIZES.vocabulary, 0)
    encoded = tokenizer.encode("The Congress", "has met")
    assert encoded.tokens == ["[CLS]", "the", "congress", "[SEP]", "has", *encoded.tokens[5:-1], "[SEP]"]
    assert encoded.type_ids == [0] * 4 + [1] * (len(encoded) - 4)
    ids = chain.from_iterable(chain.from_iterable(pretrain_bert.encode(tokenizer, TEXTS)))
    assert not {*ids} & {*range(len(BERT_SPECIALS))}  # every letter is known


def test_scores_are_those_worked_out_one_by_one() -> None:
    generator = torch.Generator().manual_seed(3)
    labels = torch.tensor([[IGNORED, 4, IGNORED], [2, IGNORED, 3]])
    batch = Batch(labels, labels, labels, labels, torch.tensor([0, 1]))
    tokens, following = torch.randn(3, 6, generator=generator), torch.randn(2, 2, generator=generator)

    def answer(batch: Batch) -> tuple[Tensor, Tensor]:
        assert batch.chosen.tolist() == [1, 3, 5]
        return tokens, following

    score = judge(answer, [batch, batch])
    rows = [(tokens[0], 4), (tokens[1], 2), (tokens[2], 3)]
    others = [(following[0], 0), (following[1], 1)]
    for score_parts, expected in ((score[:2], rows), (score[2:4], others)):
        costs = [
            math.log(sum(math.exp(x) for x in logits.tolist())) - logits[label].item() for logits, label in expected
        ]
        hits = [max(range(len(logits)), key=logits.tolist().__getitem__) == label for logits, label in expected]
        assert score_parts == pytest.approx((sum(costs) / len(costs), sum(hits) / len(hits)), rel=1e-5)
    assert (score.tokens, score.pairs) == (6, 4)


def test_frequencies_are_those_of_the_tokens() -> None:
    documents = [[[7, 7, 8]], [[7], [9]]]
    labels = torch.tensor([[7, 8], [7, 9]])  # all four are to be guessed
    batch = Batch(labels, labels, labels, labels, torch.tensor([0, 1]))
    tokens, following = frequencies(documents, 10)(batch)
    counts = Counter(chain.from_iterable(chain.from_iterable(documents)))
    for row in tokens.softmax(1).tolist():
        assert row == pytest.approx([(counts[id] + 1) / 15 for id in range(10)])
    assert following.softmax(1).tolist() == [[0.5, 0.5]] * 2


def test_addresses_are_cut_into_sentences() -> None:
    text = 'In 1790 Mr. Adams spoke. "It is so," he said! Was it? U. S. ships, no. 4 of them, left.'
    assert pretrain_bert.SENTENCE_END.split(text) == [
        "In 1790 Mr.",
        "Adams spoke.",
        '"It is so," he said!',
        "Was it?",
        "U.",
        "S. ships, no. 4 of them, left.",
    ]
