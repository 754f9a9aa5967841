"""The direction of imports, and what each of them loads."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgebert.cli import COMMANDS
from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[1]
PRODUCT = (ROOT / "edgebert", ROOT / "exporters", ROOT / "runtime")

TRAINING = {"torch", "onnx", "onnx_ir", "onnxscript", "safetensors", "transformers"}
RUNNING = {"onnxruntime", "tokenizers"}
NEVER = {
    "-c import edgebert": TRAINING | RUNNING | {"numpy", "click", "edgebert_runtime", "edgebert_exporters"},
    "-c import edgebert_exporters": TRAINING | RUNNING | {"numpy", "click", "edgebert_runtime"},
    "-c import edgebert_runtime": TRAINING | RUNNING | {"click", "edgebert", "edgebert_exporters"},
    "-c import edgebert.cli": TRAINING | RUNNING | {"numpy", "edgebert_runtime", "edgebert_exporters"},
    "-m edgebert --help": TRAINING | RUNNING | {"numpy", "edgebert_runtime", "edgebert_exporters"},
}

BROKEN = {
    "the command line stands on the exporters, those on checkpoints, models and the runtime": (
        "edgebert/training/examples.py",
        "import edgebert.cli",
    ),
    "checkpoints: the whole folder above heads, weights, tokenizers and config, above single files": (
        "edgebert/checkpoints/folder.py",
        "import edgebert.checkpoints.config.model_types",
    ),
    "the exporters: verbs above verification and quantization, above running, above graphs": (
        "exporters/edgebert_exporters/inference/batch.py",
        "import edgebert_exporters.fidelity.histogram",
    ),
    "the runtime: serving above tasks, decoders, generation and sessions, inputs and the bundle": (
        "runtime/edgebert_runtime/inputs/batching.py",
        "import edgebert_runtime.generation.options",
    ),
    "the runtime is self-contained": ("runtime/edgebert_runtime/bundle/reader.py", "import torch"),
    "transformers is imported by tests, and where a user asks for a comparison with it": (
        "exporters/edgebert_exporters/inference/batch.py",
        "import transformers",
    ),
}


def loaded(*args: str) -> set[str]:
    """Run Python and return the top-level packages that it imported."""
    command = [sys.executable, "-X", "importtime", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}


@pytest.mark.parametrize("args", NEVER)
def test_imports_stay_light(args: str) -> None:
    option, code = args.split(" ", 1)
    modules = loaded(option, *([code] if option == "-c" else code.split()))
    assert "edgebert" in {name.partition("_")[0] for name in modules}
    assert modules & NEVER[args] == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_import_nothing_heavier_than_click(command: str) -> None:
    modules = loaded("-c", f"import {COMMANDS[command]}.{command.replace('-', '_')}")
    assert "click" in modules
    assert modules & NEVER["-c import edgebert.cli"] == set()


def lint_imports(folder: Path) -> tuple[int, str]:
    """Check the contracts on the packages in a folder; return the exit code, and the report as one line."""
    roots = [str(folder), str(folder / "exporters"), str(folder / "runtime")]
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(roots)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return done.returncode, " ".join(done.stdout.split())


def test_contracts_are_kept() -> None:
    code, text = lint_imports(ROOT)
    assert code == 0, text
    assert f"{len(BROKEN)} kept, 0 broken" in text


@pytest.mark.parametrize("contract", BROKEN)
def test_contracts_can_be_broken(contract: str, tmp_path: Path) -> None:
    for folder in PRODUCT:
        shutil.copytree(folder, tmp_path / folder.name)
    shutil.copyfile(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    name, line = BROKEN[contract]
    file = tmp_path / name
    file.write_text(f"{file.read_text()}\n\ndef late() -> None:\n    {line}\n")
    code, text = lint_imports(tmp_path)
    assert code == 1
    assert f"{contract} BROKEN" in text
    assert f"{len(BROKEN) - 1} kept, 1 broken" in text


def parsed(*folders: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Yield each module below the folders."""
    for folder in folders:
        for file in folder.rglob("*.py"):
            yield file.relative_to(ROOT), ast.parse(file.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> set[str]:
    """Return the top-level packages that a module imports, wherever in it."""
    nodes = list(ast.walk(tree))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def test_one_module_beside_the_tests_imports_transformers() -> None:
    users = [
        file.name
        for file, tree in parsed(*PRODUCT, ROOT / "samples")
        if {"transformers", "sentence_transformers"} & imported(tree)
    ]
    assert users == ["reference_library.py"]


def test_the_library_prints_nothing() -> None:
    calls = [
        f"{file}:{node.lineno}"
        for file, tree in parsed(*PRODUCT)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id == "print"
    ]
    assert calls == []
