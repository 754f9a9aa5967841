"""Run graphs that are in no file yet, and watch the inputs of linear layers on samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from edgebert_exporters.inference.batch import Batch
from edgebert_exporters.inference.decoder_adapter import Decoder
from edgebert_exporters.inference.graph_runner import open_graphs
from edgebert_exporters.quantization.weight_discovery import Floats
from edgebert_runtime.bundle.manifest import Manifest
from edgebert_runtime.session.session import Runnable, import_onnxruntime, open_session


class Observer(Protocol):
    """Something that is shown activations and remembers what it needs, however many there are."""

    def look(self, rows: Floats) -> None:
        """Take in activations (n, dim) of real tokens."""


class Largest:
    """Remembers the largest magnitude of each channel (dim,)."""

    def __init__(self) -> None:
        self.found: Floats | None = None

    def look(self, rows: Floats) -> None:
        """Take in activations (n, dim)."""
        peak: Floats = np.abs(rows).max(0, initial=0)
        self.found = peak if self.found is None else np.maximum(self.found, peak)

    @property
    def channels(self) -> Floats:
        """Return the largest magnitudes (dim,) so far."""
        assert self.found is not None, "nothing has been shown"
        return self.found


class InMemory:
    """A session of a graph that is in no file; weights that were not changed still lie in the files of ``folder``."""

    def __init__(self, model: ir.Model, folder: Path) -> None:
        ort = import_onnxruntime()
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
        data = ir.to_proto(model).SerializeToString()
        self.inner = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, npt.NDArray[Any]]) -> list[Any]:
        """Compute the outputs called ``output_names``, all if None."""
        return list(self.inner.run(output_names, feeds))


def open_models(models: Mapping[str, ir.Model], folder: Path, manifest: Manifest) -> Runnable:
    """Open graphs, by their names, that were made of those of the bundle in ``folder`` but are in no file yet."""
    by_file = {manifest.graphs[name].file: model for name, model in models.items()}
    return open_graphs(folder, manifest, lambda file: InMemory(by_file[file.name], folder))


class Recorder:
    """A session that shows activations to observers, by the names of the values.

    Where an activation has a row for each token, padding is left out; otherwise its rows are tokens that were chosen
    for something.
    """

    def __init__(self, graph: Path, observers: Mapping[str, Observer]) -> None:
        model = ir.load(graph)
        self.outputs = [output.name or "" for output in model.graph.outputs]
        found = {v.name: v for node in model.graph for v in node.outputs if v.name in observers}
        model.graph.outputs.extend(found[name] for name in observers)
        self.values, self.observers = list(observers), list(observers.values())
        self.inner = InMemory(model, graph.parent).inner

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, npt.NDArray[Any]]) -> list[Any]:
        """Compute the outputs called ``output_names``, all if None, and look at the activations."""
        names = list(output_names or self.outputs)
        outputs = self.inner.run([*names, *self.values], feeds)
        self.look(outputs[len(names) :], feeds)
        return list(outputs[: len(names)])

    def look(self, activations: Sequence[Floats], feeds: Mapping[str, npt.NDArray[Any]]) -> None:
        """Show activations to their observers."""
        mask = feeds.get("attention_mask")
        real = mask[:, -feeds["input_ids"].shape[1] :].reshape(-1) == 1 if mask is not None else np.zeros(0, np.bool_)
        for observer, output in zip(self.observers, activations, strict=True):
            rows = output.reshape(-1, output.shape[-1])
            observer.look(rows[real] if len(rows) == len(real) else rows)


def observe(
    folder: Path, manifest: Manifest, name: str, observers: Mapping[str, Observer], batches: Sequence[Batch]
) -> None:
    """Show the activations in the graph called ``name`` of a bundle to observers, by the names of the values."""
    recorder = Recorder(folder / manifest.graphs[name].file, observers)

    def opener(file: Path) -> Runnable:
        return recorder if file.name == manifest.graphs[name].file else open_session(file)

    session = open_graphs(folder, manifest, opener)
    for batch in batches:
        if isinstance(session, Decoder):  # it binds the session by itself
            recorder.look(session.run(recorder.values, batch.feeds), batch.feeds)
        else:
            session.run(None, batch.feeds)
