"""Run edgebert bundles with NumPy, ONNX Runtime and tokenizers, and nothing else.

``edgebert_runtime.load("bundle/")`` opens a bundle and returns the engine of its task. This folder alone can be
copied to a device. onnxruntime and tokenizers are imported when the first engine is loaded, not before.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from edgebert_runtime import errors
from edgebert_runtime.bundle.reader import Bundle, Verify, opening
from edgebert_runtime.decoders.scoring import Scored
from edgebert_runtime.errors import BundleError, EdgebertError
from edgebert_runtime.session.session import preload_imports
from edgebert_runtime.task_specs import TASKS
from edgebert_runtime.tasks.answerer import Answer, Answerer
from edgebert_runtime.tasks.classifier import Classification, Classifier
from edgebert_runtime.tasks.embedder import Embedder, EmbedResult
from edgebert_runtime.tasks.engine import Engine
from edgebert_runtime.tasks.generator import Generator, Prefix
from edgebert_runtime.tasks.mask_filler import Filling, MaskFiller
from edgebert_runtime.tasks.multiple_choice import Choice, MultipleChoice
from edgebert_runtime.tasks.reranker import Ranked, Reranker
from edgebert_runtime.tasks.tagger import Entity, Tagger
from edgebert_runtime.tasks.text_engine import Generation
from edgebert_runtime.tasks.translator import Translator

__all__ = [
    "Answer",
    "Answerer",
    "Bundle",
    "Choice",
    "Classification",
    "Classifier",
    "EdgebertError",
    "EmbedResult",
    "Embedder",
    "Entity",
    "Filling",
    "Generation",
    "Generator",
    "MaskFiller",
    "MultipleChoice",
    "Prefix",
    "Ranked",
    "Reranker",
    "Scored",
    "Tagger",
    "Translator",
    "errors",
    "load",
]

KINDS: tuple[type[Engine], ...] = (
    Embedder,
    Classifier,
    Reranker,
    MultipleChoice,
    Tagger,
    Answerer,
    MaskFiller,
    Generator,
    Translator,
)
_BY_NAME = {kind.__name__: kind for kind in KINDS}
ENGINES = {task: _BY_NAME[spec.engine] for task, spec in TASKS.items()}


def load(
    folder: str | os.PathLike[str], *, device: str = "cpu", threads: int | None = None, verify: Verify = "hash"
) -> Any:
    """Open the bundle in ``folder`` and return the engine of its task.

    The classes are :class:`Embedder`, :class:`Classifier` (tasks classify and next-sentence), :class:`Reranker`,
    :class:`MultipleChoice`, :class:`Tagger`, :class:`Answerer`, :class:`MaskFiller`, :class:`Generator` and
    :class:`Translator`.
    ``device`` is ``cpu``, ``cuda``, ``cuda:N`` or ``auto``; ``threads`` defaults to what affinity and control group
    allow. ``verify="size"`` skips hashing the files.

    Raises:
        BundleError: if the folder is no intact bundle, or of a task that this version does not run.
        DeviceError: if the device cannot be had.
    """
    with contextlib.ExitStack() as until_checked:
        with preload_imports():
            bundle = until_checked.enter_context(opening(folder, verify))
        task = bundle.manifest.task
        if task not in ENGINES:
            raise BundleError(f"{bundle.path} is a bundle of task {task!r}; this edgebert runs {', '.join(ENGINES)}")
        return ENGINES[task](bundle, device=device, threads=threads)
