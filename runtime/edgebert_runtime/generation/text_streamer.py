"""Text out of tokens that come one at a time: no piece is ever taken back, and none ends inside a character."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from edgebert_runtime.generation.hypotheses import Hypothesis

Decode = Callable[[Sequence[int]], str]

UNFINISHED = "\ufffd"  # stands for bytes that are not a character, or not yet
KEPT, MOST = 16, 64


class TextStream:
    """Decode tokens as they come, until one of the strings ``stop``.

    The pieces join to what ``decode`` makes of all tokens, cut before the first stop string. Bytes that do not make a
    character are held back until they do, or until the end; so is what could become a stop string.

    ``decode`` may spell a token differently at the start of a text and after other tokens, and drop a space there, as
    WordPiece and SentencePiece do; further than that, later tokens must not change the text of earlier ones.
    """

    def __init__(self, decode: Decode, stop: Sequence[str] = ()) -> None:
        self.decode = decode
        self.stop = stop
        self.stopped = False
        self.tokens: list[int] = []  # the last ones only
        self.text = ""  # theirs
        self.given = 0  # characters of it

    def feed(self, token: int) -> str:
        """Return the text that is certain now that ``token`` has come; there may be none."""
        self.tokens.append(token)
        self.text = self.decode(self.tokens)
        visible = len(self.text.rstrip(UNFINISHED))
        piece = self.take(visible, visible - longest_partial_stop(self.text[self.given : visible], self.stop))
        if len(self.tokens) >= MOST:
            self.forget()
        return piece

    def finish(self) -> str:
        """Return the rest of the text."""
        return self.take(len(self.text), len(self.text))

    def take(self, visible: int, end: int) -> str:
        """Return the text up to ``end``, or to a stop string before ``visible``."""
        if self.stopped:
            return ""
        place = first_of(self.text[:visible], self.stop, self.given)
        if place is not None:
            self.stopped, end = True, place
        piece = self.text[self.given : end]
        self.given = max(self.given, end)
        return piece

    def forget(self) -> None:
        """Forget the first tokens, if all of their text has been given.

        The first of those that stay may be spelt differently now. What counts is how much at the end is still to give.
        """
        tail = self.decode(self.tokens[-KEPT:])
        given = self.given - (len(self.text) - len(tail))
        if given >= 0:
            self.tokens, self.text, self.given = self.tokens[-KEPT:], tail, given

    def fork(self) -> TextStream:
        """Return a stream that goes on from here without changing this one."""
        other = copy.copy(self)
        other.tokens = self.tokens.copy()
        return other


def first_of(text: str, strings: Sequence[str], start: int = 0) -> int | None:
    """Return the place at which the first of ``strings`` begins in ``text`` from ``start`` on, or None."""
    return min((place for string in strings if (place := text.find(string, start)) >= 0), default=None)


def longest_partial_stop(text: str, strings: Sequence[str]) -> int:
    """Return the length of the longest end of ``text`` with which one of ``strings`` begins."""
    return max((overlap(text, string) for string in strings), default=0)


def overlap(text: str, string: str) -> int:
    """Return how many characters of ``string``, but not all, ``text`` ends with."""
    lengths = range(min(len(text), len(string) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(string[:length])), 0)


def read_text(hypothesis: Hypothesis, decode: Decode, stop: Sequence[str] = ()) -> str:
    """Return the text of a hypothesis, without the token that ended it and cut before the first stop string."""
    tokens = hypothesis.tokens
    text = decode(tokens[:-1] if hypothesis.finish_reason == "stop" else tokens)
    return text[: first_of(text, stop)]
