"""Write a token into a text as a reader would write it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Written(NamedTuple):
    """A text, and the characters ``start`` to ``end`` of it that a token stands for."""

    text: str
    start: int
    end: int


class Spelling:
    """What the tokens of a vocabulary look like in a text.

    WordPiece marks tokens that continue a word (``##ing``), byte-level BPE and SentencePiece those that begin one
    (``Ġmat``, ``▁mat``): the tokenizer's decoder knows how, and is asked what it makes of a token after another one.
    """

    def __init__(self, inner: Any, mask_token: str) -> None:
        from tokenizers import decoders

        prefix = getattr(inner.model, "continuing_subword_prefix", None) or "##"
        self.decoder = inner.decoder or decoders.WordPiece(prefix, cleanup=False)
        # Tokens are decoded after this one: the first of all loses its space.
        self.anchor = "a" + (getattr(inner.model, "end_of_word_suffix", None) or "")
        self.spaces_are_tokens = self.write(["b"]) == "b"
        near, far = (inner.encode(text, add_special_tokens=False).ids for text in ("a" + mask_token, "a " + mask_token))
        self.space_is_lost = near == far

    def write(self, tokens: Sequence[str]) -> str:
        """Return what ``tokens`` are after another word, with the space before them if they begin one."""
        text: str = self.decoder.decode([self.anchor, *tokens])
        return text[1:]

    def insert(self, before: str, token: str, after: str) -> Written:
        """Return a text with ``token`` in it, and where it stands.

        A token that continues a word takes away the spaces ``before`` it, unless the model saw them; one that holds
        a space adds it where there is none.
        """
        piece = self.write([token])
        word = piece.lstrip(" ")
        if not piece.startswith(" "):
            before = before.rstrip(" ") if self.space_is_lost else before
        elif self.spaces_are_tokens and before and not before[-1].isspace():
            before += " "
        return Written(before + word + after, len(before), len(before) + len(word))

    def join(self, parts: Sequence[Sequence[str]]) -> list[str]:
        """Return the texts that parts of one row of tokens are, the space between two in the second of them."""
        texts: list[str] = []
        for part in parts:
            text = self.write(part)
            texts.append(text if any(texts) else text.lstrip(" "))
        return texts
