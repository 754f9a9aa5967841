"""Pairs and masked tokens are those that Devlin et al. (2019) describe."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from torch import Tensor

from edgebert.training.bert_pretraining import (
    Pair,
    Vocabulary,
    batches,
    collate,
    mask_tokens,
    pairs,
)
from edgebert.training.examples import IGNORED
from edgebert_runtime.errors import InputError
from tests.support.tiny import SPECIALS, VOCAB
from tests.training.pretraining_texts import CLS, MASK, PAD, SEP, UNK, VOCABULARY, random_documents, seeded

LIMIT = 5.0  # standard deviations by which a share may miss what is expected
STRIDE = 10_000  # between the first tokens of documents whose tokens are all different

Lengths = list[list[int]]  # of the sentences of each document


def numbered(lengths: Lengths) -> list[list[list[int]]]:
    """Return documents whose tokens count from STRIDE times their number, through the sentences."""
    documents = []
    for number, sentences in enumerate(lengths):
        tokens = itertools.count(number * STRIDE)
        documents.append([list(itertools.islice(tokens, length)) for length in sentences])
    return documents


def assert_share(count: int, total: int, expected: float) -> None:
    deviation = math.sqrt(expected * (1 - expected) / total)
    assert abs(count / total - expected) < LIMIT * deviation, (count, total, expected)


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=8), min_size=2, max_size=5).filter(
        lambda lengths: sum(map(any, lengths)) > 1
    ),
    st.integers(2, 20),
    st.integers(0, 2**32),
)
@settings(deadline=None)
def test_texts_are_sentences_that_follow_each_other_or_are_of_other_documents(
    lengths: Lengths, room: int, seed: int
) -> None:
    documents = numbered(lengths)
    sentences = [sentence for document in documents for sentence in document if sentence]
    starts, ends = {sentence[0] for sentence in sentences}, {sentence[-1] for sentence in sentences}
    last = {document[-1][-1] for document in ([s for s in document if s] for document in documents) if document}
    actual = list(pairs(documents, room, seeded(seed)))
    assert actual == list(pairs(documents, room, seeded(seed)))
    for first, second, follows in actual:
        for text in (first, second):
            assert text == list(range(text[0], text[0] + len(text)))
            assert 0 < len(text)
        assert len(first) <= room // 2
        assert first[-1] in ends
        assert first[0] in starts or len(first) == room // 2
        assert second[0] in starts
        assert len(first) + len(second) == room or second[-1] in last
        assert len(first) + len(second) <= room
        assert follows == (second[0] == first[-1] + 1)
        assert follows == (second[0] // STRIDE == first[0] // STRIDE)


def test_a_document_is_walked_through_as_worked_out_by_hand() -> None:
    documents = numbered([[2, 1, 7, 3, 2, 4], [3]])
    walks: dict[tuple[bool, ...], list[tuple[list[int], int]]] = {}
    for seed in range(200):
        actual = list(pairs(documents, 8, seeded(seed)))
        walks[tuple(pair.follows for pair in actual)] = [(first, second[0]) for first, second, _ in actual]
        assert all(pair.second == [10_000, 10_001, 10_002] for pair in actual if not pair.follows)
    a, b, c, d = [0, 1, 2], [6, 7, 8, 9], [10, 11, 12], [13, 14]
    assert walks == {
        (True, True): [(a, 3), (c, 13)],  # 3 to 7 follow, then 13 to 17; 15 to 18 are left alone
        (True, False, True): [(a, 3), (c, STRIDE), (d, 15)],
        (True, False, False): [(a, 3), (c, STRIDE), (d, STRIDE)],
        (False, True, True): [(a, STRIDE), (b, 10), (d, 15)],  # 10 to 13 follow, but 14 does not
        (False, True, False): [(a, STRIDE), (b, 10), (d, STRIDE)],
        (False, False, True): [(a, STRIDE), (b, STRIDE), (c, 13)],
        (False, False, False, True): [(a, STRIDE), (b, STRIDE), (c, STRIDE), (d, 15)],
        (False, False, False, False): [(a, STRIDE), (b, STRIDE), (c, STRIDE), (d, STRIDE)],
    }


def test_half_of_the_pairs_follow_and_the_others_begin_anywhere_else() -> None:
    lengths = [[3] * 300, [3] * 600, [3] * 100]
    documents = numbered(lengths)
    actual = [pair for seed in range(20) for pair in pairs(documents, 12, seeded(seed))]
    assert_share(sum(pair.follows for pair in actual), len(actual), 0.5)
    elsewhere = [pair.second[0] for pair in actual if not pair.follows and pair.first[0] < STRIDE]
    counts = Counter(start // STRIDE for start in elsewhere)
    assert_share(counts[1], len(elsewhere), 600 / 700)
    assert len({start for start in elsewhere if start >= 2 * STRIDE}) > 50


@pytest.mark.parametrize(
    ("lengths", "room", "message"),
    [
        ([[3, 4], [], [0]], 8, "no pairs of 8 tokens from 1 documents; both have to be 2 at least"),
        ([[3, 4], [5, 6]], 1, "no pairs of 1 tokens from 2 documents; both have to be 2 at least"),
    ],
)
def test_what_makes_no_pairs_is_refused(lengths: Lengths, room: int, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        list(pairs(numbered(lengths), room, seeded()))


def test_tokens_are_masked_in_the_proportions_of_the_paper() -> None:
    size, rows, width = 1000, 400, 120
    ids = torch.randint(5, size, (rows, width), generator=seeded(1))
    special = torch.zeros_like(ids, dtype=torch.bool)
    special[:, ::6] = True  # 20 of 120
    inputs, labels = mask_tokens(ids, special, MASK, size, seeded(2))
    chosen = labels != IGNORED
    assert chosen.sum(1).tolist() == [15] * rows
    assert not (chosen & special).any()
    assert torch.equal(labels[chosen], ids[chosen])
    assert torch.equal(inputs[~chosen], ids[~chosen])
    total, hidden, remaining = int(chosen.sum()), inputs[chosen] == MASK, inputs[chosen] == ids[chosen]
    by_chance = 0.1 / size  # a random token is the mask, or the one that was there
    assert_share(int(hidden.sum()), total, 0.8 + by_chance)
    assert_share(int(remaining.sum()), total, 0.1 + by_chance)
    swapped = inputs[chosen][~hidden & ~remaining].double()
    assert abs(swapped.mean().item() - size / 2) < LIMIT * size / math.sqrt(12 * len(swapped))
    assert swapped.min() < size / 50
    assert swapped.max() > size - size / 50
    for place in range(1, width, 6):
        assert_share(int(chosen[:, place].sum()), rows, 0.15)


@given(st.data(), st.integers(1, 4), st.integers(1, 12), st.integers(0, 2**32))
@settings(deadline=None)
def test_special_tokens_are_never_chosen(data: st.DataObject, rows: int, width: int, seed: int) -> None:
    flags = data.draw(st.lists(st.lists(st.booleans(), min_size=width, max_size=width), min_size=rows, max_size=rows))
    special = torch.tensor(flags)
    ids = torch.randint(5, 50, special.shape, generator=seeded(seed))
    inputs, labels = mask_tokens(ids, special, MASK, 50, seeded(seed))
    again = mask_tokens(ids, special, MASK, 50, seeded(seed))
    assert torch.equal(inputs, again[0])
    assert torch.equal(labels, again[1])
    chosen = labels != IGNORED
    assert not (chosen & special).any()
    assert torch.equal(inputs[~chosen], ids[~chosen])
    ordinary = [row.count(False) for row in flags]
    assert chosen.sum(1).tolist() == [min(count, max(1, round(count * 0.15))) for count in ordinary]


@pytest.mark.parametrize("seed", range(30))
def test_a_row_has_the_layout_of_the_paper(seed: int) -> None:
    batch = collate([Pair([7, 8, 9], [10], True), Pair([11], [12], False)], VOCABULARY, seeded(seed))
    text = torch.tensor([[CLS, 7, 8, 9, SEP, 10, SEP], [CLS, 11, SEP, 12, SEP, PAD, PAD]])
    assert batch.attention_mask.tolist() == [[1] * 7, [1] * 5 + [0] * 2]
    assert batch.token_type_ids.tolist() == [[0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0, 0]]
    assert batch.next_labels.tolist() == [0, 1]
    chosen = batch.labels != IGNORED
    assert chosen.sum(1).tolist() == [1, 1]
    assert torch.equal(batch.labels[chosen], text[chosen])
    assert torch.equal(batch.input_ids[~chosen], text[~chosen])
    assert not (chosen & (text < 5)).any()
    assert batch.chosen.tolist() == [place for place, label in enumerate(batch.labels.flatten()) if label != IGNORED]


def test_batches_are_the_same_for_a_seed_and_others_in_each_pass() -> None:
    documents = random_documents()
    generator = seeded(8)
    count = len(list(pairs(documents, 29, generator)))  # what the first pass makes, before anything else is drawn
    taken = [
        list(itertools.islice(batches(documents, VOCABULARY, size=4, length=32, seed=seed), 3 * (count // 4)))
        for seed in (8, 8, 9)
    ]
    assert all(
        torch.equal(a, b)
        for first, second in zip(taken[0], taken[1], strict=True)
        for a, b in zip(first, second, strict=True)
    )
    assert not same(taken[0][0].labels, taken[2][0].labels)
    assert not same(taken[0][0].labels, taken[0][count // 4].labels)
    assert all(batch.input_ids.shape[0] == 4 and batch.input_ids.shape[1] <= 32 for batch in taken[0])


def same(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and torch.equal(first, second)


def test_too_little_text_for_a_batch_is_refused() -> None:
    stream = batches(numbered([[3, 3], [3, 3]]), VOCABULARY, size=99, length=16)
    with pytest.raises(
        InputError, match=r"^the documents make 2 pairs, a batch takes 99; give more text or a lower size$"
    ):
        next(stream)


def test_a_vocabulary_is_read_from_a_tokenizer() -> None:
    tokenizer = Tokenizer(models.WordPiece({token: id for id, token in enumerate(VOCAB)}, unk_token=SPECIALS[UNK]))
    assert Vocabulary.of(tokenizer) == VOCABULARY
    lacking = Tokenizer(models.WordLevel({"[CLS]": 0, "[PAD]": 1, "[UNK]": 2}, unk_token="[UNK]"))
    with pytest.raises(InputError, match=r"^the tokenizer has no \[SEP\], \[MASK\]; add "):
        Vocabulary.of(lacking)
