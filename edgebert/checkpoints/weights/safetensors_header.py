"""Read names, dtypes and shapes of a safetensors file.

The library reads and checks the file. It is asked only after the length of the header and its JSON have been checked,
which it takes a repeated name in; and where it refuses a file, :func:`explain` says which tensor is wrong.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, BinaryIO

import safetensors

from edgebert.checkpoints.folder import CheckpointFolder, foreign, parse_json
from edgebert_runtime.errors import CheckpointError

MAX_HEADER_BYTES = 25_000_000
MAX_TENSORS = 100_000
FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
WIDTHS = {**FLOATS, "BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "U32": 4, "I32": 4, "U64": 8, "I64": 8, "C64": 8}
AGAIN = "the file is damaged; save or download it again"


@dataclass(frozen=True)
class TensorInfo:
    """Dtype (in the name of safetensors) and shape of a tensor."""

    dtype: str
    shape: tuple[int, ...]


def read_header(folder: CheckpointFolder, name: str) -> dict[str, TensorInfo]:
    """Return the tensors of a safetensors file, without their data.

    Raises:
        CheckpointError: if it is not a whole and sound safetensors file, naming the fault.
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
    try:
        with safetensors.safe_open(os.path.realpath(folder.path / name), framework="numpy") as file:
            slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118, it is no mapping
            return {key: TensorInfo(part.get_dtype(), tuple(part.get_shape())) for key, part in slices.items()}
    except safetensors.SafetensorError as error:
        fault = explain(entries, size - 8 - len(text.encode())) or f" cannot be read ({error}); {AGAIN}"
        raise CheckpointError(f"{name}{fault}") from error


def header_text(stream: BinaryIO, size: int, name: str) -> str:
    """Return the JSON header of a file of ``size`` bytes."""
    start = stream.read(256)
    length = int.from_bytes(start[:8], "little")
    is_header = start[8:9] == b"{"  # the length alone can look like the first bytes of a pickle
    if not is_header and (kind := foreign(start)):
        raise CheckpointError(f"{name} is {kind}; save or download it again")
    if not is_header or size < 10:
        raise CheckpointError(f"{name} ({size} bytes) is not a safetensors file; save or download it again")
    if length > MAX_HEADER_BYTES:
        raise CheckpointError(f"{name}: the header says it has {length} bytes, at most {MAX_HEADER_BYTES} are read")
    if 8 + length > size:
        raise CheckpointError(f"{name} should have at least {8 + length} bytes, has {size}; save or download it again")
    stream.seek(8)
    try:
        return stream.read(length).decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{name}: the header is not UTF-8 (byte {8 + error.start}); {AGAIN}") from error


def explain(entries: dict[str, Any], available: int) -> str | None:
    """Return the fault of a refused header, None if not apparent."""
    for key, entry in entries.items():
        if fault := entry_fault(entry):
            return f": tensor {key!r:.120} {fault}"
    position = 0
    for key, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        start, end = entry["data_offsets"]
        if start != position:
            fault = "overlaps the tensor before it" if start < position else "leaves a hole before it"
            return f": tensor {key!r:.120} starts at byte {start} and {fault}; {AGAIN}"
        position = end
    if position == available:
        return None
    hint = "the download was cut short or mixed up; save or download it again"
    return f" should have {position} bytes of tensors, has {available}; {hint}"


def entry_fault(entry: Any) -> str | None:
    """Return the fault of one tensor entry, or None."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        return f"is not described by dtype, shape and data_offsets; {AGAIN}"
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or not (dtype in WIDTHS or dtype.startswith(("F4", "F6", "F8"))):
        return f"has the unknown dtype {dtype!r:.60}; save the checkpoint in float32"
    for name, sizes in (("shape", shape), ("data_offsets", offsets)):
        if not isinstance(sizes, list) or any(type(size) is not int or not 0 <= size < 1 << 63 for size in sizes):
            return f"has the impossible {name} {sizes!r:.60}; {AGAIN}"
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        return f"has the impossible data_offsets {offsets!r:.60}; {AGAIN}"
    needed, length = math.prod(shape) * WIDTHS.get(dtype, 0), offsets[1] - offsets[0]
    if dtype in WIDTHS and needed != length:
        return f"of shape {shape!r:.60} in {dtype} needs {needed} bytes, has {length}; {AGAIN}"
    return None
