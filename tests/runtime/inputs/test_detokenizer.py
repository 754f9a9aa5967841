"""Tokens stand in a text as a reader would write them: worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from edgebert_runtime import Bundle, MaskFiller
from tests.runtime.conftest import Tiny, changed, scripted

TASK = "fill-mask"  # of the fixture case


@pytest.fixture(scope="module")
def engine(case: Tiny) -> MaskFiller:
    return MaskFiller(Bundle.open(case.bundle))


@pytest.mark.parametrize(
    ("text", "token", "filled", "word"),
    [
        ("the [MASK] sat", "cat", "the cat sat", "cat"),
        ("The  [MASK], sat", "cat", "The  cat, sat", "cat"),
        ("a farm [MASK] dog", "##ing", "a farming dog", "ing"),
        ("a farm[MASK] dog", "##ing", "a farming dog", "ing"),
        ("farm\n[MASK]", "##ing", "farm\ning", "ing"),
        ("[MASK] dog", "##ing", "ing dog", "ing"),
        ("([MASK])", "cat", "(cat)", "cat"),
        ("the cat [MASK]", ".", "the cat.", "."),
        ("ÉTÉ [SEP] [MASK] é", "é", "ÉTÉ [SEP] é é", "é"),
        ("the [MASK]", "[SEP]", "the [SEP]", "[SEP]"),
    ],
)
def test_words_of_wordpiece(engine: MaskFiller, text: str, token: str, filled: str, word: str) -> None:
    ((first, *remaining),) = scripted(engine, **{token: 50.0}).fill([text], top_k=2)[0]
    assert (first.token, first.text) == (token, filled)
    assert first.text[first.start : first.end] == word
    assert first.score == pytest.approx(1)
    assert len(remaining) == 1


def with_mask_spaces(source: Path, folder: Path, lstrip: bool) -> Path:
    """Copy a bundle whose mask token takes the space before it, as published RoBERTa's does, or leaves it."""
    data = json.loads((source / "tokenizer.json").read_text())
    for entry in data["added_tokens"]:
        entry["lstrip"] = lstrip and entry["content"] == "<mask>"
    return changed(source, folder, {"tokenizer.json": json.dumps(data).encode()})


@pytest.mark.parametrize(
    ("model_type", "text", "token", "filled", "word"),
    [
        ("roberta", "the <mask> sat", "Ġthe", "the the sat", "the"),
        ("roberta", "the<mask> sat", "Ġthe", "the the sat", "the"),
        ("roberta", "<mask> sat", "Ġthe", "the sat", "the"),
        ("roberta", "a\n<mask> sat", "Ġthe", "a\nthe sat", "the"),
        ("roberta", "farm <mask> dog", "ing", "farming dog", "ing"),
        ("roberta", "the cat <mask>", ".", "the cat.", "."),
        ("roberta", "日 <mask>", "Ã©", "日é", "é"),
        ("roberta", "the <mask>", "Ġ", "the ", ""),
        ("xlm-roberta", "the <mask> sat", "▁cat", "the cat sat", "cat"),
        ("xlm-roberta", "the<mask> sat", "▁cat", "the cat sat", "cat"),
        ("xlm-roberta", "<mask> sat", "▁cat", "cat sat", "cat"),
        ("xlm-roberta", "cat <mask>", "s", "cats", "s"),
    ],
)
def test_words_of_tokens_that_hold_their_space(
    tiny: Callable[..., Tiny], tmp_path: Path, model_type: str, text: str, token: str, filled: str, word: str
) -> None:
    folder = with_mask_spaces(tiny("fill-mask", model_type).bundle, tmp_path / "bundle", True)
    engine = MaskFiller(Bundle.open(folder))
    (first,) = scripted(engine, **{token: 50.0}).fill([text], top_k=1)[0][0]
    assert (first.token, first.text) == (token, filled)
    assert first.text[first.start : first.end] == word


def test_a_space_that_the_model_sees_stays(tiny: Callable[..., Tiny], tmp_path: Path) -> None:
    folder = with_mask_spaces(tiny("fill-mask", "roberta").bundle, tmp_path / "bundle", False)
    engine = MaskFiller(Bundle.open(folder))
    assert engine._tokenizer.content("a <mask>").tokens == ["a", "Ġ", "<mask>"]
    for token, filled in {"ing": "farm ing", "Ġthe": "farm the"}.items():
        assert scripted(engine, **{token: 50.0}).fill(["farm <mask>"], top_k=1)[0][0][0].text == filled
