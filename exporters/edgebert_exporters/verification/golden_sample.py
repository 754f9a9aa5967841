"""The golden sample: a text and what it gave when the bundle was made, expected again on every other machine."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgebert_exporters.fidelity.agreement import cosines
from edgebert_exporters.inference.batch import Batch
from edgebert_exporters.inference.graph_runner import interface, result_outputs
from edgebert_exporters.inference.sample_texts import source_tokenizer
from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.errors import IntegrityError
from edgebert_runtime.session.session import Runnable

# Least cosine allowed between a quantized bundle and what it computed where it was made: other CPUs round otherwise.
GOLDEN_COSINE = 0.999
GOLDEN_TEXT = "The café's 2 boats — naïve, red & white — left at 7:45 [SEP] 日本"
# Of the outputs of a head, as many numbers are kept; sentence vectors are kept whole.
GOLDEN_NUMBERS = 64
# Of a translation, the tokens that are taken to stand there already: the first ones of any vocabulary.
GOLDEN_TARGET = (0, 1, 2)


def golden_sample(bundle: Bundle, session: Runnable) -> dict[str, Any]:
    """Return a text, its ids and the numbers they give, which a later :func:`check_golden` expects again.

    ``session`` runs the graphs of the bundle as :func:`~edgebert_exporters.inference.graph_runner.open_graphs` opens
    them.
    """
    manifest = bundle.manifest
    ids = source_tokenizer(bundle).encode([GOLDEN_TEXT], manifest.limits.default_tokens)[0].ids
    row, last = np.array([ids], np.int64), manifest.task == "generate"
    target = np.array([GOLDEN_TARGET[: manifest.limits.max_tokens]])
    values = {
        "input_ids": row,
        "attention_mask": np.ones_like(row),
        "token_type_ids": np.zeros_like(row),
        "decoder_input_ids": target,
        "logits_indices": np.array([row.size - 1 if last else min(1, row.size - 1)], np.int64),
    }
    if manifest.task == "translate":
        values["logits_indices"] = np.array([target.size - 1])
    graph = interface(manifest)
    batch = Batch("the golden sample", {name: values[name] for spec in graph.inputs if (name := spec.name) in values})
    outputs = [output.reshape(-1) for output in session.run(result_outputs(graph.outputs), batch.feeds)]
    if manifest.task != "embed":
        outputs = [output[:GOLDEN_NUMBERS] for output in outputs]
    vector = [round(float(x), 6) for x in np.concatenate(outputs)]
    return {"text": GOLDEN_TEXT, "input_ids": list(ids), "vector": vector}


def check_golden(bundle: Bundle, session: Runnable) -> float:
    """Compare the golden sample of the manifest with what the bundle gives now; return the cosine.

    Raises:
        IntegrityError: if the tokenizer gives other ids, or the graph other numbers.
    """
    stored = bundle.manifest.verification.get("golden")
    if not isinstance(stored, dict):
        raise IntegrityError("the manifest holds no golden sample; export the bundle again")
    now = golden_sample(bundle, session)
    if now["input_ids"] != stored["input_ids"]:
        raise IntegrityError(f"the tokenizer gives {now['input_ids']} for the golden text, not {stored['input_ids']}")
    cosine = float(cosines(np.array([now["vector"]]), np.array([stored["vector"]]))[0])
    if not cosine >= GOLDEN_COSINE:
        raise IntegrityError(
            f"the golden sample gives a vector of cosine {cosine:.4f} to the one of the export (at least "
            f"{GOLDEN_COSINE}); this CPU or onnxruntime computes something else: run 'edgebert doctor'"
        )
    return cosine
