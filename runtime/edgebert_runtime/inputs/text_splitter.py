"""Pieces of a text that have at most so many tokens each, cut between words where that is possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from edgebert_runtime.errors import LimitError
from edgebert_runtime.inputs.character_spans import attached, strip


class TextPiece(NamedTuple):
    """A piece of a text: ``text`` is ``source[start:end]``, and has ``num_tokens`` tokens, special ones included."""

    text: str
    start: int
    end: int
    num_tokens: int


def split_text(
    text: str, offsets: Sequence[tuple[int, int]], room: int, overlap: int, count: Callable[[str], int]
) -> list[TextPiece]:
    """Return pieces of at most ``room`` tokens, of which neighbours share about ``overlap``.

    ``offsets`` are the characters of each token of the whole text. ``count`` gives the tokens of a piece by itself,
    which can be more than it had in the text. Between pieces there is white space only.

    Raises:
        LimitError: if a part that cannot be split has more tokens.
    """
    starts = [strip(text, *span)[0] for span in offsets]
    farthest = list(accumulate(starts, max))
    whole = [place for place in range(1, len(starts)) if farthest[place - 1] < starts[place] < len(text)]
    whole = [place for place in whole if not text[starts[place]].isspace()]
    graphemes = [place for place in whole if not attached(text, starts[place])]
    words = [place for place in graphemes if text[starts[place] - 1].isspace()]
    pieces, first = list[TextPiece](), 0
    while first < len(starts):
        last = min(first + room, len(starts))
        while True:
            last = place_to_cut(first, last, len(starts), words, graphemes, whole)
            start = starts[first] if first else 0
            start, end = strip(text, start, starts[last] if last < len(starts) else len(text))
            length = count(text[start:end])
            if length <= room:
                break
            if last == first + 1 or not any(first < place < last for place in whole):
                raise LimitError(
                    f"has {text[start:end]!r:.40} at character {start}, which is {length} tokens and cannot be split",
                    hint=f"raise {{max_tokens}} by {length - room}",
                    options={"max_tokens": ...},
                )
            last -= 1
        pieces.append(TextPiece(text[start:end], start, end, length))
        if last >= len(starts):
            break
        shared = [place for place in (words or graphemes) if max(first, last - overlap - 1) < place <= last]
        first = shared[0] if shared else last
    return pieces


def place_to_cut(first: int, last: int, length: int, *choices: Sequence[int]) -> int:
    """Return the token before which a piece from ``first`` ends: the last one up to ``last`` of the first choice.

    Where there is none up to there, it is the next one.
    """
    if last >= length:
        return length
    for places in choices:
        if inside := [place for place in places if first < place <= last]:
            return inside[-1]
    return next((place for place in choices[-1] if place > last), length)
