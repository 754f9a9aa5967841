"""A reader of the protobuf wire format, in place: no schema compiler, no copies.

A message is a run of fields. A field is a tag (number and wire type) and a value: a varint, eight or four bytes, or a
length and that many bytes. See https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Data = bytes | mmap


class WireError(Exception):
    """The bytes are no protobuf message, or end in the middle of one."""


def varint(data: Data, at: int, end: int) -> tuple[int, int]:
    """Return the unsigned varint at ``at``, and where it ends."""
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise WireError(f"no whole number at byte {at}")


def fields(data: Data, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield ``(number, wire type, a, b)`` for each field of the message in ``data[start:end]``.

    For a varint ``a`` is its value; for all else ``data[a:b]`` is the content.

    Raises:
        WireError: if the bytes do not form a message.
    """
    at = start
    while at < end:
        tag = data[at]
        if tag < 0x80:  # field numbers below 16: one byte, nearly always
            at += 1
        else:
            tag, at = varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        if not number:
            raise WireError(f"field number 0 at byte {at}")
        if kind == BYTES:
            length, at = varint(data, at, end)
            if length > end - at:
                raise WireError(f"{length} bytes announced at byte {at}, {end - at} there")
            yield number, kind, at, at + length
            at += length
        elif kind == VARINT:
            value, at = varint(data, at, end)
            yield number, kind, value, 0
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
            if size > end - at:
                raise WireError(f"{size} bytes expected at byte {at}, {end - at} there")
            yield number, kind, at, at + size
            at += size
        else:
            raise WireError(f"wire type {kind} at byte {at}")


def expect(kind: int, expected: int) -> None:
    """Check the wire type of a field against the schema."""
    if kind != expected:
        raise WireError(f"wire type {kind} where the schema has {expected}")


def text(data: Data, start: int, end: int) -> str:
    """Return ``data[start:end]`` as text."""
    try:
        return data[start:end].decode("utf-8")
    except UnicodeDecodeError as error:
        raise WireError(f"no UTF-8 at byte {start + error.start}") from error


def signed(value: int) -> int:
    """Return the int64 that a varint stands for."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
