"""Run edgebert bundles with NumPy, ONNX Runtime and tokenizers, and nothing else.

``edgebert_runtime.load("bundle/")`` opens a bundle and returns the engine of its task. This folder alone can be
copied to a device. onnxruntime and tokenizers are imported when the first engine is loaded, not before.
"""

from __future__ import annotations

import os

from edgebert_runtime import errors
from edgebert_runtime.bundle import Bundle, Verify
from edgebert_runtime.embedder import Embedder, EmbedResult
from edgebert_runtime.errors import BundleError, EdgebertError
from edgebert_runtime.session import importing

__all__ = ["Bundle", "EdgebertError", "EmbedResult", "Embedder", "errors", "load"]

ENGINES = {"embed": Embedder}


def load(
    folder: str | os.PathLike[str], *, device: str = "cpu", threads: int | None = None, verify: Verify = "hash"
) -> Embedder:
    """Open the bundle in ``folder`` and return the engine of its task.

    ``device`` is ``cpu``, ``cuda``, ``cuda:N`` or ``auto``; ``threads`` defaults to what affinity and control group
    allow. ``verify="size"`` skips hashing the files.

    Raises:
        BundleError: if the folder is no intact bundle, or of a task that this version does not run.
        DeviceError: if the device cannot be had.
    """
    with importing():
        bundle = Bundle.open(folder, verify)
    task = bundle.manifest.task
    if task not in ENGINES:
        raise BundleError(f"{bundle.path} is a bundle of task {task!r}; this edgebert runs {', '.join(ENGINES)}")
    return ENGINES[task](bundle, device=device, threads=threads)
