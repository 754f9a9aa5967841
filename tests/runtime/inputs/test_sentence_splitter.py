"""Texts are cut where sentences end, and put together again without a character lost or moved."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgebert_runtime.inputs.sentence_splitter import split_sentences

PIECES = st.sampled_from(
    ["The", "cat", "Dr", "No", "e.g", "U.S", "3", "12", "1999", "日本", "です", "“Why", "(a", "é", "\u200b", "Mr", ".",
     "?", "!", "...", "。", "！", "’", "”", ")", ",", " ", "  ", "\n", "\r\n", "\n\n", "\t", "\u00a0", "\u2029", "\x1c"]
)  # fmt: skip


@given(st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=30).map("".join)), st.integers(1, 40))
def test_nothing_is_lost_or_moved(text: str, room: int) -> None:
    for split in (split_sentences(text), split_sentences(text, lambda sentence: len(sentence) <= room)):
        assert split.join(split.texts) == text
        assert all(sentence.strip() == sentence != "" for sentence in split.texts)
        assert not "".join(split.gaps).strip()
    assert all(len(sentence) <= room or not any(map(str.isspace, sentence)) for sentence in split.texts)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four… Five", ["One.", "Two!", "Three?", "Four…", "Five"]),
        ("No stop", ["No stop"]),
        ("  \n ", []),
        ("", []),
        ('He said: "Stop." She left.', ['He said: "Stop."', "She left."]),
        ("„Warum?“ fragte er. „Darum.“ Ende.", ["„Warum?“ fragte er.", "„Darum.“", "Ende."]),
        (
            "(It rained.) Then (at last) it snowed. [It did.]",
            ["(It rained.)", "Then (at last) it snowed.", "[It did.]"],
        ),
        ("¿Qué? ¡No! Sí.", ["¿Qué?", "¡No!", "Sí."]),
        ("Mr. Smith met Dr. Jones. They talked.", ["Mr. Smith met Dr. Jones.", "They talked."]),
        ("J. S. Bach, e.g. Air, in the U.S. Senate. Yes.", ["J. S. Bach, e.g. Air, in the U.S. Senate.", "Yes."]),
        ("Am 3. Mai z.B. Regen. In 1999. Then", ["Am 3. Mai z.B. Regen.", "In 1999.", "Then"]),
        ("See No. 5. No. I will not.", ["See No. 5. No.", "I will not."]),
        ("It costs 3.50. It is 5.", ["It costs 3.50.", "It is 5."]),
        ("wait... what? ok. fine", ["wait... what? ok. fine"]),
        ("Wait... What?", ["Wait...", "What?"]),
        ("一つ目。二つ目！「三つ目。」四つ目", ["一つ目。", "二つ目！", "「三つ目。」", "四つ目"]),
        ("यह एक है। यह दो है। ما هذا؟ هذا بيت.", ["यह एक है।", "यह दो है।", "ما هذا؟", "هذا بيت."]),
        ("A title\n\nand a text\nover lines. More.\n\n", ["A title", "and a text\nover lines.", "More."]),
        ("a\r\n\r\nb\n \nc\u2029d\ne", ["a", "b", "c", "d\ne"]),
        ("M. Dupont est là. Bonjour ! Oui.", ["M. Dupont est là.", "Bonjour !", "Oui."]),
    ],
)
def test_where_sentences_end(text: str, sentences: list[str]) -> None:
    assert split_sentences(text).texts == sentences


@pytest.mark.parametrize(
    ("text", "room", "parts"),
    [
        ("one two three four", 10, ["one two", "three four"]),
        ("one two, three four", 12, ["one two,", "three four"]),
        ("a, bbb ccc ddd eee fff", 12, ["a, bbb ccc", "ddd eee fff"]),
        ("one two three four five six", 9, ["one two", "three", "four", "five six"]),
        ("unbreakable word", 5, ["unbreakable", "word"]),
        ("x" * 30, 5, ["x" * 30]),
    ],
)
def test_what_does_not_fit_is_cut_at_white_space(text: str, room: int, parts: list[str]) -> None:
    assert split_sentences(text, lambda sentence: len(sentence) <= room).texts == parts


@pytest.mark.parametrize(
    "text", ["a " * 300_000, "A. " * 200_000, "." * 500_000, " \n" * 300_000, "”" * 500_000, "。" * 500_000]
)
def test_long_texts_take_no_longer_than_they_are(text: str) -> None:
    begin = time.process_time()
    split = split_sentences(text)
    assert split.join(split.texts) == text
    assert time.process_time() - begin < 20  # of CPU time: it takes 1; in the square of the length it would be minutes
