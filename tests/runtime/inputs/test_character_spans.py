"""Spans have the characters that a reader sees, for tokenizers of every kind; windows cover all tokens."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
import regex  # type: ignore[import-untyped]
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgebert_runtime.inputs.character_spans import (
    attached,
    original_offsets,
    plan_windows,
    trim_to_graphemes,
    word_keys,
)
from edgebert_runtime.inputs.validation import check_text
from tests.runtime.fakes import KINDS
from tests.support.work import lines_run

PIECES = [
    *"aEz,.'-", " ", "  ", "\t", "\n", "\u00a0", "\u3000", "\0", "\ufeff", "\u200b", "\u200d", "\u200c",
    "é", "e\u0301", "\u0301", "ö\u0323", "İ", "ß", "ﬁ", "½", "ﾊﾞ", "日本", "が", "か\u3099",
    "ไทยนี้", "น้ำ", "हिन्दी", "क्\u200dष", "한글", "\u1112\u1161\u11ab", "שָׁלוֹם", "مَرْحَبًا", "\u202e",
    "👍", "👍🏽", "👩‍👩‍👧", "❤️", "1️⃣", "🇩🇪", "🇫🇷🇯🇵", "🏴\U000e0067\U000e0062\U000e007f", "the", "cafe\u0301", "berlin",
]  # fmt: skip
TEXT = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@pytest.mark.parametrize(
    ("text", "span", "expected"),
    [
        ("a  bc ", (1, 6), "bc"),
        ("a \u3000\t", (1, 4), ""),
        ("", (0, 0), ""),
        ("the cafe\u0301 is", (4, 8), "cafe\u0301"),
        ("the cafe\u0301 is", (8, 9), "e\u0301"),
        ("👩‍👩‍👧", (2, 3), "👩‍👩‍👧"),
        ("👍🏽 b", (1, 2), "👍🏽"),
        ("❤️ b", (0, 1), "❤️"),
        ("1️⃣ 2", (0, 1), "1️⃣"),
        ("🇩🇪🇫🇷🇯🇵", (2, 3), "🇫🇷"),
        ("🇩🇪🇫🇷🇯🇵", (3, 5), "🇫🇷🇯🇵"),
        ("🏴\U000e0067\U000e007f.", (0, 1), "🏴\U000e0067\U000e007f"),
        ("\u1112\u1161\u11ab글", (1, 2), "\u1112\u1161\u11ab"),
        ("น้ำ", (1, 2), "น้ำ"),
        ("हिन्दी", (1, 2), "हि"),
        ("हिन्दी", (2, 3), "न्दी"),
        ("か\u3099く", (0, 1), "か\u3099"),
        ("ﾊﾞ", (0, 1), "ﾊﾞ"),
        ("שָׁ ל", (0, 1), "שָׁ"),
        (" \u0301a", (0, 2), "\u0301"),  # a mark on a space has nothing to belong to
        ("\u200d \u200d", (1, 3), "\u200d"),
    ],
)
def test_snaps_to_what_a_reader_sees(text: str, span: tuple[int, int], expected: str) -> None:
    start, end = trim_to_graphemes(text, *span)
    assert text[start:end] == expected


@given(text=TEXT, places=st.tuples(st.integers(0, 60), st.integers(0, 60)))
@settings(max_examples=150, deadline=None)
def test_no_span_cuts_a_grapheme(text: str, places: tuple[int, int]) -> None:
    start, end = sorted(min(place, len(text)) for place in places)
    start, end = trim_to_graphemes(text, start, end)
    for cluster in regex.finditer(r"\X", text):
        if start < end and cluster.start() < end and start < cluster.end() and not cluster[0][0].isspace():
            assert start <= cluster.start()
            assert cluster.end() <= end


@given(text=TEXT)
@settings(max_examples=150, deadline=None)
def test_attached_is_the_inside_of_graphemes(text: str) -> None:
    # What follows a joiner counts as joined, whatever it is, and a mark belongs to a control character before it.
    text = "a" + regex.sub("[\u200d\0\ufeff\u200b\u202e]", "", text)
    clusters = {match.start() for match in regex.finditer(r"\X", text)}
    for place in range(1, len(text)):
        if not text[place].isspace() and not text[place - 1].isspace():
            assert attached(text, place) == (place not in clusters), (text, place)


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]()


@given(text=TEXT, data=st.data())
@example("  naïve\u0301 日本\u3000 👩‍👩‍👧🏽 \u0301x", None)
@settings(max_examples=80, deadline=None)
def test_spans_of_tokens(tokenizer: Any, text: str, data: Any) -> None:
    offsets = tokenizer.encode(text, add_special_tokens=False).offsets
    for first in range(len(offsets)):
        last = first if data is None else data.draw(st.integers(first, len(offsets) - 1))
        low, high = offsets[first][0], offsets[last][1]
        start, end = trim_to_graphemes(text, low, high)
        assert 0 <= start <= end <= len(text)
        assert text[low:high].strip() in text[start:end]
        if start == end:
            assert not text[low:high].strip()
            continue
        assert not text[start].isspace()
        assert not text[end - 1].isspace()
        for place in (start, end):  # of a mark with its base, neither goes without the other
            if 0 < place < len(text) and not text[place - 1].isspace():
                assert not unicodedata.category(text[place]).startswith("M")


@pytest.mark.parametrize("mark", ["\u0301", "\u200d", "🇩", "🏽", " "])
def test_no_text_makes_it_look_far(mark: str) -> None:
    text = "a" + mark * 100_000
    for place in range(50_000, 50_200):
        start, end = trim_to_graphemes(text, place, place + 1)
        assert place - 64 <= start <= end <= place + 65
    assert lines_run(lambda: trim_to_graphemes(text, 50_000, 50_001)) < 64 * 40


@given(st.lists(st.sampled_from(["a", "\ud83d", "\ude00", "😀", "日", "\ud800", "\udfff", "\ufeff"]), max_size=12))
def test_origins_of_replaced_surrogates(pieces: list[str]) -> None:
    text = "".join(pieces)
    read = check_text(text, 0, "replace")
    places = original_offsets(text, read)
    assert len(places) == len(read) + 1
    assert (places[0], places[-1]) == (0, len(text))
    for index, char in enumerate(read):
        assert check_text(text[places[index] : places[index + 1]], 0, "replace") == char


@pytest.mark.parametrize(
    ("text", "offsets", "words"),
    [
        ("cats ran.", [(0, 3), (3, 4), (5, 8), (8, 9)], ["cats", "ran."]),
        ("東京とTokyo x", [(0, 1), (1, 3), (3, 5), (5, 8), (9, 10)], ["東", "京と", "Tokyo", "x"]),
        ("ไทยนี้ abc", [(0, 1), (0, 3), (3, 6), (7, 8), (8, 10)], ["ไทย", "นี้", "abc"]),
        ("日本", [(0, 1), (0, 2), (1, 2)], ["日本"]),  # bytes of both characters in one token
    ],
)
def test_words_of_scripts_with_and_without_spaces(text: str, offsets: list[Any], words: list[str]) -> None:
    word_ids = [text[:start].count(" ") for start, _ in offsets]
    keys = word_keys(text, word_ids, offsets)
    places: dict[Any, list[int]] = {}
    for key, offset in zip(keys, offsets, strict=True):
        places.setdefault(key, []).extend(offset)
    assert [text[min(place) : max(place)] for place in places.values()] == words
    assert None not in keys
    assert list(word_keys(text, [None] * len(offsets), offsets)) == [None] * len(offsets)


@given(length=st.integers(0, 200), size=st.integers(1, 40), data=st.data())
def test_windows_cover_all_tokens(length: int, size: int, data: Any) -> None:
    stride = data.draw(st.integers(0, size - 1))
    windows = plan_windows(length, size, stride)
    assert windows[0][0] == 0
    assert windows[-1][1] == length
    assert all(0 <= end - start <= size for start, end in windows)
    assert all(end - start == size for start, end in windows[:-1])
    assert all(following[0] == before[1] - stride for before, following in zip(windows, windows[1:], strict=False))
