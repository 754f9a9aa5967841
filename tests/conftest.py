"""Fixtures that several packages' tests share: a tiny checkpoint and the bundles made from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebert_exporters import export_checkpoint, quantize_bundle
from tests.tiny import write_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a tiny checkpoint, to be read only."""
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture(scope="session")
def fp32_bundle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a float32 bundle for the target cpu, to be read only."""
    return export_checkpoint(checkpoint, tmp_path_factory.mktemp("bundles") / "fp32").path


@pytest.fixture(scope="session")
def portable_bundle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle for the target portable, to be read only."""
    return export_checkpoint(checkpoint, tmp_path_factory.mktemp("bundles") / "portable", target="portable").path


@pytest.fixture(scope="session")
def int8_bundle(fp32_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the int8 form of the float32 bundle, to be read only."""
    return quantize_bundle(fp32_bundle, tmp_path_factory.mktemp("bundles") / "int8").path
