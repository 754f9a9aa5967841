"""Check an ONNX file of a bundle before ONNX Runtime sees it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from edgebert_runtime.bundle.manifest import FileEntry, GraphSpec, TensorSpec
from edgebert_runtime.bundle.onnx_parser import External, OnnxHeader, read_header
from edgebert_runtime.bundle.operator_allowlist import ALLOWED_OPERATORS
from edgebert_runtime.errors import BundleError, UnsafeBundleError

# The newest IR version and standard opset that each release of ONNX Runtime loads, found by trying.
NEWEST = {(1, 28): (13, 26), (1, 32): (14, 28)}
FLOOR = NEWEST[min(NEWEST)]


def check_graph(folder: Path, spec: GraphSpec, files: Mapping[str, FileEntry]) -> None:
    """Check that edgebert could have written a graph, and that it has the manifest's signature.

    Raises:
        UnsafeBundleError: if it holds foreign operators, subgraphs, functions or training information, or weights
            outside the files of the bundle.
        BundleError: if it is no ONNX model, needs a newer ONNX Runtime, or has another signature.
    """
    file = folder / spec.file
    header = read_header(file)
    if foreign := sorted(header.operators - ALLOWED_OPERATORS):
        names = ", ".join(f"{domain or 'ai.onnx'}:{operator}" for domain, operator in foreign[:5])
        raise UnsafeBundleError(f"{file} holds operators that edgebert never writes: {names}{more(foreign)}")
    if header.oddities:
        raise UnsafeBundleError(f"{file} holds {', '.join(sorted(header.oddities))}, which edgebert never writes")
    for external in header.external:
        check_external(file, external, files)
    check_versions(file, header)
    check_signature(file, header, spec)


def more(items: list[tuple[str, str]]) -> str:
    """Return how many of ``items`` follow the first five, as text."""
    return f" and {len(items) - 5} more" if len(items) > 5 else ""


def check_external(file: Path, external: External, files: Mapping[str, FileEntry]) -> None:
    """Check that the external data of a tensor is a span inside a listed file."""
    where, entries = f"{file}: tensor {external.tensor!r}", external.entries
    location = entries.get("location", "")
    if location not in files:
        raise UnsafeBundleError(f"{where} looks for its data in {location!r}, which is no file of the bundle")
    if unknown := sorted(entries.keys() - {"location", "offset", "length", "checksum"}):
        raise UnsafeBundleError(f"{where} has external data entries {unknown}, which edgebert never writes")
    size = files[location].bytes
    offset, length = (whole(entries.get(key, "0")) for key in ("offset", "length"))
    if offset is None or length is None or offset + length > size:
        raise UnsafeBundleError(
            f"{where} has its data at offset {entries.get('offset', '0')!r}, length {entries.get('length', '0')!r}, "
            f"outside the {size} bytes of {location}"
        )


def whole(text: str) -> int | None:
    """Return the number of at most 19 decimal digits in ``text``, else None."""
    return int(text) if re.fullmatch(r"[0-9]{1,19}", text) else None


def check_versions(file: Path, header: OnnxHeader) -> None:
    """Check that the installed ONNX Runtime is new enough."""
    ir_version, opset = header.ir_version, header.opsets.get("", 0)
    if ir_version <= FLOOR[0] and opset <= FLOOR[1]:
        return
    version = onnxruntime_version()
    loadable = [NEWEST[release] for release in sorted(NEWEST) if release <= version]
    newest = loadable[-1] if loadable else FLOOR
    if version <= max(NEWEST) and (ir_version > newest[0] or opset > newest[1]):
        raise BundleError(
            f"{file} has IR version {ir_version} and opset {opset}, the installed onnxruntime "
            f"{version[0]}.{version[1]} reads up to IR {newest[0]} and opset {newest[1]}: "
            "pip install -U onnxruntime (or onnxruntime-gpu)"
        )


def onnxruntime_version() -> tuple[int, int]:
    """Return major and minor version of the installed ONNX Runtime, (0, 0) if there is none."""
    import importlib.metadata  # needed for rare files only, and slow to import

    for name in ("onnxruntime", "onnxruntime-gpu"):
        try:
            major, minor = importlib.metadata.version(name).split(".")[:2]
        except importlib.metadata.PackageNotFoundError:
            continue
        return int(major), int(minor)
    return 0, 0


def check_signature(file: Path, header: OnnxHeader, spec: GraphSpec) -> None:
    """Compare inputs and outputs with the manifest's."""
    inputs = [value for value in header.inputs if value.name not in header.initializers]
    problems = differences("input", spec.inputs, inputs) + differences("output", spec.outputs, header.outputs)
    if problems:
        raise BundleError(f"{file} has not the signature that the manifest gives: {'; '.join(problems)}; export again")


def differences(side: str, manifest: Iterable[TensorSpec], graph: Iterable[TensorSpec]) -> list[str]:
    """Return the differences of graph and manifest in each input or output."""
    expected, actual = {v.name: v for v in manifest}, {v.name: v for v in graph}
    return [
        f"{side} {name!r} is {describe(actual.get(name))} in the graph, {describe(expected.get(name))} in the manifest"
        for name in sorted(expected.keys() | actual.keys())
        if expected.get(name) != actual.get(name)
    ]


def describe(value: TensorSpec | None) -> str:
    """Return a tensor's type and shape as text."""
    return "absent" if value is None else f"{value.dtype}({', '.join(map(str, value.shape))})"
