"""docs/bundle.schema.json says of edgebert.json what the code says, and accepts exactly what the code reads."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert.models.pooling import POOLINGS
from edgebert_exporters import quantize_bundle
from edgebert_exporters.graphs.onnx_export import TARGETS
from edgebert_exporters.quantization.schemes import SCHEMES
from edgebert_runtime.bundle import manifest as manifest_module
from edgebert_runtime.bundle.manifest import MANIFEST_NAME, Manifest
from edgebert_runtime.errors import BundleError
from edgebert_runtime.generation.options import ENGINE_ONLY, Options
from edgebert_runtime.task_specs import TASKS
from edgebert_runtime.tasks.activations import ACTIVATIONS
from tests.support.documents import DOCS
from tests.support.sharing import Once

SCHEMA = json.loads((DOCS / "bundle.schema.json").read_text(encoding="utf-8"))
SETTINGS = SCHEMA["$defs"]["settings"]
NAMES = {str: "string", int: "integer", bool: "boolean"}
CLASSES = {
    name: kind
    for name, kind in vars(manifest_module).items()
    if inspect.isclass(kind) and dataclasses.is_dataclass(kind)
}
REMOVED = object()
FREE = ("config", "settings", "decoding", "verification", "report")


def validator() -> Any:
    return jsonschema.Draft202012Validator(SCHEMA)


def described(kind: Any) -> Any:
    """Return the part of a schema that says the type of a field."""
    if dataclasses.is_dataclass(kind):
        return {"$ref": f"#/$defs/{kind.__name__}"}  # type: ignore[union-attr]
    if kind in NAMES:
        return {"type": NAMES[kind]}
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return {"type": sorted(NAMES[arg] for arg in args)}
    if origin is dict:
        return {"type": "object"} | ({} if args[1] is Any else {"additionalProperties": described(args[1])})
    assert origin is tuple, kind
    if args[-1] is Ellipsis:
        return {"type": "array", "items": described(args[0])}
    return {"type": "array", "prefixItems": [described(arg) for arg in args]}


def types_of(schema: dict[str, Any]) -> Any:
    """Return the same part of a schema in the file."""
    part: dict[str, Any] = {name: schema[name] for name in ("$ref", "type") if name in schema}
    if isinstance(part.get("type"), list):
        part["type"] = sorted(part["type"])
    if isinstance(schema.get("additionalProperties"), dict):
        part["additionalProperties"] = types_of(schema["additionalProperties"])
    if "items" in schema:
        part["items"] = types_of(schema["items"])
    if "prefixItems" in schema:
        assert schema["minItems"] == schema["maxItems"] == len(schema["prefixItems"])
        part["prefixItems"] = [types_of(item) for item in schema["prefixItems"]]
    return part


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", CLASSES)
def test_every_field_has_its_type_and_is_required_as_in_the_code(name: str) -> None:
    kind = CLASSES[name]
    schema = SCHEMA if kind is Manifest else SCHEMA["$defs"][name]
    hints = typing.get_type_hints(kind)
    assert {field: types_of(part) for field, part in schema["properties"].items()} == {
        field: described(hint) for field, hint in hints.items()
    }
    required = {f.name for f in dataclasses.fields(kind) if f.default is f.default_factory is dataclasses.MISSING}
    if kind is Manifest:
        required.add("format_version")  # from_json asks for it first
    assert set(schema["required"]) == required
    assert schema["additionalProperties"] is False
    assert all("description" in part or "$ref" in part for part in schema["properties"].values())


def test_the_schema_lists_the_values_of_the_code() -> None:
    properties = SCHEMA["properties"]
    assert properties["format_version"]["const"] == manifest_module.FORMAT_VERSION
    assert set(properties["family"]["enum"]) == {kind.family for kind in MODEL_TYPES.values()}
    assert properties["task"]["enum"] == list(TASKS) == list(SETTINGS)
    assert set(properties["target"]["enum"]) == set(TARGETS)
    assert set(SCHEMA["$defs"]["Weights"]["properties"]["scheme"]["enum"]) == {"fp32", "mixed", *SCHEMES}
    assert set(SETTINGS["embed"]["properties"]["pooling"]["enum"]) == set(POOLINGS)
    assert set(SETTINGS["rerank"]["properties"]["activation"]["enum"]) == set(ACTIVATIONS)
    options = {field.name for field in dataclasses.fields(Options)} - {"prefix_allowed_tokens_fn"}
    assert set(properties["decoding"]["properties"]) == options | set(ENGINE_ONLY)


@pytest.mark.parametrize("task", TASKS)
def test_the_settings_of_a_task_are_those_that_its_engine_reads(task: str) -> None:
    described = set(SETTINGS[task].get("properties", ()))
    assert set(TASKS[task].settings) <= described
    languages = {"languages", "language_style", "source_language", "target_language"}
    assert described - set(TASKS[task].settings) == (languages if task == "translate" else set())


def test_the_page_about_bundles_explains_every_key_and_setting() -> None:
    page = (DOCS / "bundle.md").read_text(encoding="utf-8")
    settings = {name for schema in SETTINGS.values() for name in schema.get("properties", ())}
    assert [name for name in (*SCHEMA["properties"], *sorted(settings)) if f"`{name}`" not in page] == []
    assert [task for task in TASKS if f"`{task}`" not in page] == []


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_bundles_of_every_task_are_valid(task_bundle: Callable[[str], Path], task: str) -> None:
    data = json.loads((task_bundle(task) / MANIFEST_NAME).read_text(encoding="utf-8"))
    validator().validate(data)
    assert set(data["settings"]) <= set(SETTINGS[task].get("properties", ()))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [*SCHEMES, "mixed"])
def test_bundles_of_every_scheme_are_valid(fp32_bundle: Path, once: Once, tmp_path: Path, scheme: str) -> None:
    options: dict[str, Any] = {"mixed_precision": 0.02} if scheme == "mixed" else {"scheme": scheme}
    quantized = quantize_bundle(fp32_bundle, tmp_path / "bundle", **options).path
    data = json.loads((quantized / MANIFEST_NAME).read_text(encoding="utf-8"))
    assert data["weights"]["scheme"] == scheme
    validator().validate(data)


def mutants(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield a manifest with one place changed, for every place that the code checks: a name and the content."""
    here = at(data, path)
    if isinstance(here, dict):
        yield "a new key", changed(data, path, "news", [None])
    for key in list(here) if isinstance(here, dict) else [0][: len(here)]:
        name = ".".join(map(str, (*path, key)))
        if isinstance(here, dict):
            yield f"without {name}", changed(data, path, key, REMOVED)
        for value in (None, True, 7, "text", [], {}, [1, 2, 3], {"a": 1}):
            yield f"{name} is {value!r}", changed(data, path, key, value)
        if isinstance(here[key], (dict, list)) and (path or key not in FREE):
            yield from mutants(data, (*path, key))


def changed(data: Any, path: tuple[Any, ...], key: Any, value: Any) -> Any:
    """Return a copy with another value at a place, or without one."""
    copied = copy.deepcopy(data)
    if value is REMOVED:
        del at(copied, path)[key]
    else:
        at(copied, path)[key] = value
    return copied


def at(data: Any, path: tuple[Any, ...]) -> Any:
    """Return the part of JSON at a path."""
    for key in path:
        data = data[key]
    return data


@pytest.mark.slow
def test_mutants_are_valid_where_the_code_reads_them(int8_bundle: Path) -> None:
    data = json.loads((int8_bundle / MANIFEST_NAME).read_text(encoding="utf-8"))
    check = validator()
    refused, tried = 0, 0
    for name, mutant in mutants(data):
        try:
            Manifest.from_json(json.dumps(mutant))
        except BundleError:
            refused += 1
            assert not check.is_valid(mutant), name
        tried += 1
    assert refused > 300
    assert tried > refused


def test_values_that_only_other_checks_refuse_are_invalid(fp32_bundle: Path) -> None:
    data = json.loads((fp32_bundle / MANIFEST_NAME).read_text(encoding="utf-8"))
    check = validator()
    for section, key, value in (
        ("weights", "scheme", "int3"),
        ("limits", "max_tokens", 0),
        ("settings", "pooling", "median"),
        ("settings", "normalize", "yes"),
        ("decoding", "num_beams", "four"),
        ("files", "model.onnx", {"bytes": -1, "sha256": "0" * 64}),
        ("graphs", "model", {}),
    ):
        mutant = copy.deepcopy(data)
        mutant[section][key] = value
        assert not check.is_valid(mutant), (section, key)
