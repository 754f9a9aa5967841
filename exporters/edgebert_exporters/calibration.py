"""Run a graph on samples and watch the inputs of its linear layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from edgebert_exporters.decoders import Decoder
from edgebert_exporters.grid import Batch
from edgebert_exporters.linears import Floats
from edgebert_exporters.opened import open_graphs
from edgebert_runtime.manifest import Manifest
from edgebert_runtime.session import Runnable, import_onnxruntime, open_session


class Recorder:
    """A session that remembers, of activations (n, dim), the largest magnitude of each channel (dim,).

    Where an activation has a row for each token, padding does not count; otherwise its rows are tokens that were
    chosen for something. Only these maxima are kept, so memory does not grow with the number of samples.
    """

    def __init__(self, graph: Path, values: Sequence[str]) -> None:
        ort = import_onnxruntime()
        model = ir.load(graph)
        found = {v.name: v for node in model.graph for v in node.outputs if v.name in set(values)}
        model.graph.outputs.extend(found[name] for name in values)
        options = ort.SessionOptions()
        options.log_severity_level = 3
        # The graph stays in memory, so it has to be told where its weights are.
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(graph.parent))
        data = ir.to_proto(model).SerializeToString()
        self.inner = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        self.values, self.largest = list(values), dict[str, Floats]()

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, npt.NDArray[Any]]) -> list[Any]:
        """Compute the outputs called ``output_names``, all if None, and look at the activations."""
        names = list(output_names or [output.name for output in self.inner.get_outputs()[: -len(self.values)]])
        outputs = self.inner.run([*names, *self.values], feeds)
        self.look(outputs[len(names) :], feeds)
        return list(outputs[: len(names)])

    def look(self, activations: Sequence[Floats], feeds: Mapping[str, npt.NDArray[Any]]) -> None:
        """Remember the largest magnitudes."""
        mask = feeds.get("attention_mask")
        real = mask[:, -feeds["input_ids"].shape[1] :].reshape(-1) == 1 if mask is not None else np.zeros(0, np.bool_)
        for name, output in zip(self.values, activations, strict=True):
            rows = np.abs(output).reshape(-1, output.shape[-1])
            peak = rows[real].max(0) if len(rows) == len(real) else rows.max(0)
            self.largest[name] = np.maximum(self.largest[name], peak) if name in self.largest else peak


def largest_inputs(
    folder: Path, manifest: Manifest, name: str, values: Sequence[str], batches: Sequence[Batch]
) -> dict[str, Floats]:
    """Return the largest magnitudes of the activations ``values`` in the graph called ``name`` of a bundle."""
    recorder = Recorder(folder / manifest.graphs[name].file, values)

    def opener(file: Path) -> Runnable:
        return recorder if file.name == manifest.graphs[name].file else open_session(file)

    session = open_graphs(folder, manifest, opener)
    for batch in batches:
        if isinstance(session, Decoder):  # it binds the session by itself
            recorder.look(session.run(recorder.values, batch.feeds), batch.feeds)
        else:
            session.run(None, batch.feeds)
    return recorder.largest
