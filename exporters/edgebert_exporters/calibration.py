"""Run a graph on samples and watch the inputs of its linear layers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from edgebert_exporters.decoders import adapt
from edgebert_exporters.grid import Batch
from edgebert_exporters.linears import Floats
from edgebert_runtime.manifest import TensorSpec
from edgebert_runtime.session import import_onnxruntime


def largest_inputs(
    graph: Path, inputs: Sequence[TensorSpec], values: Sequence[str], batches: Sequence[Batch]
) -> dict[str, Floats]:
    """Return, for each of the activations ``values`` (n, dim), the largest magnitude of each of its channels (dim,).

    Where an activation has a row for each token, padding does not count; otherwise its rows are tokens that were
    chosen for something. Only these maxima are kept, so memory does not grow with the number of samples.
    """
    ort = import_onnxruntime()
    model = ir.load(graph)
    found = {v.name: v for node in model.graph for v in node.outputs if v.name in set(values)}
    model.graph.outputs.extend(found[name] for name in values)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    # The graph stays in memory, so it has to be told where its weights are.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(graph.parent))
    data = ir.to_proto(model).SerializeToString()
    session = adapt(ort.InferenceSession(data, options, providers=["CPUExecutionProvider"]), inputs)
    largest: dict[str, Floats] = {}
    for batch in batches:
        real = batch.new_mask.reshape(-1) == 1
        for name, output in zip(values, session.run(list(values), batch.feeds), strict=True):
            rows = np.abs(output).reshape(-1, output.shape[-1])
            peak = rows[real].max(0) if len(rows) == len(real) else rows.max(0)
            largest[name] = np.maximum(largest[name], peak) if name in largest else peak
    return largest
