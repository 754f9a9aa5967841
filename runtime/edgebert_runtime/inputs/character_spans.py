"""Character spans of a text, and windows over its tokens. Pure functions."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

JOINER = "\u200d"  # joins emoji into one
# What belongs to the character before it without being a mark: the non-joiner, vowels of Thai and Lao that are letters
# to Unicode, and halfwidth voicing marks.
TRAILING = "\u200c\u0e33\u0eb3\uff9e\uff9f"
# Vowels and finals of Hangul written in parts, skin tones, and the tags that make a flag of a region.
TRAILING_RANGES = (("\u1160", "\u11ff"), ("\U0001f3fb", "\U0001f3ff"), ("\U000e0020", "\U000e007f"))
# Viramas that join two consonants of their script into one.
LINKERS = "\u094d\u09cd\u0acd\u0b4d\u0c4d\u0d4d"
FLAG_LETTERS = "".join(map(chr, range(0x1F1E6, 0x1F200)))  # two make a flag
# Scripts that put no space between words: Thai, Lao, Burmese, Khmer, kana and Han.
UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff]"
)
# Unicode's stream-safe text has 30 marks on a character. No text can make us look further than this.
FARTHEST = 64


def strip(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span without white space at its ends; one of white space alone becomes empty."""
    inside = text[start:end].lstrip()
    start = end - len(inside)
    return start, start + len(inside.rstrip())


def trim_to_graphemes(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span without white space at its ends, and with the marks that belong to its characters.

    Tokenizers count a space before a word to it, forget accents that they dropped, and split what looks like one
    character. A span of white space becomes empty.
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
    """Say whether the character at ``place``, not the first, belongs to the one before it.

    These are the extended grapheme clusters of Unicode (UAX 29) where they matter to tokens.
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
    """Return where in ``text`` each character of ``read``, and its end, stood before lone surrogates were replaced.

    Two surrogates that make a character together have become one.
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
    """Return a key of each token that is equal for the tokens of a word: one of the tokenizer's words.

    In scripts without spaces, where many tokenizers take a sentence for a word, each token is one.
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
    """Return (start, end) of windows of at most ``size`` over ``length`` tokens; neighbours share ``stride`` tokens.

    There is at least one window. ``stride`` is less than ``size``.
    """
    windows = [(0, min(size, length))]
    while windows[-1][1] < length:
        start = windows[-1][1] - stride
        windows.append((start, min(start + size, length)))
    return windows
