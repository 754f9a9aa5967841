"""Bundles made of links: read where they lead to the exported files, refused by name elsewhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebert_exporters.export import export_checkpoint
from edgebert_exporters.quantize import quantize_bundle
from edgebert_runtime import Bundle, Embedder
from edgebert_runtime.bundle.manifest import MANIFEST_NAME
from edgebert_runtime.errors import BundleError, ExportError, IntegrityError, UnsafeBundleError
from tests.support.sharing import Once
from tests.support.tiny import write_checkpoint

FILES = ("model.onnx", "tokenizer.json")


def hub_cache(bundle: Path, root: Path) -> Path:
    """Lay a folder out as the Hub's cache does."""
    snapshot, blobs = root / "models--a--b" / "snapshots" / "c0ffee", root / "models--a--b" / "blobs"
    for folder in (snapshot, blobs):
        folder.mkdir(parents=True)
    for number, file in enumerate(sorted(bundle.iterdir())):
        shutil.copy(file, blobs / f"{number:064x}")
        (snapshot / file.name).symlink_to(f"../../blobs/{number:064x}")
    return snapshot


def local_dir(bundle: Path, root: Path) -> Path:
    """Lay a folder out as older versions of ``hf download --local-dir`` do: links into the cache."""
    snapshot, folder = hub_cache(bundle, root), root / "local"
    folder.mkdir()
    for file in snapshot.iterdir():
        (folder / file.name).symlink_to(os.path.realpath(file))
    return folder


def config_map(bundle: Path, root: Path) -> Path:
    """Lay a folder out as Kubernetes mounts a ConfigMap."""
    folder = root / "mounted"
    shutil.copytree(bundle, folder / "..2026_12_01")
    (folder / "..data").symlink_to("..2026_12_01")
    for file in bundle.iterdir():
        (folder / file.name).symlink_to(f"..data/{file.name}")
    return folder


def elsewhere(bundle: Path, root: Path) -> Path:
    """Link to the files where they are, as a package manager's store does."""
    folder = root / "linked"
    folder.mkdir()
    for file in bundle.iterdir():
        (folder / file.name).symlink_to(file)
    return folder


def folder_link(bundle: Path, root: Path) -> Path:
    """Link to the whole folder."""
    (root / "whole").symlink_to(bundle)
    return root / "whole"


LAYOUTS = (hub_cache, local_dir, config_map, elsewhere, folder_link)


@pytest.fixture(scope="module")
def mapped(once: Once) -> Path:
    """Return a bundle whose weights are a file of their own."""

    def make(folder: Path) -> None:
        source = folder / "checkpoint"
        write_checkpoint(source, hidden_size=256, intermediate_size=2048, num_hidden_layers=1)
        export_checkpoint(source, folder / "bundle")

    bundle = once("bundle-with-weights-apart", make) / "bundle"
    assert (bundle / "weights.bin").is_file()
    return bundle


@pytest.mark.parametrize("verify", ["hash", "size"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_bundles_of_links_give_the_same_vectors(
    mapped: Path, tmp_path: Path, layout: Callable[[Path, Path], Path], verify: Any
) -> None:
    expected = Embedder.load(mapped).embed(["the cat"])
    linked = layout(mapped, tmp_path)
    np.testing.assert_array_equal(Embedder.load(linked, verify=verify).embed(["the cat"]), expected)


def test_a_bundle_of_links_is_quantized_to_the_same_bytes(mapped: Path, tmp_path: Path) -> None:
    sizes = []
    for number, source in enumerate((mapped, hub_cache(mapped, tmp_path))):
        bundle = quantize_bundle(source, tmp_path / f"int8-{number}", min_fidelity=0)
        sizes.append({name: entry.sha256 for name, entry in bundle.manifest.files.items()})
        assert not any(file.is_symlink() for file in bundle.path.iterdir())
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("verify", ["hash", "size"])
@pytest.mark.parametrize("name", FILES)
def test_a_link_to_a_file_that_was_not_exported_tells_nothing_of_it(
    mapped: Path, tmp_path: Path, name: str, verify: Any
) -> None:
    """Same size, another content: what someone would plant to read a private file as weights."""
    folder, private = Path(shutil.copytree(mapped, tmp_path / "bundle")), tmp_path / "private"
    for content in (b"\0" * (folder / name).stat().st_size, b"secret"):
        (folder / name).unlink()
        private.write_bytes(content)
        (folder / name).symlink_to(private)
        with pytest.raises(UnsafeBundleError, match=f"{name} is a link to another file than that of the manifest"):
            Bundle.open(folder, verify)


@pytest.mark.parametrize("verify", ["hash", "size"])
def test_weights_behind_a_planted_link_are_refused(mapped: Path, tmp_path: Path, verify: Any) -> None:
    folder, private = Path(shutil.copytree(mapped, tmp_path / "bundle")), tmp_path / "weights.bin"
    private.write_bytes(b"\0" * (folder / "weights.bin").stat().st_size)
    (folder / "weights.bin").unlink()
    (folder / "weights.bin").symlink_to(private)
    with pytest.raises(BundleError, match=r"weights\.bin is a link to another file|weights behind a link"):
        Embedder.load(folder, verify=verify)


def test_weights_that_onnxruntime_does_not_follow_are_named(mapped: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(mapped, tmp_path / "bundle"))
    (folder / "weights.bin").rename(tmp_path / "weights.bin")
    (folder / "weights.bin").symlink_to(tmp_path / "weights.bin")
    with pytest.raises(BundleError, match=r"model\.onnx has its weights behind a link, .*; put the file itself there$"):
        Embedder.load(folder)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("target", "message"),
    [
        (None, "is a folder or a special file"),
        ("/dev/zero", "is a link to /dev/zero, a folder or a special file"),
        ("/proc/self", "a folder or a special file"),
        ("itself", "is a link that leads to itself"),
        ("gone.txt", r"is a link to gone\.txt, which cannot be opened \(No such file"),
    ],
)
def test_links_to_nothing_and_special_files_are_refused(
    folder: Path, tmp_path: Path, name: str, target: str | None, message: str
) -> None:
    broken = Path(shutil.copytree(folder, tmp_path / "broken"))
    (broken / name).unlink()
    if target is None:
        os.mkfifo(broken / name)
    else:
        (broken / name).symlink_to(name if target == "itself" else target)
    with pytest.raises((UnsafeBundleError, IntegrityError), match=f"{name} {message}|{name} .*{message}"):
        Bundle.open(broken)


@pytest.mark.parametrize("target", ["gone.json", MANIFEST_NAME, "/dev/zero"])
def test_a_manifest_that_leads_nowhere_is_named(folder: Path, tmp_path: Path, target: str) -> None:
    broken = Path(shutil.copytree(folder, tmp_path / "broken"))
    (broken / MANIFEST_NAME).unlink()
    (broken / MANIFEST_NAME).symlink_to(target)
    with pytest.raises(BundleError, match=rf"edgebert\.json is a link to .*{Path(target).name}, which is no regular"):
        Bundle.open(broken)


def test_a_destination_that_is_a_link_is_refused(mapped: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(shutil.copytree(mapped, tmp_path / "bundle"))
    with pytest.raises(ExportError, match=f"link is a link to {tmp_path}/bundle; give the folder itself"):
        quantize_bundle(mapped, tmp_path / "link", force=True)
