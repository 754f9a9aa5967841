"""Sentences of a text. Every character is in one of them or in the white space between.

A sentence ends at a blank line; after a full-width mark (``。``); and at white space after a mark (``. ! ?`` and those
of other scripts, closing quotes and brackets included), except when:

- a small letter follows, as in ``"Why?" he asked.``;
- before the full stop stands an abbreviation in the list, a single capital (``J. S. Bach``), letters with full stops
  between (``U.S.``), or a number of one or two digits (``am 3. Mai``, ``1. Introduction``).

In doubt two sentences stay together: a translation loses more by a cut in the middle.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

WIDE = "。！？｡"
MARKS = ".!?…؟۔।॥։።။។" + WIDE
QUOTES = "\"'“”‘’«»‹›"  # those that open in one language close in another
CLOSING = QUOTES + ")]}）」』】》"
OPENING = QUOTES + "„([{（「『【《¿¡"
BREAK = re.compile(rf"[{WIDE}]+[{re.escape(CLOSING)}]*\s*|\s+")
BEFORE = 48  # characters of a sentence that are looked at
ABBREVIATIONS = frozenset(
    "mr mrs ms mx messrs dr prof rev hon gen col maj capt lt sgt sen gov pres st ste mt jr vs cf ca approx dept est "
    "bzw evtl ggf inkl vgl sog hr fr mme mlle mm sr sra srta dra ud uds av".split()
)
# These are abbreviations before a number only: "No. 5", but "No. I will not."
BEFORE_NUMBERS = frozenset("no nr art fig abb p pp vol bd ch sec eq abs nº núm".split())
CLAUSES = ",;:،؛、，；："


@dataclass(frozen=True)
class Sentences:
    """The sentences of a text, and the white space before, between and after them."""

    texts: list[str]
    gaps: list[str]

    def join(self, texts: Sequence[str]) -> str:
        """Return the text with ``texts``, such as translations, in place of the sentences."""
        return self.gaps[0] + "".join(text + gap for text, gap in zip(texts, self.gaps[1:], strict=True))


def split_sentences(text: str, fits: Callable[[str], bool] = lambda _: True) -> Sentences:
    """Split a text. A sentence that does not fit is cut at white space."""
    first = text[: len(text) - len(text.lstrip())]
    pairs = [pair for sentence, gap in sentences(text, len(first)) for pair in cut(sentence, gap, fits)]
    return Sentences([sentence for sentence, _ in pairs], [first, *(gap for _, gap in pairs)])


def sentences(text: str, start: int) -> Iterator[tuple[str, str]]:
    """Yield the sentences from ``start`` on, each with the white space after it."""
    for match in BREAK.finditer(text, start):
        end = match.start() + len(match[0].rstrip())
        if match.end() < len(text) and (end > match.start() or ends(text, match)):
            yield text[start:end], text[end : match.end()]
            start = match.end()
    end = len(text.rstrip())
    if start < end:
        yield text[start:end], text[end:]


def ends(text: str, space: re.Match[str]) -> bool:
    """Say whether a sentence ends at this white space."""
    if space[0].count("\n") > 1 or "\u2029" in space[0]:
        return True
    before = text[max(0, space.start() - BEFORE) : space.start()].rstrip(CLOSING)
    after = text[space.end() : space.end() + BEFORE].lstrip(OPENING)
    stem = before.rstrip(MARKS)
    if stem == before or after[:1].islower():
        return False
    return before != f"{stem}." or not shortened(stem, after)


def shortened(stem: str, after: str) -> bool:
    """Say whether the full stop after ``stem`` marks an abbreviation or a number."""
    word = re.split(rf"[\s{re.escape(OPENING)}]", stem)[-1]
    if word.isdecimal():
        return len(word) < 3
    if (len(word) == 1 and word.isupper()) or re.fullmatch(r"[^\W\d_]{1,2}(\.[^\W\d_]{1,2})+", word):
        return True
    return word.lower() in (ABBREVIATIONS | BEFORE_NUMBERS if after[:1].isdecimal() else ABBREVIATIONS)


def cut(sentence: str, gap: str, fits: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Yield the parts of a sentence that fit, each with the white space after it."""
    waiting = [(sentence, gap)]
    while waiting:
        part, after = waiting.pop()
        space = None if fits(part) else middle(part)
        if space is None:
            yield part, after
        else:
            waiting += [(part[space.end() :], after), (part[: space.start()], space[0])]


def middle(sentence: str) -> re.Match[str] | None:
    """Return the white space nearest to the middle. In the middle half one after a comma comes first."""
    half = len(sentence) / 2
    spaces = sorted(re.finditer(r"\s+", sentence), key=lambda space: abs(space.start() - half))
    clauses = (space for space in spaces if sentence[space.start() - 1] in CLAUSES)
    best = next(clauses, None)
    return best if best and abs(best.start() - half) <= half / 2 else next(iter(spaces), None)
