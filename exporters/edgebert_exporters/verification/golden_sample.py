"""The golden sample: a text and its outputs at export, expected again on every other machine."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgebert_exporters.fidelity.comparison import cosines
from edgebert_exporters.fidelity.figures import told_apart
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.inference.sample_texts import source_tokenizer
from edgebert_runtime.errors import IntegrityError
from edgebert_runtime.task_specs import TASKS

# Least cosine between the numbers of a bundle here and where it was made: other CPUs round otherwise.
GOLDEN_COSINE = 0.999
GOLDEN_TEXT = "The café's 2 boats — naïve, red & white — left at 7:45 [SEP] 日本"
# Numbers of each output of a head that are stored; sentence vectors are stored whole.
GOLDEN_NUMBERS = 64


def golden_sample(opened: OpenedBundle) -> dict[str, Any]:
    """Return the golden text, its token ids and the numbers of its result outputs."""
    manifest = opened.manifest
    ids = source_tokenizer(opened.bundle).encode([GOLDEN_TEXT], manifest.limits.default_tokens)[0].ids
    inputs = opened.kind.golden_inputs(manifest, np.array([ids], np.int64))
    feeds = {name: inputs[name] for name in opened.signature.input_names if name in inputs}
    outputs = [output.reshape(-1) for output in opened.run(opened.results, feeds)]
    if not TASKS[manifest.task].embeds:
        outputs = [output[:GOLDEN_NUMBERS] for output in outputs]
    vector = [round(float(x), 6) for x in np.concatenate(outputs)]
    return {"text": GOLDEN_TEXT, "input_ids": list(ids), "vector": vector}


def check_golden(opened: OpenedBundle) -> float:
    """Compare the golden sample of the manifest with the numbers of now; return the cosine.

    Raises:
        IntegrityError: if the tokenizer gives other ids, or the graph other numbers.
    """
    stored = opened.manifest.verification.get("golden")
    if not isinstance(stored, dict):
        raise IntegrityError("the manifest holds no golden sample; export the bundle again")
    now = golden_sample(opened)
    if now["input_ids"] != stored["input_ids"]:
        raise IntegrityError(f"the tokenizer gives {now['input_ids']} for the golden text, not {stored['input_ids']}")
    cosine = float(cosines(np.array([now["vector"]]), np.array([stored["vector"]]))[0])
    if not cosine >= GOLDEN_COSINE:
        text = told_apart(cosine, GOLDEN_COSINE)
        raise IntegrityError(
            f"the golden sample gives a vector of cosine {text} to the one of the export (at least "
            f"{GOLDEN_COSINE}); this CPU or onnxruntime computes something else: run 'edgebert doctor'"
        )
    return cosine
