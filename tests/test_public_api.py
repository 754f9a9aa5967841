"""The names that users build on: exported as promised, documented, and of one version."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import edgebert
import edgebert_exporters
import edgebert_runtime
from edgebert_runtime import errors
from edgebert_runtime.errors import EdgebertError

ROOT = Path(__file__).parents[1]
PACKAGES = (edgebert, edgebert_exporters, edgebert_runtime)


def source_files() -> Iterator[Path]:
    """Yield the modules of the three packages."""
    for package in PACKAGES:
        yield from Path(package.__path__[0]).rglob("*.py")


def typed_names(package: ModuleType) -> set[str]:
    """Return the names that a package imports from the others for type checkers."""
    tree = ast.parse(inspect.getsource(package))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    return {alias.asname or "" for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_export_what_they_name(package: ModuleType) -> None:
    names = package.__all__
    assert len(names) == len(set(names))
    assert set(names) <= set(dir(package))
    assert [name for name in names if not hasattr(package, name)] == []
    assert not hasattr(package, "no_such_name")


def test_lazy_names_are_those_that_type_checkers_see() -> None:
    assert typed_names(edgebert_exporters) == set(edgebert_exporters.__all__)


def test_edgebert_hands_on_the_runtime() -> None:
    assert edgebert.__all__ == ["__version__", *edgebert_runtime.__all__]
    assert set(dir(edgebert)) == set(edgebert.__all__)
    for name in edgebert_runtime.__all__:
        assert getattr(edgebert, name) is getattr(edgebert_runtime, name)


def public(package: ModuleType) -> Iterator[tuple[str, object]]:
    """Yield what a package exports, and the public methods and properties of its classes."""
    for name in package.__all__:
        item = getattr(package, name)
        yield name, item
        if inspect.isclass(item) and not issubclass(item, Exception):
            own = {key: value for key, value in vars(item).items() if not key.startswith("_")}
            yield from ((f"{name}.{key}", value) for key, value in own.items() if hasattr(value, "__doc__"))


@pytest.mark.parametrize("package", PACKAGES)
def test_everything_public_is_documented(package: ModuleType) -> None:
    assert package.__doc__
    items = dict(public(package))
    assert len(items) >= len(package.__all__)
    assert [name for name, item in items.items() if not inspect.getdoc(item)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_the_typed_usage_spells_everything_public(package: ModuleType) -> None:
    tree = ast.parse((ROOT / "tests" / "typing_usage.py").read_text(encoding="utf-8"))
    spelt = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    spelt |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert [name for name, _ in public(package) if name.rpartition(".")[2] not in spelt] == []


def modules() -> Iterator[str]:
    """Yield the name of every module of the three packages, except the one that runs the command line."""
    for package in PACKAGES:
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not info.name.endswith("__main__"):
                yield info.name


def subclasses(kind: type[EdgebertError]) -> Iterator[tuple[str, str]]:
    """Yield each class of the product below ``kind``, with its parent."""
    for child in kind.__subclasses__():
        if child.__module__.startswith("edgebert"):
            yield child.__name__, kind.__name__
            yield from subclasses(child)


def drawn(text: str) -> Iterator[tuple[str, str]]:
    """Yield each class in the drawing of a tree, with its parent."""
    path = ["EdgebertError"]
    for indent, name in re.findall(r"^ {4}([ │]*)[├└]── (\w+)", text, re.MULTILINE):
        depth = len(indent) // 4 + 1
        path[depth:] = [name]
        yield name, path[depth - 1]


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    for name in modules():
        importlib.import_module(name)
    tree = dict(subclasses(EdgebertError))
    assert len(tree) > 10
    assert dict(drawn(errors.__doc__ or "")) == tree


def test_every_error_is_raised_somewhere() -> None:
    code = "\n".join(file.read_text(encoding="utf-8") for file in source_files())
    kinds = [name for name, kind in vars(errors).items() if inspect.isclass(kind)]
    assert [name for name in kinds if not re.search(rf"(raise |return |warnings\.warn\(){name}\(", code)] == []


def test_the_changelog_starts_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[?(\d+\.\d+\.\d+)\]?", text, re.MULTILINE)[:1] == [edgebert.__version__]
