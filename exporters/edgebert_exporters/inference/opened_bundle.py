"""A bundle that is opened once and handed on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgebert_exporters.graphs.signatures import Signature
from edgebert_exporters.inference.graph_runner import kind_of, open_graphs, result_outputs
from edgebert_exporters.inference.model_kind import Array, ModelKind, Opener
from edgebert_exporters.inference.sample_texts import Sample
from edgebert_runtime.bundle.manifest import Manifest
from edgebert_runtime.bundle.reader import DATA_FILES, Bundle
from edgebert_runtime.session.session import open_session

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass(frozen=True)
class OpenedBundle:
    """A checked bundle with its signature, graphs and session, each made at first use and once.

    ``opener`` opens a file of a graph; ``with_swapped_beams`` reorders the KV cache at every step.
    """

    bundle: Bundle
    opener: Opener = open_session
    with_swapped_beams: bool = False

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

    @property
    def kind(self) -> ModelKind:
        """Return the kind of the model."""
        return kind_of(self.manifest)

    @cached_property
    def signature(self) -> Signature:
        """Return the inputs and outputs of :attr:`session`."""
        return self.kind.signature(self.manifest)

    @cached_property
    def results(self) -> list[str]:
        """Return the names of the outputs that are results."""
        return result_outputs(self.signature.outputs)

    @cached_property
    def graphs(self) -> dict[str, ir.Model]:
        """Return the ONNX graphs by name; weights are read from their files when they are asked for."""
        import onnx_ir as ir  # which verifying alone does without

        models = {name: ir.load(self.path / spec.file) for name, spec in self.manifest.graphs.items()}
        for value in (value for model in models.values() for value in model.graph.initializers.values()):
            old = value.const_value
            if isinstance(old, ir.ExternalTensor):  # which refuses a file that is a link, checked though it is
                value.const_value = ir.ExternalTensor(
                    os.path.basename(self.weights_file(old.location)),
                    old.offset,
                    old.length,
                    old.dtype,
                    shape=old.shape,
                    name=old.name or "",
                    base_dir=self.weights_folder,
                )
        return models

    def weights_file(self, name: str | os.PathLike[str]) -> str:
        """Return the path of a file of weights, where its links lead."""
        return os.path.realpath(self.path / name)

    @property
    def weights_folder(self) -> Path:
        """Return the folder that holds the file of weights itself."""
        return Path(self.weights_file(DATA_FILES[0])).parent

    @cached_property
    def session(self) -> Any:
        """Return the graphs as one function from a batch to outputs."""
        return open_graphs(self.path, self.manifest, self.opener, with_swapped_beams=self.with_swapped_beams)

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Array]) -> list[Any]:
        """Compute the outputs called ``output_names``, all if None."""
        return list(self.session.run(output_names, feeds))

    def samples(self, rows: Sequence[Sequence[int]]) -> list[Sample]:
        """Return samples for the task, made of the token ids of texts."""
        return self.kind.samples(self, rows)
