"""Turn the labels of tokens into entities. Pure functions over token numbers; characters come later.

Labels follow one of the usual schemes: ``B-`` begins an entity, ``I-`` continues one of its type, ``E-`` and ``L-``
end it, ``S-`` and ``U-`` are one alone. A label without such a prefix continues an equal one before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

AGGREGATIONS = ("simple", "none", "first", "max")
ELECTRA = ("original", "replaced")
PREFIXED = re.compile(r"([BIELSU])-(.+)", re.DOTALL)

Judged = tuple[NDArray[np.int64], NDArray[np.float32]]
Windows = Sequence[tuple[int, int]]
Key = TypeVar("Key")


class Part(NamedTuple):
    """A token or word inside an entity: its label's number, its score, and the first and last token that it covers."""

    label: int
    score: float
    first: int
    last: int


class Found(NamedTuple):
    """An entity: its name, its score, and the first and last token that it covers."""

    name: str
    score: float
    first: int
    last: int


@dataclass(frozen=True)
class Scheme:
    """What labels mean, by number: their types, and which begin, which end and which are inside of entities."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    begins: frozenset[int]
    ends: frozenset[int]
    inside: frozenset[int]


def read_scheme(names: tuple[str, ...]) -> Scheme:
    """Find out what labels mean from their names.

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


def judge(logits: NDArray[np.float32]) -> Judged:
    """Return the best label of each token and its probability (tokens,) from logits (tokens, labels)."""
    best = logits.argmax(1)
    return best, 1 / np.exp(logits - logits.max(1)[:, None]).sum(1)


def stitch(windows: Windows, judged: Sequence[Judged]) -> Judged:
    """Take each token's label and score from the window in which it stands farthest from an edge.

    The two ends of the text are no edges: nothing is cut off there. Of equals, the first window counts.
    """
    length = windows[-1][1]
    best, scores, depth = np.zeros(length, np.int64), np.zeros(length, np.float32), np.full(length, -1)
    for (start, end), (labels, found) in zip(windows, judged, strict=True):
        places = np.arange(start, end)
        left = places - start if start else length
        right = end - 1 - places if end < length else length
        here = np.minimum(left, right)
        deeper = here > depth[start:end]
        for old, new in ((best, labels), (scores, found), (depth, here)):
            old[start:end] = np.where(deeper, new, old[start:end])
    return best, scores


def group(keys: Sequence[Key | None]) -> list[tuple[int, int]]:
    """Return first and last place of each run of equal keys; None is a run of its own."""
    runs: list[tuple[int, int]] = []
    for place, key in enumerate(keys):
        if runs and key is not None and key == keys[place - 1]:
            runs[-1] = runs[-1][0], place
        else:
            runs.append((place, place))
    return runs


def find(judged: Judged, scheme: Scheme, aggregation: str, words: Callable[[], Sequence[int | None]]) -> list[Found]:
    """Return the entities among labelled tokens; ``words`` gives the number of each token's word.

    ``none`` makes each token one, ``simple`` merges tokens; ``first`` and ``max`` merge words, which have the label
    and score of their first or surest token. The score of an entity is the mean of those of its parts.
    """
    best = judged[0].tolist()
    if scheme.inside.isdisjoint(best):
        return []
    scores = judged[1].tolist()
    if aggregation in ("none", "simple"):
        chosen = [(place, place, place) for place in range(len(best))]
    elif aggregation == "first":
        chosen = [(first, first, last) for first, last in group(words())]
    else:
        chosen = [(max(range(a, b + 1), key=scores.__getitem__), a, b) for a, b in group(words())]
    parts = [Part(best[at], scores[at], first, last) for at, first, last in chosen if best[at] in scheme.inside]
    if aggregation == "none":
        return [Found(scheme.names[part.label], *part[1:]) for part in parts]
    return merge(parts, scheme)


def merge(parts: Sequence[Part], scheme: Scheme) -> list[Found]:
    """Join parts, in the order of the text, that belong to one entity."""
    entities: list[tuple[str, list[Part]]] = []
    open_at: tuple[str, int] | None = None  # type and place of a part that would continue the last entity
    for part in parts:
        kind = scheme.types[part.label]
        if (kind, part.first) != open_at or part.label in scheme.begins:
            entities.append((kind, []))
        entities[-1][1].append(part)
        open_at = None if part.label in scheme.ends else (kind, part.last + 1)
    return [
        Found(kind, sum(part.score for part in members) / len(members), members[0].first, members[-1].last)
        for kind, members in entities
    ]
