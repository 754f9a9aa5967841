"""Take a Transformer trained in PyTorch and run it anywhere ONNX Runtime runs.

``edgebert.load("bundle/")`` opens a bundle and returns the engine of its task. Nothing heavy is imported before
that: names are handed on from :mod:`edgebert_runtime` when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from edgebert_runtime import Answer as Answer
    from edgebert_runtime import Answerer as Answerer
    from edgebert_runtime import Bundle as Bundle
    from edgebert_runtime import Choice as Choice
    from edgebert_runtime import Classification as Classification
    from edgebert_runtime import Classifier as Classifier
    from edgebert_runtime import Embedder as Embedder
    from edgebert_runtime import EmbedResult as EmbedResult
    from edgebert_runtime import Entity as Entity
    from edgebert_runtime import Filling as Filling
    from edgebert_runtime import Generation as Generation
    from edgebert_runtime import Generator as Generator
    from edgebert_runtime import MaskFiller as MaskFiller
    from edgebert_runtime import MultipleChoice as MultipleChoice
    from edgebert_runtime import Prefix as Prefix
    from edgebert_runtime import Ranked as Ranked
    from edgebert_runtime import Reranker as Reranker
    from edgebert_runtime import Scored as Scored
    from edgebert_runtime import Tagger as Tagger
    from edgebert_runtime import Translator as Translator
    from edgebert_runtime import errors as errors
    from edgebert_runtime import load as load
    from edgebert_runtime.errors import EdgebertError as EdgebertError

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
    "__version__",
    "errors",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'edgebert' has no attribute {name!r}")
    import edgebert_runtime

    return getattr(edgebert_runtime, name)


def __dir__() -> list[str]:
    return sorted(__all__)
