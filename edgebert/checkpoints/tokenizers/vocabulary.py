"""The vocabulary of a model whose pieces SentencePiece finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model with ``size`` embeddings, by id.

    ``unknown`` stands for unknown text, ``end`` follows each text. No text gives ``specials``, which are among the
    tokens, or ``added``, which come after them. A text can begin with one of ``languages``. With ``looks_up``, unknown
    text may be a token as a whole: so Marian reads what only its other language has pieces for. A piece that is no
    token is unknown: its id is above ``size``.
    """

    tokens: Sequence[str]
    size: int
    unknown: str
    end: str
    specials: Sequence[str]
    added: Sequence[str] = ()
    languages: Sequence[str] = ()
    looks_up: bool = False
