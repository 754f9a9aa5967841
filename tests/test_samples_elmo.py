"""The ELMo of the sample: a run of seconds, its batches, and its perplexity by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import train_elmo
from tokenizers import Tokenizer
from train_gpt import texts
from training_run import Sizes

import edgebert
from edgebert.checkpoints import open_checkpoint
from edgebert.models.elmo.model import BiLanguageModel, Elmo
from edgebert_runtime import Bundle

SIZES, RECIPE = train_elmo.QUICK


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, train_elmo.Perplexity]:
    """Return the checkpoint of a run of seconds, and the perplexity that it reported."""
    folder = tmp_path_factory.mktemp("elmo") / "quick"
    return folder, train_elmo.main(folder, *texts(None, quick=True), SIZES, RECIPE)


def reopened(folder: Path) -> BiLanguageModel:
    elmo = open_checkpoint(folder).load_model()
    assert isinstance(elmo, Elmo)
    return BiLanguageModel(elmo)


def test_a_run_of_seconds_learns_and_saves(quick: tuple[Path, train_elmo.Perplexity]) -> None:
    folder, result = quick
    training, held_out = texts(None, quick=True)
    tokenizer = train_elmo.train_tokenizer(training, SIZES.vocabulary)
    rows, unseen = (train_elmo.encode(tokenizer, text, SIZES.length) for text in (training, held_out))
    assert train_elmo.perplexity(reopened(folder), unseen, SIZES) == result
    before = train_elmo.perplexity(train_elmo.make_model(SIZES, 0), unseen, SIZES)
    assert all(perplexity > 0.9 * SIZES.vocabulary for perplexity in before)
    assert all(perplexity < train_elmo.frequencies(rows, unseen, SIZES.vocabulary) for perplexity in result)
    assert [file.name for file in folder.parent.iterdir()] == ["quick"]
    assert json.loads((folder / "tokenizer.json").read_text()) == json.loads(tokenizer.to_str())


def test_perplexity_by_hand(quick: tuple[Path, train_elmo.Perplexity]) -> None:
    """Each token by itself, from the rows cut before it and behind it."""
    model, rows = reopened(quick[0]), [[1, 40, 50, 60, 2], [1, 70, 2], [1, 41, 51, 61, 71, 81, 2]]
    table, nats = model.elmo.token_embedding.weight, [0.0, 0.0]
    with torch.no_grad():
        for row in rows:
            for place in range(1, len(row)):
                parts = (row[:place], row[place:])
                lengths = [torch.tensor([len(part)], dtype=torch.int32) for part in parts]
                reads = [model.elmo.read(torch.tensor(p)[:, None], n) for p, n in zip(parts, lengths, strict=True)]
                ahead, back = reads[0][0][-1][-1, 0], reads[1][1][-1][0, 0]
                nats[0] -= float((table @ ahead).log_softmax(0)[row[place]])
                nats[1] -= float((table @ back).log_softmax(0)[row[place - 1]])
    predicted = sum(len(row) - 1 for row in rows)
    expected = [math.exp(total / predicted) for total in nats]
    assert train_elmo.perplexity(model, rows, SIZES) == pytest.approx(expected, rel=1e-4)


def test_frequencies_by_hand() -> None:
    training, unseen = [[1, 3, 3, 2], [1, 4, 2]], [[1, 3, 2], [1, 5, 2]]
    # Of 7 tokens and one more for each of 6: 3 and 2 are three in 13, 5 is one, at the places to be predicted.
    assert train_elmo.frequencies(training, unseen, 6) == pytest.approx(13 / (3 * 3 * 1 * 3) ** 0.25)


def test_long_sentences_are_cut_and_nothing_is_lost() -> None:
    tokenizer = train_elmo.train_tokenizer("one two three four. " * 30, 300)
    text = "one two three. Four one!\nthree two one two three four one two three four"
    rows = train_elmo.encode(tokenizer, text, 8)
    assert all(row[0] == train_elmo.START and row[-1] == train_elmo.END and len(row) <= 8 for row in rows)
    assert tokenizer.decode([token for row in rows for token in row[1:-1]]) == " " + text.replace("\n", " ")
    assert tokenizer.encode("one two").ids == train_elmo.encode(tokenizer, "one two", 8)[0]


def test_every_row_is_read_once_in_a_pass() -> None:
    rows = [[1, *[3 + number] * (number % 9), 2] for number in range(200)]
    sizes = Sizes(length=11, batch=40)
    stream, again = (train_elmo.batches(rows, sizes, seed=1) for _ in range(2))
    passes = []
    for _ in range(2):
        read: list[list[int]] = []
        while len(read) < len(rows):
            ids, mask = next(stream)
            assert ids.numel() <= 40
            assert torch.equal(next(again)[0], ids)
            assert torch.equal(mask, (ids != train_elmo.PAD).long())
            read += [row[row != train_elmo.PAD].tolist() for row in ids]
        assert sorted(read) == sorted(rows)
        passes.append(read)
    assert passes[0] != passes[1]


@pytest.mark.slow
def test_the_bundles_agree_with_pytorch(quick: tuple[Path, train_elmo.Perplexity], tmp_path: Path) -> None:
    folder = tmp_path / "quick"
    sentences = [" ".join(line.split()[:4]) for line in texts(None, quick=True)[1].split("\n")]
    folder.symlink_to(quick[0])
    assert train_elmo.ship(folder, sentences) > 0.99
    manifest = Bundle.open(tmp_path / "quick.int8").manifest
    assert manifest.weights.scheme == "int8"
    assert manifest.weights.bytes < 0.5 * Bundle.open(tmp_path / "quick.bundle").manifest.weights.bytes
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    elmo = reopened(quick[0]).elmo
    for sentence, vector in zip(
        sentences, edgebert.Embedder.load(tmp_path / "quick.bundle").embed(sentences), strict=True
    ):
        ids = torch.tensor([tokenizer.encode(sentence).ids])
        with torch.no_grad():
            mean = elmo(ids, torch.ones_like(ids))[0].mean(0)
        np.testing.assert_allclose(vector, mean / mean.norm(), rtol=1e-3, atol=1e-5)
