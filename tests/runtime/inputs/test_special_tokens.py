"""The special tokens around texts are those that tokenizers itself puts there, and pairs are cut as it cuts them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, processors

from edgebert_runtime.errors import TokenizerError
from edgebert_runtime.inputs.special_tokens import fit_pair
from edgebert_runtime.inputs.tokenizer import ModelTokenizer
from tests.support.tiny_tokenizers import unigram, vocabulary

WORDS = ["<s>", "</s>", "<unk>", "a", "b", "c", "The", "0"]
TEXT = st.lists(st.sampled_from("abcz"), max_size=12).map(" ".join)


def words(post_processor: Any) -> Any:
    """Make a tokenizer with a word a token."""
    tokenizer = tokenizers.Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if post_processor is not None:
        tokenizer.post_processor = post_processor
    return tokenizer


def byte_level(post_processor: Any) -> Any:
    """Make a tokenizer with a byte a token, in which a space belongs to the word after it."""
    letters = [*WORDS[:3], *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = tokenizers.Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = post_processor
    return tokenizer


SPECIALS = [("<s>", 0), ("</s>", 1)]
BERT = processors.BertProcessing(("</s>", 1), ("<s>", 0))
ROBERTA = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
TEMPLATE = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> $B:1 </s>:1", SPECIALS)
XLM = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> </s> $B </s>", SPECIALS)
LAST = processors.TemplateProcessing("$A:2 </s>:2", "$A:2 </s>:2 $B:1 </s>:0", SPECIALS)
BEFORE = processors.TemplateProcessing("<s> </s> $A", "<s>:1 $A </s> $B:1", SPECIALS)
KINDS: dict[str, tuple[Callable[[Any], Any], Any, tuple[int, int], tuple[int, int]]] = {
    # the special tokens of one text and of two, and where two texts of 3 and 2 tokens begin
    "bert": (words, BERT, (2, 3), (1, 5)),
    "roberta": (words, ROBERTA, (2, 4), (1, 6)),
    "template": (words, TEMPLATE, (2, 3), (1, 5)),
    "xlm-roberta": (words, XLM, (2, 4), (1, 6)),
    "nothing before": (words, LAST, (1, 2), (0, 4)),
    "nothing after": (words, BEFORE, (2, 2), (1, 5)),
    "nothing at all": (words, None, (0, 0), (0, 3)),
    "byte-level bert": (byte_level, BERT, (2, 3), (1, 5)),
    "byte-level roberta": (byte_level, ROBERTA, (2, 4), (1, 6)),
    "sequence": (byte_level, processors.Sequence([processors.ByteLevel(), XLM]), (2, 4), (1, 6)),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def theirs(kind: str) -> Any:
    make, post_processor, _, _ = KINDS[kind]
    return make(post_processor)


@pytest.fixture(scope="module")
def ours(theirs: Any, tmp_path_factory: pytest.TempPathFactory) -> ModelTokenizer:
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    theirs.save(str(file))
    return ModelTokenizer.load(file, theirs.get_vocab_size())


def test_counts_and_starts(kind: str, ours: ModelTokenizer) -> None:
    _, _, counts, starts = KINDS[kind]
    assert (ours.single.num_special_tokens, ours.pair.num_special_tokens, ours.num_special_tokens) == (
        *counts,
        counts[0],
    )
    assert ours.pair.starts(3, 2) == list(starts)
    assert ours.pair.starts(3) == [starts[0]]


@pytest.mark.parametrize("model_type", ["xlm-roberta", "albert"])
def test_special_tokens_typed_in_a_text_are_characters_or_tokens(model_type: str, tmp_path: Path) -> None:
    """A Unigram vocabulary lists its special tokens, and would find them like any other piece."""
    theirs = unigram(vocabulary(model_type), model_type)
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = ModelTokenizer.load(tmp_path / "tokenizer.json", theirs.get_vocab_size())
    special = {token.content: index for index, token in theirs.get_added_tokens_decoder().items()}
    for token, index in special.items():
        for text in (token, f"the{token}", f"the {token} cat", token * 2):
            with_tokens = ours.content(text, special_tokens=True)
            assert with_tokens.ids == theirs.encode(text, add_special_tokens=False).ids
            assert index in with_tokens.ids
            assert not (set(special.values()) - {ours.unknown}).intersection(ours.ids(text))
    assert ours.ids("the cat") == theirs.encode("the cat", add_special_tokens=False).ids


@given(TEXT, TEXT)
@example("", "")
@settings(max_examples=40, deadline=None)
def test_join_is_what_tokenizers_makes(theirs: Any, ours: ModelTokenizer, first: str, second: str) -> None:
    theirs.no_truncation()
    first_ids, second_ids = ours.content(first).ids, ours.content(second).ids
    expected = theirs.encode(first)
    assert ours.single.join(first_ids) == (expected.ids, expected.type_ids)
    expected = theirs.encode(first, second)
    joined = ours.pair.join(first_ids, second_ids)
    assert (joined.ids, joined.token_type_ids) == (expected.ids, expected.type_ids)
    for start, ids in zip(ours.pair.starts(len(first_ids), len(second_ids)), (first_ids, second_ids), strict=True):
        assert joined.ids[start : start + len(ids)] == ids


@settings(max_examples=60, deadline=None)
@given(TEXT, TEXT, st.integers(5, 30))
def test_pairs_are_cut_as_tokenizers_cuts_them(
    theirs: Any, ours: ModelTokenizer, first: str, second: str, limit: int
) -> None:
    theirs.enable_truncation(limit, strategy="longest_first")
    first_ids, second_ids = ours.content(first).ids, ours.content(second).ids
    lengths = fit_pair(len(first_ids), len(second_ids), limit - ours.pair.num_special_tokens)
    expected = theirs.encode(first, second)
    assert ours.pair.join(first_ids[: lengths[0]], second_ids[: lengths[1]]) == (expected.ids, expected.type_ids)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_fitting_keeps_all_that_fits(first: int, second: int, room: int) -> None:
    left, right = fit_pair(first, second, room)
    assert left + right == min(first + second, room)
    assert 0 <= left <= first
    assert 0 <= right <= second
    if left + right < first + second:  # what is cut is the longer one
        assert abs(left - right) <= 1 or left == first < right or right == second < left


def test_special_tokens_that_are_no_template(tmp_path: Path) -> None:
    doubled = words(processors.TemplateProcessing("<s> $A $A", "$A $B", SPECIALS))
    swapped = words(processors.TemplateProcessing("$A", "$B $A", SPECIALS))
    for number, tokenizer in enumerate((doubled, swapped)):
        file = tmp_path / f"{number}.json"
        tokenizer.save(str(file))
        with pytest.raises(TokenizerError, match="export"):
            ModelTokenizer.load(file, len(WORDS))
