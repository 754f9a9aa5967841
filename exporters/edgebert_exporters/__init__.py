"""PyTorch in, bundle out: export, quantize, verify, compare.

Nothing heavy is imported before one of the functions is used. They need ``pip install "edgebert[export]"``;
:func:`compare_bundles`, and :func:`verify_bundle` without a checkpoint, do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgebert_exporters.compare import compare_bundles as compare_bundles
    from edgebert_exporters.export import export_checkpoint as export_checkpoint
    from edgebert_exporters.quantize import measure_sensitivity as measure_sensitivity
    from edgebert_exporters.quantize import quantize_bundle as quantize_bundle
    from edgebert_exporters.verify import verify_bundle as verify_bundle

__all__ = ["compare_bundles", "export_checkpoint", "measure_sensitivity", "quantize_bundle", "verify_bundle"]

_HOME = {
    "compare_bundles": "compare",
    "export_checkpoint": "export",
    "measure_sensitivity": "quantize",
    "quantize_bundle": "quantize",
    "verify_bundle": "verify",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'edgebert_exporters' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"edgebert_exporters.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
