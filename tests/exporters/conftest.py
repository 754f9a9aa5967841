"""A bundle that is large where the tiny one is too small to show something."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebert_exporters import export_checkpoint
from tests.support.tiny import write_checkpoint


@pytest.fixture(scope="session")
def large_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a float32 bundle with a vocabulary worth quantizing, to be read only."""
    folder = tmp_path_factory.mktemp("large")
    return export_checkpoint(write_checkpoint(folder / "source", vocab_size=20000), folder / "fp32").path
