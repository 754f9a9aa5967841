"""A bundle that is opened once and handed on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx_ir as ir

from edgebert_exporters.graphs.signatures import Signature
from edgebert_exporters.inference.graph_runner import interface, open_graphs
from edgebert_runtime.bundle.manifest import Manifest
from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.session.session import Runnable


@dataclass(frozen=True)
class OpenedBundle:
    """A checked bundle with its signature, graphs and session, each made at first use and once."""

    bundle: Bundle

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> OpenedBundle:
        """Open a bundle and hash its files.

        Raises:
            BundleError: as :meth:`edgebert_runtime.bundle.reader.Bundle.open`.
        """
        return cls(Bundle.open(folder))

    @property
    def path(self) -> Path:
        """Return the folder."""
        return self.bundle.path

    @property
    def manifest(self) -> Manifest:
        """Return the manifest."""
        return self.bundle.manifest

    @cached_property
    def signature(self) -> Signature:
        """Return the inputs and outputs of :attr:`session`."""
        return interface(self.manifest)

    @cached_property
    def graphs(self) -> dict[str, ir.Model]:
        """Return the ONNX graphs by name; weights are read from their files when they are asked for."""
        return {name: ir.load(self.path / spec.file) for name, spec in self.manifest.graphs.items()}

    @cached_property
    def session(self) -> Runnable:
        """Return the graphs as one function from a batch to outputs."""
        return open_graphs(self.path, self.manifest)
