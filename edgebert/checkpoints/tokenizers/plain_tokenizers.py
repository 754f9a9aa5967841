"""WordPiece and byte-level BPE in plain Python, as their papers have them, to compare built tokenizers with.

They share no code with the tokenizers that are built, and nothing with the library that runs those.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MAX_WORD_CHARACTERS = 100
# Han characters, each of which is a word for BERT.
HAN = re.compile(
    "([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ceaf\U0002f800-\U0002fa1f])"
)
CONTRACTION = re.compile("'(?:s|t|re|ve|m|ll|d)")
# Over the kinds of characters: L letter, N number, O other, S space, W other white space.
RUN = re.compile("S?L+|S?N+|S?O+|[SW]+(?![LNO])|[SW]+")


@dataclass(frozen=True)
class PlainWordPiece:
    """BERT's tokenizer (Devlin et al., 2019) over a vocabulary with ``unknown``."""

    vocabulary: Mapping[str, int]
    unknown: str
    lowercase: bool = True
    strip_accents: bool | None = None
    split_han: bool = True

    def normalize(self, text: str) -> str:
        """Return a text without control characters, and with the spelling that the vocabulary has."""
        characters = (" " if char in "\t\n\r" else char for char in text)
        text = "".join(char for char in characters if unicodedata.category(char)[0] != "C" and char != "\ufffd")
        text = "".join(" " if char.isspace() else char for char in text)
        if self.split_han:
            text = HAN.sub(r" \1 ", text)
        if self.lowercase if self.strip_accents is None else self.strip_accents:
            text = "".join(char for char in unicodedata.normalize("NFD", text) if unicodedata.category(char) != "Mn")
        return "".join(map(str.lower, text)) if self.lowercase else text

    def ids(self, text: str) -> list[int]:
        """Return the ids of a normalized text."""
        words = "".join(f" {char} " if is_punctuation(char) else char for char in text).split()
        return [index for word in words for index in self.pieces(word)]

    def pieces(self, word: str) -> list[int]:
        """Return the ids of the longest pieces of a word, from its start on."""
        ids, start = list[int](), 0
        while start < len(word) <= MAX_WORD_CHARACTERS:
            mark = "##" if start else ""
            ends = (end for end in range(len(word), start, -1) if mark + word[start:end] in self.vocabulary)
            if (end := next(ends, None)) is None:
                break
            ids.append(self.vocabulary[mark + word[start:end]])
            start = end
        return ids if start == len(word) else [self.vocabulary[self.unknown]]


def is_punctuation(char: str) -> bool:
    """Say whether a character is a word of its own for BERT."""
    return unicodedata.category(char)[0] == "P" or char in "$+<=>^`|~"


@dataclass(frozen=True)
class PlainByteLevel:
    """GPT-2's tokenizer (Radford et al., 2019) over a vocabulary and merges (Sennrich et al., 2016)."""

    vocabulary: Mapping[str, int]
    merges: Sequence[tuple[str, str]]
    add_prefix_space: bool = False
    ranks: dict[tuple[str, str], int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranks", {pair: rank for rank, pair in enumerate(self.merges)})

    def normalize(self, text: str) -> str:
        """Return the text, which is not normalized."""
        return text

    def ids(self, text: str) -> list[int]:
        """Return the ids of a text."""
        if self.add_prefix_space and text and not text.startswith(" "):
            text = f" {text}"
        pieces = [piece for word in words_of(text) for piece in self.pieces(word)]
        return [self.vocabulary[piece] for piece in pieces if piece in self.vocabulary]

    def pieces(self, word: str) -> list[str]:
        """Return the pieces of a word, the most frequent pairs joined first."""
        pieces = [BYTES[byte] for byte in word.encode()]
        while len(pieces) > 1:
            pair = min(zip(pieces, pieces[1:], strict=False), key=lambda pair: self.ranks.get(pair, len(self.ranks)))
            if pair not in self.ranks:
                break
            joined: list[str] = []
            for piece in pieces:
                if joined and (joined[-1], piece) == pair:
                    joined[-1] = "".join(pair)
                else:
                    joined.append(piece)
            pieces = joined
        return pieces


def words_of(text: str) -> list[str]:
    """Return contractions, and runs of letters, numbers and others with the space before them."""
    kinds = "".join(map(kind_of, text))
    words, place = [], 0
    while place < len(text):
        match = CONTRACTION.match(text, place) or RUN.match(kinds, place)
        assert match is not None
        words.append(text[place : match.end()])
        place = match.end()
    return words


def kind_of(char: str) -> str:
    """Return the kind of a character in :data:`RUN`."""
    if char == " ":
        return "S"
    category = unicodedata.category(char)[0]
    return "W" if char.isspace() else category if category in "LN" else "O"


def byte_characters() -> list[str]:
    """Return the character that stands for each byte: itself where it can be seen, and the next free one elsewhere."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    return [chr(byte) if byte in visible else chr(next(hidden)) for byte in range(0x100)]


BYTES = byte_characters()
