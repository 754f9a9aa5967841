"""A bundle that is large where the tiny one is too small to show something."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebert_exporters import export_checkpoint
from tests.support.sharing import Once
from tests.support.tiny import write_checkpoint


@pytest.fixture(scope="session")
def large_bundle(once: Once) -> Path:
    """Return a float32 bundle with a vocabulary worth quantizing, to be read only."""
    source = once("checkpoint-large", lambda folder: write_checkpoint(folder, vocab_size=20000))
    return once("large", lambda folder: export_checkpoint(source, folder))
