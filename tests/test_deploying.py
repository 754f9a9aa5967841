"""docs/deploying.md: every command runs and prints what it shows, and a wheelhouse is enough for an installation."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.documents import DOCS, ROOT, assert_same, blocks, commands, run

PAGE = (DOCS / "deploying.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(int8_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder as a clone is after the README's commands; a tiny model stands for MiniLM."""
    folder = tmp_path_factory.mktemp("deploying")
    (folder / "minilm.int8").symlink_to(int8_bundle)
    for name in ("constraints.txt", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("edgebert", "exporters", "runtime"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_every_command_prints_what_the_page_shows(folder: Path) -> None:
    shown = commands(PAGE)
    assert len(shown) >= 9
    for command, expected in shown:
        assert_same(run(command, folder), expected, command)


def test_the_installation_without_a_network_has_no_more_than_it_needs(folder: Path) -> None:
    wheels = {file.name.partition("-")[0] for file in (folder / "wheelhouse").glob("*.whl")}
    assert {"edgebert", "numpy", "onnxruntime", "tokenizers", "click"} <= wheels
    assert not wheels & {"torch", "onnx", "transformers", "safetensors"}


def test_the_handler_answers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    (block,) = blocks(PAGE, "python")
    exec(block, names)
    vectors = names["handler"]({"texts": ["the cat", "a dog"]}, None)["vectors"]
    assert len(vectors) == 2
    assert all(isinstance(number, float) for number in vectors[0])


def test_the_container_installs_with_the_command_that_was_measured() -> None:
    (file,) = blocks(PAGE, "dockerfile")
    installed = re.search(r"install (.+) '/source\[cpu\]'", file)
    measured = next(command for command, _ in commands(PAGE) if "pip --python" in command)
    assert installed
    options = set(installed[1].replace("/source/", "").split())
    assert options - {"--no-cache-dir"} == set(measured.partition(" install ")[2].split()) - {"--quiet", "'.[cpu]'"}


def test_the_size_is_that_of_the_page(folder: Path) -> None:
    shown = next(int(lines[0].split()[0]) for command, lines in commands(PAGE) if command == "du -sm app/lib")
    measured = int(run("du -sm app/lib", folder)[0].split()[0])
    assert abs(measured - shown) < 0.15 * shown
