"""Run edgebert bundles with NumPy, ONNX Runtime and tokenizers, and nothing else.

``edgebert_runtime.load("bundle/")`` opens a bundle and returns the engine of its task. This folder alone can be
copied to a device. onnxruntime and tokenizers are imported when the first engine is loaded, not before.
"""

from __future__ import annotations

import os
from typing import TypeAlias

from edgebert_runtime import errors
from edgebert_runtime.bundle.reader import Bundle, Verify
from edgebert_runtime.decoders.prefix import Prefix
from edgebert_runtime.decoders.scoring import Scored
from edgebert_runtime.errors import BundleError, EdgebertError
from edgebert_runtime.inputs.text_splitter import TextPiece
from edgebert_runtime.task_specs import TASKS
from edgebert_runtime.tasks.answerer import Answer, Answerer
from edgebert_runtime.tasks.base.engine import opened_bundle
from edgebert_runtime.tasks.base.text_engine import Generation, GenerationOptions
from edgebert_runtime.tasks.base.text_options import TextOptions
from edgebert_runtime.tasks.base.tokenizer import Tokenizer, Tokens
from edgebert_runtime.tasks.classifier import Classification, Classifier
from edgebert_runtime.tasks.embedder import Embedder, EmbedOptions, EmbedResult
from edgebert_runtime.tasks.generator import Generator
from edgebert_runtime.tasks.mask_filler import Filling, MaskFiller
from edgebert_runtime.tasks.multiple_choice import Choice, MultipleChoice
from edgebert_runtime.tasks.reranker import Ranked, Reranker
from edgebert_runtime.tasks.tagger import Entity, Tagger
from edgebert_runtime.tasks.translator import Translator

__all__ = [
    "Answer",
    "Answerer",
    "AnyEngine",
    "Bundle",
    "Choice",
    "Classification",
    "Classifier",
    "EdgebertError",
    "EmbedOptions",
    "EmbedResult",
    "Embedder",
    "Entity",
    "Filling",
    "Generation",
    "GenerationOptions",
    "Generator",
    "MaskFiller",
    "MultipleChoice",
    "Prefix",
    "Ranked",
    "Reranker",
    "Scored",
    "Tagger",
    "TextOptions",
    "TextPiece",
    "Tokenizer",
    "Tokens",
    "Translator",
    "errors",
    "load",
]

AnyEngine: TypeAlias = (
    Embedder | Classifier | Reranker | MultipleChoice | Tagger | Answerer | MaskFiller | Generator | Translator
)

_CLASSES: tuple[type[AnyEngine], ...] = (
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
_BY_NAME = {engine_class.__name__: engine_class for engine_class in _CLASSES}
ENGINES = {task: _BY_NAME[spec.engine] for task, spec in TASKS.items()}


def load(
    folder: str | os.PathLike[str], *, device: str = "cpu", threads: int | None = None, verify: Verify = "hash"
) -> AnyEngine:
    """Open the bundle in ``folder`` and return the engine of its task.

    The classes are :class:`Embedder`, :class:`Classifier` (tasks classify and next-sentence), :class:`Reranker`,
    :class:`MultipleChoice`, :class:`Tagger`, :class:`Answerer`, :class:`MaskFiller`, :class:`Generator` and
    :class:`Translator`. Each has a ``load`` of its own that returns its own type.

    ``device`` is ``cpu``, ``cuda``, ``cuda:N`` or ``auto``. ``threads`` defaults to the number that affinity and
    control group allow. ``verify="size"`` skips hashing the files.

    Raises:
        BundleError: if the folder is no intact bundle, or of a task that this version does not run.
        DeviceError: if the device cannot be had.
    """
    with opened_bundle(folder, verify) as bundle:
        task = bundle.manifest.task
        if task not in ENGINES:
            raise BundleError(f"{bundle.path} is a bundle of task {task!r}; this edgebert runs {', '.join(ENGINES)}")
        return ENGINES[task](bundle, device=device, threads=threads)
