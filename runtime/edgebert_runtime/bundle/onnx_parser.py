"""The structure of an ONNX file, without its weights.

The file is mapped into memory and only its structure is walked, so a file of gigabytes takes milliseconds. Field
numbers are those of onnx.proto.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field
from pathlib import Path

from edgebert_runtime.bundle.manifest import TensorSpec
from edgebert_runtime.bundle.protobuf import BYTES, VARINT, Data, WireError, expect, fields, signed, text
from edgebert_runtime.errors import BundleError, IntegrityError

DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "str",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
}


@dataclass(frozen=True)
class External:
    """A tensor with external data: its name, and the key and value pairs of the location."""

    tensor: str
    entries: dict[str, str]


@dataclass
class OnnxHeader:
    """The structure of a ModelProto.

    ``external`` holds the tensors with external data. ``oddities`` names the parts that no bundle may contain:
    functions, training information, subgraphs, sparse tensors.
    """

    ir_version: int = 0
    opsets: dict[str, int] = field(default_factory=dict)
    operators: set[tuple[str, str]] = field(default_factory=set)
    inputs: list[TensorSpec] = field(default_factory=list)
    outputs: list[TensorSpec] = field(default_factory=list)
    initializers: set[str] = field(default_factory=set)
    external: list[External] = field(default_factory=list)
    oddities: set[str] = field(default_factory=set)
    graphs: int = 0


def read_header(file: Path) -> OnnxHeader:
    """Read the structure of the ONNX model in ``file``.

    Raises:
        IntegrityError: if the file cannot be read.
        BundleError: if it is no ONNX model, or an incomplete one.
    """
    try:
        with open(file, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if not size:
                raise WireError("it is empty")
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                header = parse_model(data, size)
    except OSError as error:
        raise IntegrityError(f"{file} cannot be read ({error.strerror}); copy the bundle again") from error
    except WireError as error:
        raise BundleError(
            f"{file} ({file.stat().st_size} bytes) is not an ONNX model, or an incomplete one: {error}; "
            "copy the bundle again, or export again"
        ) from error
    return header


def parse_model(data: Data, size: int) -> OnnxHeader:
    """Walk a ModelProto."""
    header = OnnxHeader()
    for number, kind, a, b in fields(data, 0, size):
        if number == 1:
            expect(kind, VARINT)
            header.ir_version = signed(a)
        elif number == 7:
            expect(kind, BYTES)
            header.graphs += 1
            parse_graph(data, a, b, header)
        elif number == 8:
            expect(kind, BYTES)
            domain, version = parse_opset(data, a, b)
            header.opsets[domain] = max(version, header.opsets.get(domain, version))
        elif number == 20:
            header.oddities.add("training information")
        elif number == 25:
            header.oddities.add("functions")
    if not header.graphs or not header.ir_version or not header.outputs:
        raise WireError("it holds no graph")
    return header


def parse_opset(data: Data, start: int, end: int) -> tuple[str, int]:
    """Walk an OperatorSetIdProto."""
    domain, version = "", 0
    for number, kind, a, b in fields(data, start, end):
        if number == 1:
            expect(kind, BYTES)
            domain = plain_domain(text(data, a, b))
        elif number == 2:
            expect(kind, VARINT)
            version = signed(a)
    return domain, version


def plain_domain(domain: str) -> str:
    """Return the domain, empty for both names of the standard one."""
    return "" if domain == "ai.onnx" else domain


def parse_graph(data: Data, start: int, end: int, header: OnnxHeader) -> None:
    """Walk a GraphProto."""
    for number, kind, a, b in fields(data, start, end):
        if number not in (1, 5, 11, 12, 15):
            continue
        expect(kind, BYTES)
        if number == 1:
            parse_node(data, a, b, header)
        elif number == 5:
            header.initializers.add(parse_tensor(data, a, b, header))
        elif number == 15:
            header.oddities.add("sparse tensors")
        else:
            (header.inputs if number == 11 else header.outputs).append(parse_value(data, a, b))


def parse_node(data: Data, start: int, end: int, header: OnnxHeader) -> None:
    """Walk a NodeProto."""
    domain = operator = ""
    for number, kind, a, b in fields(data, start, end):
        if number == 4:
            expect(kind, BYTES)
            operator = text(data, a, b)
        elif number == 5:
            expect(kind, BYTES)
            parse_attribute(data, a, b, header)
        elif number == 7:
            expect(kind, BYTES)
            domain = plain_domain(text(data, a, b))
    header.operators.add((domain, operator))


def parse_attribute(data: Data, start: int, end: int, header: OnnxHeader) -> None:
    """Walk an AttributeProto, into its tensors; subgraphs are oddities."""
    for number, kind, a, b in fields(data, start, end):
        if number in (5, 10):
            expect(kind, BYTES)
            parse_tensor(data, a, b, header)
        elif number in (6, 11):
            header.oddities.add("subgraphs")
        elif number in (22, 23):
            header.oddities.add("sparse tensors")


def parse_tensor(data: Data, start: int, end: int, header: OnnxHeader) -> str:
    """Walk a TensorProto, add its external data to the header, and return its name."""
    name, external = "", False
    entries: dict[str, str] = {}
    for number, kind, a, b in fields(data, start, end):
        if number == 8:
            expect(kind, BYTES)
            name = text(data, a, b)
        elif number == 13:
            expect(kind, BYTES)
            key, value = parse_entry(data, a, b)
            if key in entries:
                raise WireError(f"tensor {name!r} has two entries {key!r}")
            entries[key] = value
        elif number == 14:
            expect(kind, VARINT)
            external = a != 0
    if external or entries:
        header.external.append(External(name, entries))
    return name


def parse_entry(data: Data, start: int, end: int) -> tuple[str, str]:
    """Walk a StringStringEntryProto."""
    key = value = ""
    for number, kind, a, b in fields(data, start, end):
        if number in (1, 2):
            expect(kind, BYTES)
            key, value = (text(data, a, b), value) if number == 1 else (key, text(data, a, b))
    return key, value


def parse_value(data: Data, start: int, end: int) -> TensorSpec:
    """Walk a ValueInfoProto."""
    name, dtype = "", "no tensor"
    shape: list[int | str] = []
    for number, kind, a, b in fields(data, start, end):
        if number == 1:
            expect(kind, BYTES)
            name = text(data, a, b)
        elif number == 2:
            expect(kind, BYTES)
            for part, part_kind, c, d in fields(data, a, b):
                if part == 1:
                    expect(part_kind, BYTES)
                    dtype, shape = parse_tensor_type(data, c, d)
    return TensorSpec(name, dtype, tuple(shape))


def parse_tensor_type(data: Data, start: int, end: int) -> tuple[str, list[int | str]]:
    """Walk a TypeProto.Tensor: the element type, and a size or a name for each dimension."""
    dtype = "undefined"
    shape: list[int | str] = []
    for number, kind, a, b in fields(data, start, end):
        if number == 1:
            expect(kind, VARINT)
            dtype = DTYPES.get(a, f"element type {a}")
        elif number == 2:
            expect(kind, BYTES)
            shape += [parse_dimension(data, c, d) for part, _, c, d in fields(data, a, b) if part == 1]
    return dtype, shape


def parse_dimension(data: Data, start: int, end: int) -> int | str:
    """Walk a TensorShapeProto.Dimension; ``?`` has neither size nor name."""
    dimension: int | str = "?"
    for number, kind, a, b in fields(data, start, end):
        if number == 1:
            expect(kind, VARINT)
            dimension = signed(a)
        elif number == 2:
            expect(kind, BYTES)
            dimension = text(data, a, b)
    return dimension
