"""Check the header of a safetensors file before any library reads the file.

A file is eight bytes with the length of the header, the header in JSON, and the data. The header gives each tensor
its dtype, its shape, and the range of its bytes; the ranges must follow each other and end with the file.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, BinaryIO

from edgebert.checkpoints.folder import CheckpointFolder, foreign, parse_json
from edgebert_runtime.errors import CheckpointError

MAX_HEADER_BYTES = 25_000_000
MAX_TENSORS = 100_000
FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
OTHERS = {
    "BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "U32": 4, "I32": 4, "U64": 8, "I64": 8, "C64": 8,
    "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1,
}  # fmt: skip
AGAIN = "the file is damaged, download it again"


@dataclass(frozen=True)
class TensorInfo:
    """The dtype, as safetensors calls it, and the shape of a tensor."""

    dtype: str
    shape: tuple[int, ...]


def read_header(folder: CheckpointFolder, name: str) -> dict[str, TensorInfo]:
    """Return the tensors of the safetensors file ``name``, without reading their data.

    Raises:
        CheckpointError: if it is not a whole and sound safetensors file, with what was found instead.
    """
    with folder.stream(name) as stream:
        size = os.fstat(stream.fileno()).st_size
        text = header_text(stream, size, name)
    entries = parse_json(f"{name}: the header", text)
    if not isinstance(entries, dict):
        raise CheckpointError(f"{name}: the header is not an object; {AGAIN}")
    entries.pop("__metadata__", None)
    if len(entries) > MAX_TENSORS:
        raise CheckpointError(
            f"{name} lists {len(entries)} tensors, at most {MAX_TENSORS} are read; is it a checkpoint?"
        )
    ranges = {key: check_entry(name, key, entry) for key, entry in entries.items()}
    check_ranges(name, ranges, size - 8 - len(text.encode()))
    return {key: TensorInfo(entry["dtype"], tuple(entry["shape"])) for key, entry in entries.items()}


def header_text(stream: BinaryIO, size: int, name: str) -> str:
    """Return the header of a file of ``size`` bytes."""
    start = stream.read(256)
    length = int.from_bytes(start[:8], "little")
    sound = start[8:9] == b"{"  # the length alone can look like the first bytes of a pickle
    if not sound and (what := foreign(start)):
        raise CheckpointError(f"{name} is {what}; download it again")
    if not sound or size < 10:
        raise CheckpointError(f"{name} ({size} bytes) is not a safetensors file; download it again")
    if length > MAX_HEADER_BYTES:
        raise CheckpointError(f"{name}: the header says it has {length} bytes, at most {MAX_HEADER_BYTES} are read")
    if 8 + length > size:
        raise CheckpointError(f"{name} should have at least {8 + length} bytes, has {size}; download it again")
    stream.seek(8)
    try:
        return stream.read(length).decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{name}: the header is not UTF-8 (byte {8 + error.start}); {AGAIN}") from error


def check_entry(name: str, key: str, entry: Any) -> tuple[int, int]:
    """Check one tensor of the header and return the range of its bytes."""
    where = f"{name}: tensor {key!r:.120}"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"{where} is not described by dtype, shape and data_offsets; {AGAIN}")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    width = {**FLOATS, **OTHERS}.get(dtype) if isinstance(dtype, str) else None
    if width is None:
        raise CheckpointError(f"{where} has the unknown dtype {dtype!r:.60}; save the checkpoint in float32")
    if not is_sizes(shape):
        raise CheckpointError(f"{where} has the impossible shape {shape!r:.60}; {AGAIN}")
    if not is_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise CheckpointError(f"{where} has the impossible data_offsets {offsets!r:.60}; {AGAIN}")
    needed, given = math.prod(shape) * width, offsets[1] - offsets[0]
    if needed != given:
        raise CheckpointError(f"{where} of shape {shape!r:.60} in {dtype} needs {needed} bytes, has {given}; {AGAIN}")
    return offsets[0], offsets[1]


def is_sizes(value: Any) -> bool:
    """Say whether ``value`` is a short list of whole numbers that are not negative."""
    return isinstance(value, list) and len(value) <= 16 and all(type(n) is int and 0 <= n < 1 << 63 for n in value)


def check_ranges(name: str, ranges: dict[str, tuple[int, int]], available: int) -> None:
    """Make sure that the tensors fill the data of the file, one after the other."""
    position = 0
    for key, (start, end) in sorted(ranges.items(), key=lambda item: item[1]):
        if start != position:
            fault = "overlaps the tensor before it" if start < position else "leaves a hole before it"
            raise CheckpointError(f"{name}: tensor {key!r:.120} starts at byte {start} and {fault}; {AGAIN}")
        position = end
    if position != available:
        raise CheckpointError(
            f"{name} should have {position} bytes of tensors, has {available}; the download was cut short or mixed up, "
            "download it again"
        )
