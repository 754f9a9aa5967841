"""Take a Transformer trained in PyTorch and run it anywhere ONNX Runtime runs.

``edgebert.load("bundle/")`` opens a bundle and returns the engine of its task. Nothing heavy is imported before
that: names are handed on from :mod:`edgebert_runtime` when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from edgebert_runtime import Bundle as Bundle
    from edgebert_runtime import Embedder as Embedder
    from edgebert_runtime import EmbedResult as EmbedResult
    from edgebert_runtime import errors as errors
    from edgebert_runtime import load as load
    from edgebert_runtime.errors import EdgebertError as EdgebertError

__all__ = ["Bundle", "EdgebertError", "EmbedResult", "Embedder", "__version__", "errors", "load"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'edgebert' has no attribute {name!r}")
    import edgebert_runtime

    return getattr(edgebert_runtime, name)


def __dir__() -> list[str]:
    return sorted(__all__)
