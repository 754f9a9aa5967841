"""NaN and infinities are no JSON, in whatever file and whether a key is read or not."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from edgebert.checkpoints import open_checkpoint
from edgebert_runtime import Bundle, strict_json
from edgebert_runtime.bundle.manifest import MANIFEST_NAME
from edgebert_runtime.errors import BundleError, CheckpointError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "b": NaN}', "the key 'b' is NaN, which is no number in JSON"),
        ('{"a": {"c": [1, -Infinity]}}', "the key 'c' is -Infinity"),
        ('{"a": Infinity}', "the key 'a' is Infinity"),
        ("[NaN]", "it holds NaN"),
    ],
)
def test_constants_of_python_are_refused_by_key(text: str, message: str) -> None:
    json.loads(text)  # which Python's reader takes
    with pytest.raises(ValueError, match=f"^{message}"):
        strict_json.loads(text)


def test_all_else_is_what_python_reads() -> None:
    text = '{"a": [1, 2.5, -1e9, "NaN", null, true], "b": {"Infinity": "x"}}'
    assert strict_json.loads(text) == json.loads(text)
    assert strict_json.loads('{"a": 1, "a": 2}', list) == [("a", 1), ("a", 2)]


def test_an_unused_key_of_a_checkpoint_is_named(checkpoint: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(checkpoint, tmp_path / "checkpoint"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "initializer_range": math.nan}))
    with pytest.raises(CheckpointError, match=r"config\.json is not valid JSON \(the key 'initializer_range' is NaN"):
        open_checkpoint(folder)


def test_a_manifest_with_infinity_is_named(fp32_bundle: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(fp32_bundle, tmp_path / "bundle"))
    manifest = json.loads((folder / MANIFEST_NAME).read_text())
    manifest["report"] = {"cosine": math.inf}
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match=r"edgebert\.json is not valid JSON \(the key 'cosine' is Infinity"):
        Bundle.open(folder)
