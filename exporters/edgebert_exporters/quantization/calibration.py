"""Calibration: run graphs from memory, and observe the inputs of linear layers on samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from edgebert_exporters.inference.batch import Batch
from edgebert_exporters.inference.decoder_adapter import ColumnCacheAdapter
from edgebert_exporters.inference.graph_runner import open_graphs
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.quantization.weight_discovery import Floats
from edgebert_runtime.session.error_messages import explain_open, explain_run
from edgebert_runtime.session.session import Runnable, import_onnxruntime, open_session


class Observer(Protocol):
    """Statistics of activations, in memory that does not grow with their number."""

    def observe(self, rows: Floats) -> None:
        """Add activations (n, dim) of real tokens."""


class AbsMaxObserver:
    """The largest magnitude of each channel (dim,)."""

    def __init__(self) -> None:
        self.peak: Floats | None = None

    def observe(self, rows: Floats) -> None:
        """Add activations (n, dim)."""
        peak: Floats = np.abs(rows).max(0, initial=0)
        self.peak = peak if self.peak is None else np.maximum(self.peak, peak)

    @property
    def channels(self) -> Floats:
        """Return the largest magnitudes (dim,) so far."""
        assert self.peak is not None, "no activation was observed"
        return self.peak


@dataclass(frozen=True)
class CompositeObserver:
    """Passes activations on to several observers."""

    observers: Sequence[Observer]

    def observe(self, rows: Floats) -> None:
        """Add activations (n, dim)."""
        for observer in self.observers:
            observer.observe(rows)


class InMemorySession:
    """A session of a graph in memory.

    Unchanged weights are read from the files of ``folder``.
    """

    def __init__(self, model: ir.Model, folder: Path) -> None:
        ort = import_onnxruntime()
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
        data = ir.to_proto(model).SerializeToString()
        try:
            self.inner = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its exceptions share no base class but this
            raise explain_open(folder, error) from error

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, npt.NDArray[Any]]) -> list[Any]:
        """Compute the outputs called ``output_names``, all if None."""
        try:
            return list(self.inner.run(output_names, feeds))
        except Exception as error:
            raise explain_run(error) from error


def open_models(models: Mapping[str, ir.Model], source: OpenedBundle) -> Runnable:
    """Open graphs in memory, by name, in place of those of their bundle."""
    by_file = {source.manifest.graphs[name].file: model for name, model in models.items()}
    folder = source.weights_folder
    return open_graphs(source.path, source.manifest, lambda file: InMemorySession(by_file[file.name], folder))


class ObservedSession:
    """A session that passes activations to observers, by value name.

    Padding is left out where an activation has a row per token. Other activations are those of chosen tokens.
    """

    def __init__(self, model: ir.Model, folder: Path, observers: Mapping[str, Observer]) -> None:
        self.outputs = [output.name or "" for output in model.graph.outputs]
        self.values, self.observers = list(observers), list(observers.values())
        observed = model.clone()
        values = {value.name: value for node in observed.graph for value in node.outputs}
        observed.graph.outputs.extend(values[name] for name in observers)
        self.session = InMemorySession(observed, folder)
        self.inner = self.session.inner

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, npt.NDArray[Any]]) -> list[Any]:
        """Compute the outputs called ``output_names``, all if None, and observe the activations."""
        names = list(output_names or self.outputs)
        outputs = self.session.run([*names, *self.values], feeds)
        self.observe(outputs[len(names) :], feeds)
        return list(outputs[: len(names)])

    def observe(self, activations: Sequence[Floats], feeds: Mapping[str, npt.NDArray[Any]]) -> None:
        """Pass activations to their observers."""
        mask = feeds.get("attention_mask")
        real = mask[:, -feeds["input_ids"].shape[1] :].reshape(-1) == 1 if mask is not None else np.zeros(0, np.bool_)
        for observer, output in zip(self.observers, activations, strict=True):
            rows = output.reshape(-1, output.shape[-1])
            observer.observe(rows[real] if len(rows) == len(real) else rows)


def observe_graph(
    source: OpenedBundle, graph: str, observers: Mapping[str, Observer], batches: Sequence[Batch]
) -> None:
    """Pass the activations of a graph to observers, by value name, while batches run."""
    observed = ObservedSession(source.graphs[graph], source.weights_folder, observers)

    def opener(file: Path) -> Runnable:
        return observed if file.name == source.manifest.graphs[graph].file else open_session(file)

    session = open_graphs(source.path, source.manifest, opener)
    for batch in batches:
        if isinstance(session, ColumnCacheAdapter):  # it binds the session by itself
            observed.observe(session.run(observed.values, batch.feeds), batch.feeds)
        else:
            session.run(None, batch.feeds)
