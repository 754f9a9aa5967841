"""The input forms of the GPT paper, id by id, and the tokens that they need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from tokenizers import AddedToken, Tokenizer

from edgebert.checkpoints import open_checkpoint
from edgebert.models.gpt2.heads import Gpt2LanguageModel
from edgebert.training.examples import Example, collate, text_examples
from edgebert.training.gpt_finetuning import (
    MARKS,
    add_tokens,
    choice_examples,
    new_head,
    similarity_examples,
)
from edgebert_runtime.errors import CheckpointError, InputError
from tests.training.tiny_words import DELIMITER, EXTRACT, START, WORDS, A, B, C, D, E, F, tokenizer_of, write_words


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_words(tmp_path_factory.mktemp("gpt") / "gpt")


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return new_head(folder, 2)[1]


def rows(examples: list[Example]) -> list[list[list[int]]]:
    return [[row.ids for row in example.rows] for example in examples]


def test_texts_and_entailment_by_hand(tokenizer: Tokenizer) -> None:
    actual = text_examples(tokenizer, ["a b", "", "a <extract> b"], [1, 0, 1], max_tokens=9)
    assert rows(actual) == [
        [[START, A, B, EXTRACT]],
        [[START, EXTRACT]],
        # What looks like a new token in a text is none.
        [[START, A, 1, B, EXTRACT]],
    ]
    assert [example.labels for example in actual] == [[1], [0], [1]]
    actual = text_examples(tokenizer, ["a b", "a b c d"], [1, 0], ["c d", "e f"], max_tokens=7)
    assert rows(actual) == [[[START, A, B, DELIMITER, C, D, EXTRACT]], [[START, A, B, DELIMITER, E, F, EXTRACT]]]
    assert {kind for example in actual for row in example.rows for kind in row.token_type_ids} == {0}
    (cut,) = text_examples(tokenizer, ["a b c d e f"], [0], max_tokens=5)
    assert rows([cut]) == [[[START, A, B, C, EXTRACT]]]


def test_similarity_by_hand(tokenizer: Tokenizer) -> None:
    actual = similarity_examples(tokenizer, ["a b", "d"], ["c", "e f"], [1, 0], max_tokens=9)
    assert rows(actual) == [
        [[START, A, B, DELIMITER, C, EXTRACT], [START, C, DELIMITER, A, B, EXTRACT]],
        [[START, D, DELIMITER, E, F, EXTRACT], [START, E, F, DELIMITER, D, EXTRACT]],
    ]
    assert collate(actual).labels.tolist() == [[1], [0]]


def test_choices_by_hand(tokenizer: Tokenizer) -> None:
    actual = choice_examples(tokenizer, ["a b"], [["c", "d e", ""]], [2], max_tokens=9)
    assert rows(actual) == [
        [
            [START, A, B, DELIMITER, C, EXTRACT],
            [START, A, B, DELIMITER, D, E, EXTRACT],
            [START, A, B, DELIMITER, EXTRACT],
        ]
    ]
    assert actual[0].labels == [2]


BAD: dict[str, tuple[Callable[[Tokenizer], object], str]] = {
    "others": (lambda t: similarity_examples(t, ["a"], ["b", "c"], [0], max_tokens=9), "^1 texts, 2 others, 1 labels"),
    "contexts": (
        lambda t: choice_examples(t, ["a"], [["b"], ["c"]], [0], max_tokens=9),
        "^1 contexts, 2 choices, 1 la",
    ),
    "label": (
        lambda t: choice_examples(t, ["a"], [["b", "c"]], [2], max_tokens=9),
        "^text 0 has the label 2 and 2 cho",
    ),
    "room": (lambda t: similarity_examples(t, ["a"], ["b"], [0], max_tokens=3), "no room beside 3 special tokens"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_refused(case: str, tokenizer: Tokenizer) -> None:
    call, message = BAD[case]
    with pytest.raises(InputError, match=message):
        call(tokenizer)


def test_new_tokens_get_new_rows(folder: Path) -> None:
    before = open_checkpoint(folder).load_model()
    assert isinstance(before, Gpt2LanguageModel)
    model, tokenizer = new_head(folder, 3, seed=4)
    assert [tokenizer.token_to_id(mark) for mark in MARKS] == [START, DELIMITER, EXTRACT]
    assert model.gpt2.config.vocab_size == len(WORDS) + 3
    old, table = before.gpt2.state_dict(), model.gpt2.state_dict()
    assert torch.equal(table["token_embedding.weight"][: len(WORDS)], old["token_embedding.weight"])
    new = table["token_embedding.weight"][len(WORDS) :]
    assert 0.015 < float(new.std()) < 0.025
    assert len({tuple(row) for row in new.tolist()}) == 3
    assert all(torch.equal(table[name], old[name]) for name in old if name != "token_embedding.weight")
    assert model.head.weight.shape == (3, 32)


def test_tokens_take_spare_rows_first_and_keep_those_they_have(folder: Path) -> None:
    model = open_checkpoint(folder).load_model()
    assert isinstance(model, Gpt2LanguageModel)
    short = tokenizer_of(WORDS[:-1])
    size = len(short.get_vocab())
    gpt2, tokenizer = add_tokens(model.gpt2, short, ["<one>", "b", "<two>"])
    assert len(short.get_vocab()) == size
    assert [tokenizer.token_to_id(token) for token in ("<one>", "b", "<two>")] == [7, B, 8]
    assert len(model.gpt2.token_embedding.weight) == 8
    assert gpt2.token_embedding.weight.shape == (9, 32)
    assert torch.equal(gpt2.token_embedding.weight[:7], model.gpt2.token_embedding.weight[:7])
    new, spare = gpt2.token_embedding.weight.detach()[7:], model.gpt2.token_embedding.weight.detach()[7]
    assert float(new.abs().max()) < 0.1 < float(spare.abs().max())
    again, same = add_tokens(gpt2, tokenizer, ["<one>", "<two>"], seed=1)
    assert same.get_vocab() == tokenizer.get_vocab()
    assert torch.equal(again.token_embedding.weight, gpt2.token_embedding.weight)
    assert same.get_added_tokens_decoder()[7] == AddedToken("<one>", normalized=False, special=True)


def test_only_decoders_with_a_tied_head(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="a bert has no head for generate"):
        new_head(checkpoint, 2)
    untied = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=8, n_embd=8, n_layer=1, n_head=2, n_positions=9, tie_word_embeddings=False, eos_token_id=0
        )
    )
    untied.save_pretrained(tmp_path)
    tokenizer_of(WORDS).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match="has a head of its own; the auxiliary objective needs a tied one$"):
        new_head(tmp_path, 2)
