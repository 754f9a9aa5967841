"""Pickles are read only when that is allowed, give the same model, and run nothing."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from edgebert.checkpoints import open_checkpoint
from edgebert_runtime.errors import CheckpointError
from tests.checkpoints.broken import QUERY

FILE = "pytorch_model.bin"
INDEX = "pytorch_model.bin.index.json"


def stored(folder: Path) -> dict[str, Tensor]:
    """Take the weights out of the folder."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    return weights


def legacy(weights: Any, file: Path) -> None:
    torch.save(weights, file, _use_new_zipfile_serialization=False)


def shard(weights: dict[str, Tensor], folder: Path) -> dict[str, str]:
    """Write the weights into two pickles with an index, which is returned."""
    listed = {name: f"pytorch_model-{number % 2 + 1}.bin" for number, name in enumerate(weights)}
    for file in set(listed.values()):
        torch.save({name: weights[name] for name, actual in listed.items() if actual == file}, folder / file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": listed}))
    return listed


def refused(folder: Path, allow_pickle: bool = True) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(folder, allow_pickle=allow_pickle)
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 1500
    assert "weights_only=False" not in text
    return text


LAYOUTS: dict[str, Callable[[dict[str, Tensor], Path], object]] = {
    "zip": lambda weights, folder: torch.save(weights, folder / FILE),
    "without zip": lambda weights, folder: legacy(weights, folder / FILE),
    "shards": shard,
    "prefixes": lambda weights, folder: torch.save({f"module.bert.{k}": v for k, v in weights.items()}, folder / FILE),
    "parameters": lambda weights, folder: torch.save(
        {name: torch.nn.Parameter(value) for name, value in weights.items()}, folder / FILE
    ),
    "views of one tensor": lambda weights, folder: torch.save(
        {name: torch.cat([value, value])[: len(value)] for name, value in weights.items()}, folder / FILE
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_model(sound: Path, folder: Path, layout: str) -> None:
    LAYOUTS[layout](stored(folder), folder)
    expected = open_checkpoint(sound).load_model().state_dict()
    checkpoint = open_checkpoint(folder, allow_pickle=True)
    actual = checkpoint.load_model().state_dict()
    assert checkpoint.weights.pickled
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)
    text = refused(folder, allow_pickle=False)
    for part in ("is a pickle", "convert it, which is safer: python -c", "with allow_pickle=True"):
        assert part in text


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(sound: Path, folder: Path, dtype: torch.dtype) -> None:
    torch.save({name: value.to(dtype) for name, value in stored(folder).items()}, folder / FILE)
    actual = open_checkpoint(folder, allow_pickle=True).load_model().state_dict()
    expected = open_checkpoint(sound).load_model().to(dtype).float().state_dict()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


@pytest.mark.parametrize("layout", ["zip", "without zip", "shards"])
def test_command_of_the_message_converts(sound: Path, folder: Path, layout: str) -> None:
    LAYOUTS[layout](stored(folder), folder)
    actual = re.search('python -c "(.*?)"; or', refused(folder, allow_pickle=False))
    assert actual
    subprocess.run([sys.executable, "-c", actual.group(1)], cwd=folder, check=True)
    expected = load_file(sound / "model.safetensors")
    assert all(torch.equal(value, expected[name]) for name, value in load_file(folder / "model.safetensors").items())
    assert not open_checkpoint(folder).weights.pickled


def test_safetensors_go_first(folder: Path) -> None:
    (folder / FILE).write_bytes(b"not even a pickle")
    assert not open_checkpoint(folder, allow_pickle=True).weights.pickled


class Hostile:
    """Writes a file when it is unpickled by anything that lets it."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.trace}",)


HOSTILE: dict[str, Callable[[Any, Path], object]] = {
    "zip": lambda weights, folder: torch.save(weights, folder / FILE),
    "without zip": lambda weights, folder: legacy(weights, folder / FILE),
    "plain": lambda weights, folder: (folder / FILE).write_bytes(pickle.dumps(weights["x"], protocol=2)),
    "plain and newer": lambda weights, folder: (folder / FILE).write_bytes(pickle.dumps(weights["x"], protocol=4)),
    "shard": lambda weights, folder: shard(weights, folder),
}


@pytest.mark.parametrize("layout", HOSTILE)
def test_program_code_is_not_run(folder: Path, tmp_path: Path, layout: str) -> None:
    trace = tmp_path / "trace"
    HOSTILE[layout]({**stored(folder), "x": Hostile(trace)}, folder)
    text = refused(folder)
    assert ("asks for posix.system, which builds no tensor: it was not run" in text) == (layout != "plain and newer")
    assert "pickle of PyTorch (UnpicklingError: Unsupported operand 149);" in text or layout != "plain and newer"
    assert not trace.exists()
    assert "is a pickle" in refused(folder, allow_pickle=False)
    if "plain" in layout:  # it does what it is feared for
        pickle.loads((folder / FILE).read_bytes())
        assert trace.exists()


REFUSED: dict[str, tuple[Callable[[dict[str, Tensor]], Any], tuple[str, ...]]] = {
    "a list": (lambda weights: list(weights.values()), ("holds 'list' and not tensors by name", "state_dict()")),
    "a tensor": (lambda weights: weights[QUERY], ("holds 'Tensor' and not tensors by name",)),
    "a state dict with more": (
        lambda weights: {"state_dict": weights, "epoch": 3},
        ("other things than dense tensors by name: 'state_dict' (dict), 'epoch' (int); save the state_dict()",),
    ),
    "numbers for names": (lambda weights: {3: weights[QUERY]}, ("other things than dense tensors", "3 (Tensor)")),
    "a sparse tensor": (lambda weights: {**weights, "x": torch.eye(3).to_sparse()}, ("'x' (Tensor)",)),
    "a class": (lambda weights: {**weights, "x": Path("y")}, ("asks for pathlib", "not run")),
    "a missing tensor": (
        lambda weights: {name: value for name, value in weights.items() if name != QUERY},
        (f"tensors missing: {QUERY};",),
    ),
    "integers": (
        lambda weights: {**weights, QUERY: torch.ones(8, 8, dtype=torch.int8)},
        ("query.weight is torch.int8",),
    ),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("content", REFUSED)
def test_what_is_no_state_dict(folder: Path, content: str) -> None:
    change, expected = REFUSED[content]
    torch.save(change(stored(folder)), folder / FILE)
    text = refused(folder)
    for part in expected:
        assert part in text


CONTENTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "pytorch_model.bin is empty; save or download it again"),
    "web page": (b"<!doctype html><p>", "pytorch_model.bin is a web page"),
    "pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n",
        "pytorch_model.bin is a Git LFS pointer",
    ),
    "noise": (bytes(range(256)), "pytorch_model.bin cannot be read as a pickle of PyTorch"),
}


@pytest.mark.parametrize("content", CONTENTS)
def test_what_is_no_pickle(folder: Path, content: str) -> None:
    stored(folder)
    data, expected = CONTENTS[content]
    (folder / FILE).write_bytes(data)
    assert expected in refused(folder)


def test_shard_missing_or_outside(folder: Path) -> None:
    listed = shard(stored(folder), folder)
    (folder / "pytorch_model-2.bin").unlink()
    assert f"{INDEX} lists pytorch_model-2.bin, which the folder lacks; save or download" in refused(folder)
    (folder / INDEX).write_text(json.dumps({"weight_map": {**listed, QUERY: "../x.bin"}}))
    assert f"{INDEX} names '../x.bin': no plain file" in refused(folder)
    (folder / "pytorch_model-2.bin").symlink_to("/dev/zero")
    (folder / INDEX).write_text(json.dumps({"weight_map": listed}))
    assert "pytorch_model-2.bin is a link to /dev/zero, outside of the folder" in refused(folder)


def test_weights_that_change_after_opening(folder: Path) -> None:
    weights = stored(folder)
    torch.save(weights, folder / FILE)
    checkpoint = open_checkpoint(folder, allow_pickle=True)
    torch.save({**weights, "surprise": torch.ones(1)}, folder / FILE)
    with pytest.raises(CheckpointError, match="weights changed while they were read"):
        checkpoint.load_model()


@pytest.mark.parametrize("save", [torch.save, legacy])
def test_damaged_pickles_are_an_error_of_ours_or_harmless(folder: Path, save: Callable[[Any, Path], None]) -> None:
    rng = random.Random(5)
    file = folder / FILE
    save(stored(folder), file)
    content = file.read_bytes()
    for _ in range(80):
        damaged = bytearray(content)
        for _ in range(rng.choice([1, 2, 10, 100])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        file.write_bytes(damaged[: rng.choice([len(damaged), len(damaged) // 2])])
        with contextlib.suppress(CheckpointError):
            open_checkpoint(folder, allow_pickle=True).load_model()
