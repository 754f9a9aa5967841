"""Examples worked out by hand and by brute force: ids, labels, windows, batches."""

from __future__ import annotations

import random
import string
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from edgebert.checkpoints import open_checkpoint
from edgebert.training.bert_finetuning import span_examples, tagging_examples
from edgebert.training.examples import IGNORED, Example, batches, collate, text_examples
from edgebert_runtime.errors import InputError
from edgebert_runtime.inputs.special_tokens import EncodedInput
from tests.support.tiny import VOCAB

words = st.lists(st.text("catsdogre ,.é日\u200d", max_size=6), max_size=8)


def tokenizer_of(folder: Path) -> Tokenizer:
    return Tokenizer.from_str(open_checkpoint(folder).tokenizer_json)


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Path) -> Tokenizer:
    return tokenizer_of(checkpoint)


def ids(text: str) -> list[int]:
    return [VOCAB.index(token) for token in text.split()]


def test_texts_by_hand(tokenizer: Tokenizer) -> None:
    (actual,) = text_examples(tokenizer, ["The cats"], [4], max_tokens=9)
    assert actual == Example((EncodedInput(ids("[CLS] the cat ##s [SEP]"), [0] * 5),), [4])
    first, second = text_examples(tokenizer, ["the cats", "the cats"], [4, 0], ["a dog", "[SEP]"], max_tokens=9)
    assert first == Example((EncodedInput(ids("[CLS] the cat ##s [SEP] a dog [SEP]"), [0] * 5 + [1] * 3),), [4])
    # The characters of a special token are no special token, and of two texts the longer one is cut.
    assert second.rows[0].ids == ids("[CLS] the cat ##s [SEP] [ s ##e [SEP]")
    (cut,) = text_examples(tokenizer, ["the dog sat on a mat"], [0], ["a cat"], max_tokens=8)
    assert cut.rows[0].ids == ids("[CLS] the dog sat [SEP] a cat [SEP]")


def test_tags_by_hand(tokenizer: Tokenizer) -> None:
    texts = [["The", "cats", "dog,", "a"], ["", "\u200d"], ["", "\u200d", "rain"]]
    labels = [[5, 6, 7, 8], [1, 2], [1, 2, 3]]
    actual = tagging_examples(tokenizer, texts, labels, max_tokens=20)
    assert [first.rows[0].ids for first in actual] == [ids("[CLS] the cat ##s dog , a [SEP]"), ids("[CLS] rain [SEP]")]
    no = IGNORED
    assert [first.labels for first in actual] == [[no, 5, 6, no, 7, no, 8, no], [no, 3, no]]
    (cut,) = tagging_examples(tokenizer, texts[:1], labels[:1], max_tokens=5)
    assert (cut.rows[0].ids, cut.labels) == (ids("[CLS] the cat ##s [SEP]"), [no, 5, 6, no, no])


def test_tags_where_tokens_hold_the_space_before_them() -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: number for number, token in enumerate([*alphabet, "Ġc"])}
    tokenizer = Tokenizer(models.BPE(vocab, [("Ġ", "c")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    (actual,) = tagging_examples(tokenizer, [["ab", "ca", "b"]], [[5, 6, 7]], max_tokens=20)
    assert actual.rows[0].ids == [vocab[token] for token in ("a", "b", "Ġc", "a", "Ġ", "b")]
    assert actual.labels == [5, IGNORED, 6, IGNORED, IGNORED, 7]


@settings(max_examples=200, deadline=None)
@given(words)
def test_each_word_is_judged_at_its_first_token(inputs: list[str]) -> None:
    tokenizer = Tokenizer(models.WordPiece({token: i for i, token in enumerate(VOCAB)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    owners = [number for number, word in enumerate(inputs) for _ in f"{word} "]
    tokens = tokenizer.encode(" ".join(inputs), add_special_tokens=False)
    firsts: dict[int, int] = {}
    for place, (start, _) in enumerate(tokens.offsets):
        firsts.setdefault(owners[start], place)
    actual = tagging_examples(tokenizer, [inputs], [list(range(len(inputs)))], max_tokens=100)
    assert len(actual) == bool(firsts)
    for first in actual:
        assert first.rows[0].ids == [2, *tokens.ids, 3]
        assert len(first.labels) == len(first.rows[0].ids)
        assert {label: place - 1 for place, label in enumerate(first.labels) if label != IGNORED} == firsts


def test_spans_by_hand(tokenizer: Tokenizer) -> None:
    questions, contexts = ["dog"] * 4, ["The cats sat on a mat"] * 4
    actual = span_examples(tokenizer, questions, contexts, [(4, 8), (6, 12), None, (0, 21)], max_tokens=30)
    row = EncodedInput(ids("[CLS] dog [SEP] the cat ##s sat on a mat [SEP]"), [0] * 3 + [1] * 8)
    assert [first.rows for first in actual] == [(row,)] * 4
    assert [first.labels for first in actual] == [[4, 5], [4, 6], [0, 0], [3, 9]]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 60), st.integers(12, 40), st.data())
def test_windows_hold_the_whole_answer_or_none_of_it(length: int, max_tokens: int, data: st.DataObject) -> None:
    tokenizer = Tokenizer(models.WordPiece({token: i for i, token in enumerate(VOCAB)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    letters = [string.ascii_lowercase[1 + place % 25] for place in range(length)]
    first = data.draw(st.integers(0, length - 1))
    last = data.draw(st.integers(first, length - 1))
    place = len(" ".join(letters[:first])) + bool(first)
    answer = (place, place + len(" ".join(letters[first : last + 1])))
    actual = span_examples(tokenizer, ["cat"], [" ".join(letters)], [answer], max_tokens=max_tokens)
    room = max_tokens - 4
    assert len(actual) == 1 + max(0, -(-(length - room) // (room - room // 4)))
    expected = [VOCAB.index(token) for token in letters[first : last + 1]]
    start = 0
    for item in actual:
        row, (begin, end) = item.rows[0].ids, item.labels
        assert len(row) <= max_tokens
        inside = start <= first and last < start + len(row) - 4
        assert (begin, end) == ((3 + first - start, 3 + last - start) if inside else (0, 0))
        assert not inside or row[begin : end + 1] == expected
        start += room - room // 4


BAD: dict[str, tuple[Any, str]] = {
    "labels": (lambda t: text_examples(t, ["a"], [1, 2], max_tokens=9), "^1 texts, 2 labels, 1 pairs were given"),
    "pairs": (lambda t: text_examples(t, ["a"], [1], ["a", "b"], max_tokens=9), "1 labels, 2 pairs were given"),
    "room": (lambda t: text_examples(t, ["a"], [1], max_tokens=2), "leaves no room beside 2 special tokens"),
    "words": (lambda t: tagging_examples(t, [["a", "b"]], [[1]], max_tokens=9), "^2 words, 1 labels were given"),
    "nowhere": (lambda t: span_examples(t, ["a"], ["cat"], [(2, 9)], max_tokens=9), r"^answer 0 is \(2, 9\), no place"),
    "blank": (lambda t: span_examples(t, ["a"], ["a  b"], [(1, 3)], max_tokens=9), r"^answer 0 is \(1, 3\), no place"),
    "question": (
        lambda t: span_examples(t, ["a a a"], ["b " * 9], [None], max_tokens=9),
        "text 0 has a question of 3 tokens, which leaves 3 of 9 for the context",
    ),
    "none": (lambda t: next(batches([], 3)), "^0 examples in batches of 3"),
    "size": (lambda t: next(batches([example([1], [0])], 0)), "^1 examples in batches of 0"),
    "rows": (
        lambda t: collate([example([1], [0]), Example((EncodedInput([1], [0]),) * 2, [0])]),
        r"^examples of \[1, 2\] rows",
    ),
}


def example(row: list[int], labels: list[int]) -> Example:
    return Example((EncodedInput(row, [0] * len(row)),), labels)


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_refused(case: str, tokenizer: Tokenizer) -> None:
    call, message = BAD[case]
    with pytest.raises(InputError, match=message):
        call(tokenizer)


def test_batches_are_padded_on_the_right() -> None:
    batch = collate([example([5, 6, 7], [1, 2, 3]), Example((EncodedInput([8], [1]),), [4])])
    assert batch.input_ids.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch.attention_mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch.token_type_ids.tolist() == [[0, 0, 0], [1, 0, 0]]
    assert batch.labels.tolist() == [[1, 2, 3], [4, IGNORED, IGNORED]]
    assert batch.tokens == 4


def test_each_pass_has_every_example_once_and_comes_again() -> None:
    lengths = random.Random(3).choices(range(1, 9), k=50)
    built = [example([number] * length, [number]) for number, length in enumerate(lengths)]
    passes = []
    for seed in (1, 1, 2):
        stream = batches(built, 7, seed=seed)
        for _ in range(2):
            drawn = list(islice(stream, 8))
            passes.append([batch.labels.flatten().tolist() for batch in drawn])
            assert sorted(label for group in passes[-1] for label in group) == list(range(50))
            # Sorted by length: neighbours share a batch, so that padding is at most what one batch's lengths span.
            assert sum(batch.attention_mask.numel() - batch.tokens for batch in drawn) < 50
    assert passes[0] == passes[2]
    assert passes[1] == passes[3]
    assert len({str(first) for first in passes}) == 4
