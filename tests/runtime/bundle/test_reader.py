"""What loads is what was exported, and nothing outside the folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgebert_runtime import Bundle, Embedder, load
from edgebert_runtime.bundle.manifest import MANIFEST_NAME, Manifest
from edgebert_runtime.errors import BundleError, EdgebertError, IntegrityError, UnsafeBundleError

FILES = ("model.onnx", "tokenizer.json")


@pytest.fixture
def broken(folder: Path, tmp_path: Path) -> Path:
    """Copy the bundle, to damage it."""
    return Path(shutil.copytree(folder, tmp_path / "broken"))


def test_opens_what_was_written(folder: Path) -> None:
    bundle = Bundle.open(str(folder))
    assert Manifest.from_json(bundle.manifest.to_json()) == bundle.manifest
    assert bundle.graph("model").file == "model.onnx"
    with pytest.raises(BundleError, match=r"no graph 'decode', only \['model'\]"):
        bundle.graph("decode")


def test_opens_from_any_folder_and_one_that_cannot_be_written(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {file: file.stat().st_mtime_ns for file in broken.iterdir()}
    for path in (*before, broken):
        path.chmod(0o555 if path.is_dir() else 0o444)
    monkeypatch.chdir(broken.parent)
    assert Embedder.load(broken.name).embed(["the cat"]).shape == (1, 32)
    assert {file: file.stat().st_mtime_ns for file in broken.iterdir()} == before
    with pytest.raises(
        BundleError, match=r"broken/model\.onnx is a file; give the folder that 'edgebert export' wrote"
    ):
        load("broken/model.onnx")
    broken.chmod(0o755)


@pytest.mark.parametrize("name", FILES)
def test_one_changed_byte_anywhere_is_found(broken: Path, name: str) -> None:
    content = (broken / name).read_bytes()
    for offset in {0, 1, len(content) - 1, *range(0, len(content), len(content) // 20)}:
        changed = bytearray(content)
        changed[offset] ^= 0x10
        (broken / name).write_bytes(changed)
        with pytest.raises(IntegrityError, match=rf"{name} has SHA-256 [0-9a-f]{{64}}, the manifest says"):
            Bundle.open(broken)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("verify", ["hash", "size"])
def test_another_size_is_found_always(broken: Path, name: str, verify: Any) -> None:
    content = (broken / name).read_bytes()
    for changed in (b"", content[:-1], content + b"\0"):
        (broken / name).write_bytes(changed)
        with pytest.raises(IntegrityError, match=f"{name} has {len(changed)} bytes, the manifest says {len(content)}"):
            Bundle.open(broken, verify)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(broken: Path, name: str) -> None:
    (broken / name).unlink()
    with pytest.raises(IntegrityError, match=f"{name} is missing"):
        Bundle.open(broken)


def test_extra_files_are_left_alone(broken: Path) -> None:
    (broken / "notes.txt").write_text("mine")
    assert Bundle.open(broken)


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/b", "", ".", "..", "x\0y", "..\\x", "C:\\x", "sub/../model.onnx"]
)
def test_names_outside_the_folder(rewrite: Any, name: str) -> None:
    def change(data: dict[str, Any]) -> None:
        data["files"][name] = data["files"]["model.onnx"]

    with pytest.raises(UnsafeBundleError, match="not a plain file name"):
        Bundle.open(rewrite(change=change))


def put(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


def drop(*path: str) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        del data[path[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            put("format_version", value=1),
            "format_version 1, this edgebert reads 2; it was written by edgebert 0.1.0: "
            "export it again with this version$",
        ),
        (put("format_version", value=3), "format_version 3, .* install that version, or export again with this one$"),
        (put("format_version", value="2"), "format_version '2'"),
        (drop("format_version"), "no format_version"),
        (put("surprise", value=1), r"unknown entries \['surprise'\]"),
        (drop("task"), r"lacks \['task'\]"),
        (put("limits", "vocab_size", value="90"), "vocab_size should be int, is '90'"),
        (put("limits", "max_tokens", value=True), "max_tokens should be int, is True"),
        (put("limits", "max_tokens", value=40.0), "max_tokens should be int, is 40.0"),
        (put("limits", value=None), "limits should be an object, is None"),
        (put("files", value=[]), "files should be"),
        (put("graphs", "model", "inputs", value={}), "inputs should be"),
        (put("graphs", "model", "file", value="gone.onnx"), "lists no size and hash of gone.onnx"),
        (put("graphs", "model", "file", value="tokenizer.json"), "not an ONNX model"),
        (put("files", "model.onnx", "sha256", value="0" * 64), "has SHA-256"),
    ],
)
def test_manifests_that_do_not_fit(rewrite: Any, change: Any, message: str) -> None:
    folder = rewrite(change=change)
    with pytest.raises(BundleError, match=message) as error:
        Bundle.open(folder)
    assert str(error.value).startswith(str(folder))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", '"x"', "{}", "[" * 100_000, "\x00"])
def test_manifests_that_are_none(broken: Path, text: str) -> None:
    (broken / MANIFEST_NAME).write_text(text)
    with pytest.raises(BundleError, match=f"^{broken}: {MANIFEST_NAME} "):
        Bundle.open(broken)


def test_a_manifest_in_another_encoding(broken: Path) -> None:
    text = (broken / MANIFEST_NAME).read_text()
    (broken / MANIFEST_NAME).write_bytes(text.encode("utf-16"))
    with pytest.raises(BundleError, match="is not UTF-8"):
        Bundle.open(broken)


def test_any_entry_removed_or_replaced_is_an_edgebert_error_or_harmless(broken: Path) -> None:
    whole = json.loads((broken / MANIFEST_NAME).read_text())
    refused = 0

    def visit(value: Any) -> None:
        nonlocal refused
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            original = value[key]
            replacements: list[Any] = [None, -1, "x", [], {}, 1e400, "\ud800"]
            for replacement in replacements:
                value[key] = replacement
                (broken / MANIFEST_NAME).write_text(json.dumps(whole))
                try:
                    Bundle.open(broken, "size")
                except EdgebertError:
                    refused += 1
            value[key] = original
            if isinstance(original, (dict, list)):
                visit(original)

    visit(whole)
    assert refused > 100


def test_folders_that_are_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="does not exist"):
        Bundle.open(tmp_path / "gone")
    with pytest.raises(BundleError, match="holds no edgebert.json"):
        Bundle.open(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BundleError, match="it is a checkpoint: run 'edgebert export'"):
        Bundle.open(tmp_path)
    with pytest.raises(BundleError, match="is a file"):
        Bundle.open(tmp_path / "config.json")


def test_verify_is_hash_or_size(folder: Path) -> None:
    with pytest.raises(BundleError, match="verify='none' is not one of"):
        Bundle.open(folder, "none")  # type: ignore[arg-type]
