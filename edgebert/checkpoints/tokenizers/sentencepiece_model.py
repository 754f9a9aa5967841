"""Read the model files of SentencePiece (Kudo and Richardson, 2018).

Such a file, ``source.spm`` or ``sentencepiece.bpe.model``, is one protobuf message: pieces with their scores, and how a
text is normalized. ``protobuf`` parses it by the part of sentencepiece_model.proto that encoding depends on. The types
of ``sentencepiece`` itself are of no use: two copies of them in a process, ours and that of transformers, are an error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from edgebert.checkpoints.folder import CheckpointFolder, foreign, some
from edgebert_runtime.errors import TokenizerError

MAX_BYTES = 64 << 20  # XLM-R's has 5 MB
MAX_PIECES = 1 << 20
HINT = "save the tokenizer as tokenizer.json"  # the remedy where a model cannot be followed exactly

UNIGRAM, BPE, WORD, CHARACTERS = "unigram", "bpe", "word", "char"
ALGORITHMS = {1: UNIGRAM, 2: BPE, 3: WORD, 4: CHARACTERS}
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
BYTES_OF_TEXT = tuple(f"<0x{byte:02X}>" for byte in range(256))

# The schema, a field a line: number, type, default. Enumerations are read as numbers.
SCHEMA: dict[str, dict[str, tuple[int, str, str]]] = {
    "SentencePiece": {
        "piece": (1, "STRING", ""),
        "score": (2, "FLOAT", ""),
        "type": (3, "INT32", str(NORMAL)),
    },
    "TrainerSpec": {
        "model_type": (3, "INT32", "1"),
        "treat_whitespace_as_suffix": (24, "BOOL", "false"),
        "byte_fallback": (35, "BOOL", "false"),
    },
    "NormalizerSpec": {
        "precompiled_charsmap": (2, "BYTES", ""),
        "add_dummy_prefix": (3, "BOOL", "true"),
        "remove_extra_whitespaces": (4, "BOOL", "true"),
        "escape_whitespaces": (5, "BOOL", "true"),
    },
    "ModelProto": {
        "pieces": (1, "SentencePiece", ""),
        "trainer_spec": (2, "TrainerSpec", ""),
        "normalizer_spec": (3, "NormalizerSpec", ""),
        "denormalizer_spec": (5, "NormalizerSpec", ""),
    },
}
WIRE_TYPES = {"INT32": 0, "BOOL": 0, "FLOAT": 5}  # all others are bytes of a given length
BYTES_WIRE_TYPE = 2


class Piece(NamedTuple):
    """A piece, its score, and its type."""

    text: str
    score: float = 0.0
    kind: int = NORMAL


@dataclass
class SentencePieces:
    """A SentencePiece model.

    ``data`` is the file. ``algorithm`` is one of ``ALGORITHMS``. ``character_map`` holds the normalization rules in
    the form that the library searches, empty for none. ``denormalizes`` says that there are rules for decoding too.
    """

    name: str
    data: bytes = field(default=b"", repr=False)
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
        """The piece that stands for unknown text."""
        return next(piece.text for piece in self.pieces if piece.kind == UNKNOWN)


class DamagedModelError(Exception):
    """A reason why bytes are no SentencePiece model."""


def read_sentencepieces(folder: CheckpointFolder, name: str) -> SentencePieces:
    """Read the model file ``name``.

    Raises:
        CheckpointError: if it cannot be read or is too large.
        TokenizerError: if it is no whole model file of SentencePiece, or one that the library would refuse.
    """
    data = folder.content(name, MAX_BYTES)
    try:
        model = parse_model(name, data)
    except DamagedModelError as error:
        kind = foreign(data) or f"not a whole model file of SentencePiece ({error})"
        raise TokenizerError(f"{name} is {kind}; save or download it again") from error
    if problems := list(faults(model)):
        raise TokenizerError(f"{name} {'; '.join(problems)}; save or download it again")
    return model


@cache
def message_type() -> Any:
    """Return the protobuf class of ``ModelProto``, in its own pool."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise TokenizerError('SentencePiece files need protobuf; pip install "edgebert[export]"') from error
    file = descriptor_pb2.FileDescriptorProto(name="sentencepiece_subset.proto", package="edgebert", syntax="proto2")
    types = descriptor_pb2.FieldDescriptorProto
    for message, fields in SCHEMA.items():
        described = file.message_type.add(name=message)
        for name, (number, kind, default) in fields.items():
            entry = described.field.add(name=name, number=number, label=types.LABEL_OPTIONAL)
            if kind in SCHEMA:
                entry.type, entry.type_name = types.TYPE_MESSAGE, f".edgebert.{kind}"
                entry.label = types.LABEL_REPEATED if name == "pieces" else types.LABEL_OPTIONAL
            else:
                entry.type = getattr(types, f"TYPE_{kind}")
                if default:
                    entry.default_value = default
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("edgebert.ModelProto"))


def parse_model(name: str, data: bytes) -> SentencePieces:
    """Parse the bytes of a model file.

    Raises:
        DamagedModelError: if they are none.
    """
    proto = message_type()()
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet

    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise DamagedModelError(str(error).rpartition(": ")[2]) from error
    if len(proto.pieces) > MAX_PIECES:
        raise DamagedModelError(f"more than {MAX_PIECES} pieces")
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    for message in (proto, trainer, normalizer, proto.denormalizer_spec, *proto.pieces):
        if unread := [*UnknownFieldSet(message)]:
            check_wire_types(message, unread)
    if trainer.model_type not in ALGORITHMS:
        raise DamagedModelError(f"the unknown model_type {trainer.model_type}")
    # Text that is no UTF-8 comes as bytes.
    if damaged := [piece.piece for piece in proto.pieces if not isinstance(piece.piece, str)]:
        raise DamagedModelError(f"{damaged[0]!r:.60} is no UTF-8")
    return SentencePieces(
        name=name,
        data=data,
        pieces=[Piece(piece.piece, piece.score, piece.type) for piece in proto.pieces],
        algorithm=ALGORITHMS[trainer.model_type],
        character_map=normalizer.precompiled_charsmap,
        add_dummy_prefix=normalizer.add_dummy_prefix,
        remove_extra_whitespaces=normalizer.remove_extra_whitespaces,
        escape_whitespaces=normalizer.escape_whitespaces,
        treat_whitespace_as_suffix=trainer.treat_whitespace_as_suffix,
        byte_fallback=trainer.byte_fallback,
        denormalizes=bool(proto.denormalizer_spec.precompiled_charsmap),
    )


def check_wire_types(message: Any, unread_fields: Iterable[Any]) -> None:
    """Refuse fields of the schema with another wire type."""
    schema = {number: kind for number, kind, _ in SCHEMA[message.DESCRIPTOR.name].values()}
    for unread in unread_fields:
        if kind := schema.get(unread.field_number):
            expected = WIRE_TYPES.get(kind, BYTES_WIRE_TYPE)
            raise DamagedModelError(
                f"field {unread.field_number} of {message.DESCRIPTOR.name} has wire type {unread.wire_type} where the "
                f"schema has {expected}"
            )


def faults(model: SentencePieces) -> Iterator[str]:
    """Yield the reasons why SentencePiece would refuse the model."""
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
