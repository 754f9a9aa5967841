"""Files of a folder that are links.

The Hub's cache links every file of a snapshot to its ``blobs``, a Kubernetes ConfigMap links to ``..data`` beside it,
and package managers link to their stores. Such a link is read. The danger is another: a folder from somewhere else may
link to a private file of this machine, whose content would then come out as weights or as a vocabulary.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path


def is_inside(folder: Path, target: str) -> bool:
    """Tell whether a resolved path is in ``folder``, or among the blobs of a model in the Hub's cache."""
    root = Path(os.path.realpath(folder))
    roots = [root]
    if root.parent.name == "snapshots":
        roots.append(root.parent.parent / "blobs")
    path = Path(target)
    in_cache = path.parent.name == "blobs" and path.parent.parent.name.startswith("models--")
    return in_cache or any(path.is_relative_to(allowed) for allowed in roots)


def fault_of(file: Path, error: OSError) -> str:
    """Return the words for a file that cannot be opened: that it is missing, or leads nowhere."""
    if not file.is_symlink():
        return f"is missing ({error.strerror})" if isinstance(error, FileNotFoundError) else f"({error.strerror})"
    if error.errno == errno.ELOOP:
        return "is a link that leads to itself"
    return f"is a link to {os.readlink(file)}, which cannot be opened ({error.strerror})"
