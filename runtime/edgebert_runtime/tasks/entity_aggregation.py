"""Turn the labels of tokens into entities. Pure functions over token numbers; characters come later.

Labels follow one of the usual schemes: ``B-`` begins an entity, ``I-`` continues one of its type, ``E-`` and ``L-``
end it, ``S-`` and ``U-`` are one alone. A label without such a prefix continues an equal one before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

AGGREGATIONS = ("simple", "none", "first", "max", "average")
ELECTRA = ("original", "replaced")
PREFIXED = re.compile(r"([BIELSU])-(.+)", re.DOTALL)

# The best label of each token (tokens,), and its probability, or for the average those of all labels (tokens, labels).
TokenLabels = tuple[NDArray[np.int64], NDArray[np.float32]]
Windows = Sequence[tuple[int, int]]
Key = TypeVar("Key")


class HasWords(Protocol):
    """Tokens with the number of the word of each, None for special ones; ``tokenizers.Encoding`` is one."""

    @property
    def word_ids(self) -> Sequence[int | None]:
        """Return the numbers."""


class Words(NamedTuple):
    """The number of the word of each token."""

    word_ids: Sequence[int | None]


class LabelledPiece(NamedTuple):
    """A token or word inside an entity: its label's number, its score, and the first and last token that it covers."""

    label: int
    score: float
    first: int
    last: int


class TokenSpan(NamedTuple):
    """An entity: its name, its score, and the first and last token that it covers."""

    name: str
    score: float
    first: int
    last: int


@dataclass(frozen=True)
class Scheme:
    """Labels by number: their types, and which begin, which end and which are inside of entities."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    begins: frozenset[int]
    ends: frozenset[int]
    inside: frozenset[int]


def read_scheme(names: tuple[str, ...]) -> Scheme:
    """Read types and prefixes from the names of labels.

    ``O`` is outside of all entities, and so is ``original`` of ELECTRA, whose other label is ``replaced``.
    """
    outside = ELECTRA[0] if names == ELECTRA else "O"
    split = [(match[1], match[2]) if (match := PREFIXED.fullmatch(name)) else ("", name) for name in names]
    return Scheme(
        names,
        tuple(kind for _, kind in split),
        frozenset(label for label, (prefix, _) in enumerate(split) if prefix in ("B", "S", "U")),
        frozenset(label for label, (prefix, _) in enumerate(split) if prefix in ("E", "L", "S", "U")),
        frozenset(label for label, name in enumerate(names) if name != outside),
    )


def predict_labels(logits: NDArray[np.float32], of_all: bool = False) -> TokenLabels:
    """Return the best label of each token and its probability (tokens,) from logits (tokens, labels).

    With ``of_all`` the probabilities are those of all labels (tokens, labels).
    """
    best = logits.argmax(1)
    if of_all:
        exponentials = np.exp(logits - logits.max(1)[:, None])
        return best, exponentials / exponentials.sum(1)[:, None]
    return best, 1 / np.exp(logits - logits.max(1)[:, None]).sum(1)


def merge_windows(windows: Windows, labelled: Sequence[TokenLabels]) -> TokenLabels:
    """Take each token's label and score from the window in which it stands farthest from an edge.

    The two ends of the text are no edges. Of equals, the first window counts.
    """
    length = windows[-1][1]
    best, depth = np.zeros(length, np.int64), np.full(length, -1)
    scores = np.zeros((length, *labelled[0][1].shape[1:]), np.float32)
    for (start, end), (window_labels, window_scores) in zip(windows, labelled, strict=True):
        places = np.arange(start, end)
        left = places - start if start else length
        right = end - 1 - places if end < length else length
        here = np.minimum(left, right)
        deeper = here > depth[start:end]
        for old, new in ((best, window_labels), (scores, window_scores), (depth, here)):
            mask = deeper if old.ndim == 1 else deeper[:, None]
            old[start:end] = np.where(mask, new, old[start:end])
    return best, scores


def words_between_blanks(
    text: str, ids: Sequence[int], offsets: Sequence[tuple[int, int]], unknown: int | None
) -> Words:
    """Return words that begin at a blank, or with unknown text, as transformers has them.

    It takes them where the tokenizer does not mark the pieces inside of words: byte-level BPE and Unigram.
    """
    numbers: list[int | None] = []
    word = 0
    for place, (index, (start, _)) in enumerate(zip(ids, offsets, strict=True)):
        begins = start == 0 or " " in text[start - 1 : start + 1] or index == unknown
        word += bool(place) and begins
        numbers.append(word)
    return Words(numbers)


def group(keys: Sequence[Key | None]) -> list[tuple[int, int]]:
    """Return first and last place of each run of equal keys; None is a run of its own."""
    runs: list[tuple[int, int]] = []
    for place, key in enumerate(keys):
        if runs and key is not None and key == keys[place - 1]:
            runs[-1] = runs[-1][0], place
        else:
            runs.append((place, place))
    return runs


def aggregate_entities(labels: TokenLabels, scheme: Scheme, aggregation: str, tokens: HasWords) -> list[TokenSpan]:
    """Return the entities among labelled tokens.

    ``none`` makes each token one. ``simple`` merges tokens. ``first`` and ``max`` merge words, which have the label
    and score of their first or surest token, and ``average`` words with the best label of their mean probabilities. The
    score of an entity is the mean of those of its pieces.
    """
    if aggregation == "average":
        return merge(averages(labels[1], scheme, tokens), scheme)
    best = labels[0].tolist()
    if scheme.inside.isdisjoint(best):
        return []
    scores = labels[1].tolist()
    if aggregation in ("none", "simple"):
        chosen = [(place, place, place) for place in range(len(best))]
    elif aggregation == "first":
        chosen = [(first, first, last) for first, last in group(tokens.word_ids)]
    else:
        chosen = [(max(range(a, b + 1), key=scores.__getitem__), a, b) for a, b in group(tokens.word_ids)]
    pieces = [
        LabelledPiece(best[at], scores[at], first, last) for at, first, last in chosen if best[at] in scheme.inside
    ]
    if aggregation == "none":
        return [TokenSpan(scheme.names[piece.label], *piece[1:]) for piece in pieces]
    return merge(pieces, scheme)


def averages(probabilities: NDArray[np.float32], scheme: Scheme, tokens: HasWords) -> list[LabelledPiece]:
    """Return the words whose best label is one of an entity, by the mean probabilities of their tokens."""
    means = [(probabilities[first : last + 1].mean(0), first, last) for first, last in group(tokens.word_ids)]
    words = [(int(mean.argmax()), float(mean.max()), first, last) for mean, first, last in means]
    return [LabelledPiece(*word) for word in words if word[0] in scheme.inside]


def merge(pieces: Sequence[LabelledPiece], scheme: Scheme) -> list[TokenSpan]:
    """Join pieces, in the order of the text, that belong to one entity."""
    entities: list[tuple[str, list[LabelledPiece]]] = []
    open_at: tuple[str, int] | None = None  # type and place of a piece that would continue the last entity
    for piece in pieces:
        kind = scheme.types[piece.label]
        if (kind, piece.first) != open_at or piece.label in scheme.begins:
            entities.append((kind, []))
        entities[-1][1].append(piece)
        open_at = None if piece.label in scheme.ends else (kind, piece.last + 1)
    return [
        TokenSpan(kind, sum(piece.score for piece in members) / len(members), members[0].first, members[-1].last)
        for kind, members in entities
    ]
