"""Calls of the library that commands make, seen instead of done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import edgebert_exporters
from edgebert_runtime import Bundle


def watch(monkeypatch: pytest.MonkeyPatch, function: str, bundle: Path) -> dict[str, Any]:
    """Return what the function of the library will be called with, but ``progress``.

    It makes nothing, and returns ``bundle``.
    """
    called_with: dict[str, Any] = {}

    def make(*args: Any, **options: Any) -> Bundle:
        assert callable(options.pop("progress"))
        called_with.update(options, args=args)
        return Bundle.open(bundle)

    monkeypatch.setattr(edgebert_exporters, function, make, raising=False)
    return called_with
