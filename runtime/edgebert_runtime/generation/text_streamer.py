"""Streaming text: pieces are final, and none ends inside a character."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from edgebert_runtime.generation.hypotheses import Hypothesis

Decode = Callable[[Sequence[int]], str]

UNFINISHED = "\ufffd"  # stands for bytes that are no character, or an incomplete one
# Tokens after which the first ones are dropped, and those that stay.
MAX_TOKENS, TAIL_TOKENS = 64, 16


class TextStream:
    """Decodes tokens as they come, until a stop string.

    The pieces join to the text of all tokens, cut before the first stop string. An incomplete character waits until
    it is complete, or until the end. So does text that could become a stop string.

    ``decode`` may spell the first token of a text differently, without its space, as WordPiece and SentencePiece do.
    Apart from that, later tokens must not change the text of earlier ones.
    """

    def __init__(self, decode: Decode, stop: Sequence[str] = ()) -> None:
        self.decode = decode
        self.stop = stop
        self.stopped = False
        self.tokens: list[int] = []  # the last ones
        self.text = ""  # their text
        self.emitted = 0  # characters of the text that were returned

    def feed(self, token: int) -> str:
        """Add a token, and return the text that is final now."""
        self.tokens.append(token)
        self.text = self.decode(self.tokens)
        visible = len(self.text.rstrip(UNFINISHED))
        piece = self.take(visible, visible - longest_partial_stop(self.text[self.emitted : visible], self.stop))
        if len(self.tokens) >= MAX_TOKENS:
            self.forget()
        return piece

    def finish(self) -> str:
        """Return the rest of the text."""
        return self.take(len(self.text), len(self.text))

    def take(self, visible: int, end: int) -> str:
        """Return the text up to ``end``, or up to a stop string before ``visible``."""
        if self.stopped:
            return ""
        index = first_of(self.text[:visible], self.stop, self.emitted)
        if index is not None:
            self.stopped, end = True, index
        piece = self.text[self.emitted : end]
        self.emitted = max(self.emitted, end)
        return piece

    def forget(self) -> None:
        """Drop the first tokens, if all of their text was returned.

        The spelling of the first token that stays may change; the rest of the text is the same, counted from its end.
        """
        tail = self.decode(self.tokens[-TAIL_TOKENS:])
        emitted = self.emitted - (len(self.text) - len(tail))
        if emitted >= 0:
            self.tokens, self.text, self.emitted = self.tokens[-TAIL_TOKENS:], tail, emitted

    def fork(self) -> TextStream:
        """Return an independent stream that continues from here."""
        fork = copy.copy(self)
        fork.tokens = self.tokens.copy()
        return fork


def first_of(text: str, strings: Sequence[str], start: int = 0) -> int | None:
    """Return the index of the first of ``strings`` in ``text`` from ``start`` on, or None."""
    return min((index for string in strings if (index := text.find(string, start)) >= 0), default=None)


def longest_partial_stop(text: str, strings: Sequence[str]) -> int:
    """Return the length of the longest end of ``text`` that is the start of a stop string.

    A whole stop string does not count.
    """
    for length in range(min(len(text), max(map(len, strings), default=1) - 1), 0, -1):
        if any(len(string) > length and string.startswith(text[-length:]) for string in strings):
            return length
    return 0


def read_text(hypothesis: Hypothesis, decode: Decode, stop: Sequence[str] = ()) -> str:
    """Return the text of a hypothesis, without its eos token and cut before the first stop string."""
    tokens = hypothesis.tokens
    text = decode(tokens[:-1] if hypothesis.finish_reason == "stop" else tokens)
    return text[: first_of(text, stop)]
