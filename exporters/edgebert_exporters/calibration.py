"""Run a graph on sample texts and watch the inputs of its linear layers."""

from __future__ import annotations

import importlib.resources
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from edgebert_exporters.grid import Batch
from edgebert_exporters.linears import Floats
from edgebert_runtime.batching import plan_batches
from edgebert_runtime.bundle import Bundle
from edgebert_runtime.errors import QuantizationError
from edgebert_runtime.session import import_onnxruntime
from edgebert_runtime.tokenizer import Tokenizer

BATCH_TOKENS = 1024
# Of the sample texts, every second calibrates; fidelity is measured on the others.
MIN_TEXTS = 8


def sample_texts() -> list[str]:
    """Return the English sentences that serve where the user gives no texts (public domain, see THIRD_PARTY.md)."""
    text = importlib.resources.files("edgebert_exporters").joinpath("sample_texts.txt").read_text(encoding="utf-8")
    return text.splitlines()


def sample_rows(bundle: Bundle, texts: Sequence[str] | None, seed: int = 0) -> list[list[int]]:
    """Return token ids of the texts, or of our own sample texts.

    A tokenizer that does not know English (molecules, proteins) turns our texts into unknown tokens, which say
    nothing; such a model gets random ids of its vocabulary, of the same lengths.

    Raises:
        QuantizationError: if fewer than :data:`MIN_TEXTS` texts are given.
    """
    limits = bundle.manifest.limits
    tokenizer = Tokenizer.load(bundle.path / "tokenizer.json", limits.vocab_size)
    if texts is not None and len(texts) < MIN_TEXTS:
        raise QuantizationError(f"{len(texts)} sample texts are too few to measure anything; give at least {MIN_TEXTS}")
    rows = [list(e.ids) for e in tokenizer.encode(list(texts or sample_texts()), limits.default_tokens)]
    if texts is None and len({i for row in rows for i in row}) < min(500, limits.vocab_size // 2):
        rng = np.random.default_rng(seed)
        rows = [rng.integers(0, limits.vocab_size, max(len(row), 2)).tolist() for row in rows]
    return rows


def to_batches(rows: Sequence[Sequence[int]]) -> list[tuple[list[int], Batch]]:
    """Pad rows of ids into batches; each comes with the numbers of its rows."""
    batches = []
    for indices in plan_batches([len(row) for row in rows], BATCH_TOKENS):
        length = max(len(rows[i]) for i in indices)
        ids = np.zeros((len(indices), length), np.int64)
        mask = np.zeros_like(ids)
        for at, i in enumerate(indices):
            ids[at, : len(rows[i])] = rows[i]
            mask[at, : len(rows[i])] = 1
        batches.append((list(indices), Batch("samples", ids, mask, np.zeros_like(ids))))
    return batches


def largest_inputs(graph: Path, values: Sequence[str], batches: Sequence[Batch]) -> dict[str, Floats]:
    """Return, for each named activation (tokens, dim), the largest magnitude of each of its channels (dim,).

    Padding does not count. Only these maxima are kept, so memory does not grow with the number of samples.
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
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    largest: dict[str, Floats] = {}
    for batch in batches:
        for name, output in zip(values, session.run(list(values), batch.feeds), strict=True):
            peak = np.abs(output).reshape(-1, output.shape[-1])[batch.attention_mask.reshape(-1) == 1].max(0)
            largest[name] = np.maximum(largest[name], peak) if name in largest else peak
    return largest
