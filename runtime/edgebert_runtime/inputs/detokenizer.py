"""Put a token into a text, with the spaces that its tokenizer implies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Written(NamedTuple):
    """A text, and the span ``start`` to ``end`` of a token in it."""

    text: str
    start: int
    end: int


class Spelling:
    """The spelling of a vocabulary's tokens in a text.

    WordPiece marks tokens that continue a word (``##ing``). Byte-level BPE and SentencePiece mark those that begin one
    (``Ġmat``, ``▁mat``). The tokenizer's decoder knows the marks, and decodes each token after another one.
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
        """Return the text of ``tokens`` after another word, with a space first if they begin a word."""
        text: str = self.decoder.decode([self.anchor, *tokens])
        return text[1:]

    def insert(self, before: str, token: str, after: str) -> Written:
        """Return a text with ``token`` between ``before`` and ``after``, and its span.

        A token that continues a word removes the spaces before it, unless the model saw them. A token with a space
        adds it if there is none.
        """
        piece = self.write([token])
        word = piece.lstrip(" ")
        if not piece.startswith(" "):
            before = before.rstrip(" ") if self.space_is_lost else before
        elif self.spaces_are_tokens and before and not before[-1].isspace():
            before += " "
        return Written(before + word + after, len(before), len(before) + len(word))

    def join(self, parts: Sequence[Sequence[str]]) -> list[str]:
        """Return the texts of consecutive parts of a row. A space between two is in the second."""
        texts: list[str] = []
        for part in parts:
            text = self.write(part)
            texts.append(text if any(texts) else text.lstrip(" "))
        return texts
