"""Seeded mutants of files and options: whatever is wrong, an error of edgebert says so."""

from __future__ import annotations

import copy
import json
import math
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import edgebert_runtime
from edgebert.checkpoints import open_checkpoint
from edgebert_runtime import Embedder, Generator, Translator
from edgebert_runtime.bundle.manifest import MANIFEST_NAME
from edgebert_runtime.errors import EdgebertError
from edgebert_runtime.generation.option_parsers import CHECKS
from tests.runtime.test_option_values import WILD

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 1 << 40, 10**30, 0.5, -1.5, 1e308, math.nan, math.inf, "", "x", "0", "\0",
    "é" * 9, "../x", [], [0], ["x"], [[]], {}, {"x": 1},
)  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container in a JSON value with each of its keys or indices."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


def mutated_json(value: Any, rng: random.Random) -> Any:
    """Return a copy of a JSON value with one or two entries dropped, replaced, renamed, doubled or swapped."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2))):
        container, key = rng.choice(list(places(value)) or [({"x": 0}, "x")])
        kind = rng.randrange(6)
        if kind == 0:
            del container[key]
        elif kind == 1 and isinstance(container, dict):
            container[f"{key}_"] = container.pop(key)
        elif kind == 2 and isinstance(container[key], (int, float)) and math.isfinite(container[key]):
            container[key] = rng.choice((container[key] + 1, container[key] - 1, -container[key], 2 * container[key]))
        elif kind == 3 and isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        elif kind == 4 and isinstance(container[key], str):
            container[key] += rng.choice(("x", " ", "\n", "\ud800"))
        else:
            container[key] = rng.choice(VALUES)
    return value


def mutated_bytes(data: bytes, rng: random.Random, start: int = 0) -> bytes:
    """Return as many bytes with one to three of them changed, from ``start`` on."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        changed[rng.randrange(start, len(changed))] = rng.randrange(256)
    return bytes(changed)


def outcomes(attempt: Callable[[random.Random], object], count: int) -> tuple[int, int]:
    """Return how many of ``count`` seeded mutants work, and how many are refused.

    Any error but ours fails, naming the seed.
    """
    works = 0
    for seed in range(count):
        try:
            attempt(random.Random(seed))
            works += 1
        except EdgebertError as error:
            if "\n" in str(error):
                pytest.fail(f"seed {seed}: more than a line: {error}")
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")
    return works, count - works


def copy_of(source: Path, folder: Path) -> Path:
    """Return a folder with links to the files of another, in which single files can be replaced."""
    folder.mkdir()
    for file in source.iterdir():
        if file.is_dir():
            shutil.copytree(file, folder / file.name)
        else:
            os.link(file, folder / file.name)
    return folder


def put(folder: Path, name: str, data: bytes) -> None:
    """Replace a file of :func:`copy_of`."""
    (folder / name).unlink(missing_ok=True)
    (folder / name).write_bytes(data)


@pytest.mark.parametrize("task", ["embed", "generate", "translate"])
def test_manifests(task: str, task_bundle: Callable[[str], Path], tmp_path: Path) -> None:
    folder = copy_of(task_bundle(task), tmp_path / "bundle")
    manifest = json.loads((folder / MANIFEST_NAME).read_text())
    manifest["verification"] = manifest["report"] = {}  # which nothing reads
    calls: dict[str, Callable[[Any], object]] = {
        "embed": lambda engine: engine.embed(["the cat"]),
        "generate": lambda engine: engine.generate([[5]], max_new_tokens=1),
        "translate": lambda engine: engine.translate([[5]], max_new_tokens=1),
    }

    def attempt(rng: random.Random) -> None:
        put(folder, MANIFEST_NAME, json.dumps(mutated_json(manifest, rng)).encode())
        calls[task](edgebert_runtime.load(folder, verify="size", threads=1))

    works, refused = outcomes(attempt, 100)
    assert works < refused


@pytest.mark.parametrize(("task", "count"), [("embed", 150), ("generate", 75), ("translate", 75)])
def test_config_json(task: str, count: int, task_checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    folder = copy_of(task_checkpoint(task), tmp_path / "checkpoint")
    config = json.loads((folder / "config.json").read_text())

    def attempt(rng: random.Random) -> None:
        put(folder, "config.json", json.dumps(mutated_json(config, rng)).encode())
        open_checkpoint(folder, task=task)

    _, refused = outcomes(attempt, count)
    assert refused > count / 3


def test_headers_of_weights(task_checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    folder = copy_of(task_checkpoint("embed"), tmp_path / "checkpoint")
    data = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, tensors = json.loads(data[8 : 8 + length]), data[8 + length :]

    def attempt(rng: random.Random) -> None:
        if rng.random() < 0.3:
            content = mutated_bytes(data[: 8 + length], rng) + tensors
        else:
            text = json.dumps(mutated_json(header, rng)).encode()
            content = struct.pack("<Q", len(text)) + text + tensors
        put(folder, "model.safetensors", content)
        open_checkpoint(folder).load_model()

    _, refused = outcomes(attempt, 200)
    assert refused > 150


@pytest.mark.parametrize("task", ["embed", "generate"])
def test_graphs(task: str, task_bundle: Callable[[str], Path], tmp_path: Path) -> None:
    folder = copy_of(task_bundle(task), tmp_path / "bundle")
    data = (folder / "model.onnx").read_bytes()

    def attempt(rng: random.Random) -> None:
        put(folder, "model.onnx", mutated_bytes(data, rng))
        edgebert_runtime.load(folder, verify="size", threads=1)

    outcomes(attempt, 150)


@pytest.mark.parametrize("task", ["generate", "translate"])
def test_options_of_a_search(task: str, task_bundle: Callable[[str], Path]) -> None:
    engine: Any = edgebert_runtime.load(task_bundle(task), threads=1)
    assert isinstance(engine, (Generator, Translator))
    numbers = (0, 1, 2, 3, 5, 0.1, 0.5, 1.0, 1.5, True, False, [5], [5, 6], [[5]], [[5, 6]], "a", None)
    run = engine.generate if isinstance(engine, Generator) else engine.translate

    def attempt(rng: random.Random) -> None:
        options: dict[str, Any] = {"max_new_tokens": 4}
        for name in rng.sample([*CHECKS, "progress", "max_batch_tokens", "prefix"], rng.randint(1, 4)):
            options[name] = rng.choice(WILD if rng.random() < 0.2 else numbers)
        run([[5, 6], [7]], **options)

    works, refused = outcomes(attempt, 400)
    assert works > 15
    assert refused > 100


@pytest.mark.parametrize(
    "allowed",
    [None, 1.5, "ab", [], ["a"], [-1], [10**9], [1.5], [True], [[5]], len],
    ids=str,
)
def test_results_of_prefix_allowed_tokens_fn(allowed: Any, task_bundle: Callable[[str], Path]) -> None:
    engine = Generator.load(task_bundle("generate"), threads=1)
    with pytest.raises(EdgebertError):
        engine.generate([[5, 6]], max_new_tokens=2, prefix_allowed_tokens_fn=lambda _prompt, _tokens: allowed)


def test_texts_that_are_none(task_bundle: Callable[[str], Path]) -> None:
    engine = Embedder.load(task_bundle("embed"), threads=1)
    for value in WILD:
        for texts in (value, [value], ["the cat", value]):
            try:
                engine.embed(texts)
            except EdgebertError:
                continue
            except Exception as error:
                pytest.fail(f"embed({texts!r}): {type(error).__name__}: {error}")
