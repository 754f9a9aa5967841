"""Character spans of a text, and windows over its tokens, in pure functions."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

JOINER = "\u200d"  # joins emoji into one
# Parts of the character before them that are no marks: the non-joiner, vowels of Thai and Lao, which Unicode calls
# letters, and halfwidth voicing marks.
TRAILING = "\u200c\u0e33\u0eb3\uff9e\uff9f"
# Vowels and finals of decomposed Hangul, skin tones, and the tags of a region's flag.
TRAILING_RANGES = (("\u1160", "\u11ff"), ("\U0001f3fb", "\U0001f3ff"), ("\U000e0020", "\U000e007f"))
# Viramas, which join two consonants of their script.
LINKERS = "\u094d\u09cd\u0acd\u0b4d\u0c4d\u0d4d"
FLAG_LETTERS = "".join(map(chr, range(0x1F1E6, 0x1F200)))  # two make a flag
# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana and Han.
UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff]"
)
# The most characters to look at. A character of Unicode's stream-safe text has 30 marks.
FARTHEST = 64


def strip(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span without white space at its ends, empty for white space alone."""
    inside = text[start:end].lstrip()
    start = end - len(inside)
    return start, start + len(inside.rstrip())


def trim_to_graphemes(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span of whole graphemes, without white space at its ends.

    Tokenizers put the space before a word into its span, leave out accents that they dropped, and split graphemes. A
    span of only white space becomes empty.
    """
    start, end = strip(text, start, end)
    if start < end and not text.isascii():
        nearest, farthest = max(0, start - FARTHEST), min(len(text), end + FARTHEST)
        while start > nearest and attached(text, start):
            start -= 1
        while end < farthest and attached(text, end):
            end += 1
    return start, end


def attached(text: str, place: int) -> bool:
    """Say whether the character at ``place`` belongs to the one before it.

    Both are then part of one extended grapheme cluster of Unicode (UAX 29).
    """
    char, before = text[place], text[place - 1]
    if char.isascii() or char.isspace() or before.isspace():
        return False
    if unicodedata.category(char) in ("Mn", "Mc", "Me") or char == JOINER or before == JOINER or char in TRAILING:
        return True
    if before in LINKERS and "\u0900" <= char <= "\u0d7f" and char.isalpha():
        return True
    if char in FLAG_LETTERS:
        near = text[max(0, place - FARTHEST) : place]
        return (len(near) - len(near.rstrip(FLAG_LETTERS))) % 2 == 1
    return any(low <= char <= high for low, high in TRAILING_RANGES)


def original_offsets(text: str, read: str) -> Sequence[int]:
    """Return the index in ``text`` of each character of ``read``, and of its end.

    ``read`` is ``text`` without lone surrogates: two surrogates of one character became that character.
    """
    if len(text) == len(read):
        return range(len(text) + 1)
    places, place = [], 0
    for char in read:
        places.append(place)
        place += 2 if char > "\uffff" and text[place] != char else 1
    return [*places, place]


def word_keys(
    text: str, word_ids: Sequence[int | None], offsets: Sequence[tuple[int, int]]
) -> Sequence[int | tuple[int, int] | None]:
    """Return a key for each token, equal for the tokens of a word.

    Words are the tokenizer's. In scripts without spaces, where many tokenizers take a sentence for a word, each token
    is a word.
    """
    if not UNSPACED.search(text):
        return word_ids
    keys: list[tuple[int, int] | None] = []
    part = reached = 0
    for word, (start, end) in zip(word_ids, offsets, strict=True):
        part += start >= reached and UNSPACED.search(text, max(0, reached - 1), start + 1) is not None
        reached = max(reached, end)
        keys.append(None if word is None else (word, part))
    return keys


def plan_windows(length: int, size: int, stride: int) -> list[tuple[int, int]]:
    """Return (start, end) of windows of at most ``size`` over ``length`` tokens, at least one.

    Neighbours share ``stride`` tokens, which is less than ``size``.
    """
    windows = [(0, min(size, length))]
    while windows[-1][1] < length:
        start = windows[-1][1] - stride
        windows.append((start, min(start + size, length)))
    return windows
