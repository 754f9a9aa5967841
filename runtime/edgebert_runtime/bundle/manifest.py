"""The manifest of a bundle: ``edgebert.json`` as frozen dataclasses.

The runtime owns the format. The exporters write it through the same classes.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from edgebert_runtime import strict_json
from edgebert_runtime.errors import BundleError

FORMAT_VERSION = 2
MANIFEST_NAME = "edgebert.json"

T = TypeVar("T")


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a graph.

    ``dtype`` is a name of NumPy. ``shape`` has sizes, and names of dynamic dimensions.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class GraphSpec:
    """One ONNX file and its signature."""

    file: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True)
class Limits:
    """The limits of the model's inputs, in tokens with special tokens included.

    ``max_tokens`` is the number of positions; ``default_tokens`` is the default length of truncation.
    """

    vocab_size: int
    max_tokens: int
    default_tokens: int


@dataclass(frozen=True)
class CpuRequirements:
    """The CPUs on which a bundle computes the figures of its report.

    ``cpus`` names them; empty is every CPU that ONNX Runtime supports. ``vnni`` says whether x86-64 needs VNNI.
    ``session_config`` holds the entries of ONNX Runtime's session that x86-64 needs without it; edgebert sets them.
    """

    cpus: tuple[str, ...] = ()
    vnni: bool = False
    session_config: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        cpus = " or ".join(self.cpus) or "every CPU that ONNX Runtime supports"
        entries = ", ".join(f"{name}={value}" for name, value in self.session_config.items())
        return f"{cpus}{', with VNNI' * self.vnni}" + (f"; without VNNI {entries}, set by edgebert" if entries else "")


@dataclass(frozen=True)
class Weights:
    """Storage of the weights.

    ``coverage`` counts the matrix products in ``scheme``, and all with weights. ``skipped`` gives the reason for each
    weight that stays in float32.
    """

    scheme: str
    bytes: int
    coverage: tuple[int, int] = (0, 0)
    skipped: dict[str, str] = field(default_factory=dict)
    cpu_requirements: CpuRequirements = CpuRequirements()


@dataclass(frozen=True)
class FileEntry:
    """Size in bytes and SHA-256 in hex digits."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The content of ``edgebert.json``.

    ``config`` is the model's configuration; ``settings`` are those of the task (pooling, labels, ...). ``decoding`` has
    the defaults of generation. ``verification`` has the checks at export with their figures, ``report`` the fidelity
    of quantization. ``notes`` are the differences from the reference, a line each.
    """

    edgebert_version: str
    family: str
    task: str
    target: str
    config: dict[str, Any]
    graphs: dict[str, GraphSpec]
    settings: dict[str, Any]
    limits: Limits
    weights: Weights
    files: dict[str, FileEntry]
    decoding: dict[str, Any] = field(default_factory=dict)
    verification: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    format_version: int = FORMAT_VERSION

    def to_json(self) -> str:
        """Return the text of ``edgebert.json``."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read the text of ``edgebert.json``.

        Raises:
            BundleError: if it is not JSON, is of another format version, or has missing, unknown or wrongly typed
                entries.
        """
        try:
            data = strict_json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BundleError(f"{MANIFEST_NAME} is not valid JSON ({error}); export the bundle again") from error
        if not isinstance(data, dict) or "format_version" not in data:
            raise BundleError(f"{MANIFEST_NAME} has no format_version: not an edgebert bundle")
        version = data["format_version"]
        if version != FORMAT_VERSION:
            older = type(version) is int and version < FORMAT_VERSION
            remedy = (
                "export it again with this version" if older else "install that version, or export again with this one"
            )
            raise BundleError(
                f"{MANIFEST_NAME} has format_version {version!r:.60}, this edgebert reads {FORMAT_VERSION}; "
                f"it was written by edgebert {data.get('edgebert_version', '?')}: {remedy}"
            )
        manifest: Manifest = build(cls, data, MANIFEST_NAME)
        return manifest


def build(kind: Any, value: Any, where: str) -> Any:
    """Turn parsed JSON into ``kind``, a dataclass or a type built of them, and check all types.

    Raises:
        BundleError: naming the entry that is missing, unknown or of a wrong type.
    """
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return build_dataclass(kind, value, where)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is dict and isinstance(value, dict):
        return {key: build(args[1], item, f"{where}: {key}") for key, item in value.items()}
    if origin is tuple and isinstance(value, list):
        kinds = [args[0]] * len(value) if args[-1] is Ellipsis else list(args)
        if len(kinds) == len(value):
            return tuple(build(k, item, f"{where}[{i}]") for i, (k, item) in enumerate(zip(kinds, value, strict=True)))
    if kind is Any or (origin is types.UnionType and type(value) in args) or type(value) is kind:
        return value
    raise BundleError(f"{where} should be {getattr(kind, '__name__', kind)}, is {value!r:.60}; export the bundle again")


def build_dataclass(kind: type[T], value: Any, where: str) -> T:
    """Turn a JSON object into the dataclass ``kind``."""
    if not isinstance(value, dict):
        raise BundleError(f"{where} should be an object, is {value!r:.60}; export the bundle again")
    hints = typing.get_type_hints(kind)
    entries = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(value.keys() - entries.keys()):
        raise BundleError(f"{where} has unknown entries {unknown}; it may come from a newer edgebert")
    required = {n for n, f in entries.items() if f.default is f.default_factory is dataclasses.MISSING}
    if missing := sorted(required - value.keys()):
        raise BundleError(f"{where} lacks {missing}; export the bundle again")
    return kind(**{name: build(hints[name], item, f"{where}: {name}") for name, item in value.items()})
