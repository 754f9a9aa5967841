"""A checkpoint folder for each test to break."""

import shutil
from pathlib import Path

import pytest

from tests.checkpoints.broken import write_sound


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that can be opened and stays as it is."""
    return write_sound(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    """Return a copy of the folder, to be broken."""
    return Path(shutil.copytree(sound, tmp_path / "model"))
