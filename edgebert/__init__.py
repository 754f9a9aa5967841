"""Take a Transformer trained in PyTorch and run it anywhere ONNX Runtime runs.

``edgebert.load("bundle/")`` opens a bundle and returns the engine of its task. Nothing heavy is imported before
that: names are handed on from :mod:`edgebert_runtime` when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    import edgebert_runtime
    from edgebert_runtime import *  # noqa: F403

    __all__ = ["__version__"]
    __all__ += edgebert_runtime.__all__
else:

    def __getattr__(name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module 'edgebert' has no attribute {name!r}")
        import edgebert_runtime

        if name == "__all__":
            return ["__version__", *edgebert_runtime.__all__]
        if name not in edgebert_runtime.__all__:
            raise AttributeError(f"module 'edgebert' has no attribute {name!r}")
        return getattr(edgebert_runtime, name)

    def __dir__() -> list[str]:
        return sorted(__getattr__("__all__"))
