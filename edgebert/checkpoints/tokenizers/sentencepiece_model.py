"""Read the model files of SentencePiece (Kudo and Richardson, 2018) without its library.

Such a file, ``source.spm`` or ``sentencepiece.bpe.model``, is one protobuf message: pieces with their scores, and how a
text is normalized. Numbers of fields are those of sentencepiece_model.proto.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from edgebert.checkpoints.folder import CheckpointFolder, foreign, some
from edgebert_runtime.bundle.protobuf import BYTES, FIXED32, VARINT, WireError, expect, fields, text
from edgebert_runtime.errors import TokenizerError

MAX_BYTES = 64 << 20  # XLM-R's has 5 MB
MAX_PIECES = 1 << 20
HINT = "save the tokenizer as tokenizer.json"  # what to do where a model cannot be followed exactly

UNIGRAM, BPE, WORD, CHARACTERS = "unigram", "bpe", "word", "char"
ALGORITHMS = {1: UNIGRAM, 2: BPE, 3: WORD, 4: CHARACTERS}
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
BYTES_OF_TEXT = tuple(f"<0x{byte:02X}>" for byte in range(256))
# Switches of the normalizer by their numbers; all are on unless the file says something else.
SWITCHES = {3: "add_dummy_prefix", 4: "remove_extra_whitespaces", 5: "escape_whitespaces"}


class Piece(NamedTuple):
    """A piece, its score, and its type."""

    text: str
    score: float = 0.0
    kind: int = NORMAL


@dataclass
class SentencePieces:
    """What a model file of SentencePiece holds.

    ``algorithm`` is one of ``ALGORITHMS``. ``character_map`` are the rules by which characters are replaced, in the
    form that the library searches, empty for none. ``denormalizes`` says that there are such rules for decoding too.
    """

    name: str
    pieces: list[Piece] = field(default_factory=list)
    algorithm: str = UNIGRAM
    character_map: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True
    treat_whitespace_as_suffix: bool = False
    byte_fallback: bool = False
    denormalizes: bool = False

    @property
    def unknown(self) -> str:
        """The piece that stands for what is unknown."""
        return next(piece.text for piece in self.pieces if piece.kind == UNKNOWN)


def read_sentencepieces(folder: CheckpointFolder, name: str) -> SentencePieces:
    """Read the model file ``name``.

    Raises:
        CheckpointError: if it cannot be read or is too large.
        TokenizerError: if it is no whole model file of SentencePiece, or one that the library would refuse.
    """
    data = folder.content(name, MAX_BYTES)
    model = SentencePieces(name)
    try:
        parse_model(data, model)
    except WireError as error:
        found = foreign(data) or f"not a whole model file of SentencePiece ({error})"
        raise TokenizerError(f"{name} is {found}; download it again") from error
    if wrong := list(faults(model)):
        raise TokenizerError(f"{name} {'; '.join(wrong)}; download it again")
    return model


def parse_model(data: bytes, model: SentencePieces) -> None:
    """Walk a ModelProto."""
    for number, kind, a, b in fields(data, 0, len(data)):
        if number in (1, 2, 3, 5):
            expect(kind, BYTES)
        if number == 1:
            if len(model.pieces) == MAX_PIECES:
                raise WireError(f"more than {MAX_PIECES} pieces")
            model.pieces.append(parse_piece(data, a, b))
        elif number == 2:
            parse_trainer(data, a, b, model)
        elif number == 3:
            parse_normalizer(data, a, b, model)
        elif number == 5:
            rules = SentencePieces(model.name)
            parse_normalizer(data, a, b, rules)
            model.denormalizes = bool(rules.character_map)


def parse_piece(data: bytes, start: int, end: int) -> Piece:
    """Walk a SentencePiece."""
    piece = Piece("")
    for number, kind, a, b in fields(data, start, end):
        if number == 1:
            expect(kind, BYTES)
            piece = piece._replace(text=text(data, a, b))
        elif number == 2:
            expect(kind, FIXED32)
            piece = piece._replace(score=struct.unpack("<f", data[a:b])[0])
        elif number == 3:
            expect(kind, VARINT)
            piece = piece._replace(kind=a)
    return piece


def parse_trainer(data: bytes, start: int, end: int, model: SentencePieces) -> None:
    """Walk a TrainerSpec, of which three fields matter when a text is encoded."""
    for number, kind, a, _ in fields(data, start, end):
        if number in (3, 24, 35):
            expect(kind, VARINT)
        if number == 3:
            if a not in ALGORITHMS:
                raise WireError(f"the unknown model_type {a}")
            model.algorithm = ALGORITHMS[a]
        elif number == 24:
            model.treat_whitespace_as_suffix = bool(a)
        elif number == 35:
            model.byte_fallback = bool(a)


def parse_normalizer(data: bytes, start: int, end: int, model: SentencePieces) -> None:
    """Walk a NormalizerSpec."""
    for number, kind, a, b in fields(data, start, end):
        if number == 2:
            expect(kind, BYTES)
            model.character_map = data[a:b]
        elif number in SWITCHES:
            expect(kind, VARINT)
            setattr(model, SWITCHES[number], bool(a))


def faults(model: SentencePieces) -> Iterator[str]:
    """Say for what reasons the library would not load the model."""
    kinds = Counter(piece.kind for piece in model.pieces)
    if not kinds[NORMAL]:
        yield "has no pieces"
    if strange := sorted(kind for kind in kinds if not NORMAL <= kind <= BYTE):
        yield f"has pieces of the unknown types {some([str(kind) for kind in strange])}"
    if kinds[UNKNOWN] != 1:
        yield f"has {kinds[UNKNOWN]} pieces for unknown text, one is needed"
    counted = Counter(piece.text for piece in model.pieces)
    if twice := [repr(piece) for piece, count in counted.items() if count > 1]:
        yield f"has pieces twice: {some(twice)}"
    if wrong := [f"{piece.text!r:.60}" for piece in model.pieces if not piece.text or "\0" in piece.text]:
        yield f"has pieces that cannot be: {some(wrong)}"
    if wrong := [f"{piece.text!r:.60}: {piece.score}" for piece in model.pieces if not math.isfinite(piece.score)]:
        yield f"has scores that are no numbers: {some(wrong)}"
    named = {piece.text for piece in model.pieces if piece.kind == BYTE}
    if named != (set(BYTES_OF_TEXT) if model.byte_fallback else set()):
        yield f"has pieces for {len(named)} bytes, byte_fallback={str(model.byte_fallback).lower()}"
