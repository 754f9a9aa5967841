"""The verification of each kind of model: its batches, and its check from end to end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgebert_exporters.inference.batch import Batch, Reference, as_function
from edgebert_exporters.inference.encoder_decoder import target_vocab_size
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.progress import Progress
from edgebert_exporters.verification.beam_search_parity import check_translations
from edgebert_exporters.verification.decoder_grid import decoder_grid
from edgebert_exporters.verification.encoder_grid import encoder_grid
from edgebert_exporters.verification.greedy_parity import check_greedy
from edgebert_exporters.verification.parity import TOLERANCE, check_parity, describe
from edgebert_exporters.verification.seq2seq_grid import target_grid
from edgebert_runtime.bundle.manifest import Manifest
from edgebert_runtime.session.session import import_onnxruntime
from edgebert_runtime.task_specs import TASKS, Kind

Figures = dict[str, Any]


@dataclass(frozen=True)
class Checks:
    """The ``batches`` on which a kind is verified, and ``end_to_end`` checks by the names of their figures."""

    batches: Callable[[Manifest], Iterable[Batch]]
    end_to_end: Mapping[str, Callable[[OpenedBundle, Reference], Figures]]


def encoder_batches(manifest: Manifest) -> Iterable[Batch]:
    """Return the batches of an encoder."""
    limits, inputs = manifest.limits, [spec.name for spec in manifest.graphs["model"].inputs]
    return encoder_grid(inputs, limits.vocab_size, limits.max_tokens, manifest.config.get("type_vocab_size", 1))


def decoder_batches(manifest: Manifest) -> Iterable[Batch]:
    """Return the batches of a decoder."""
    limits = manifest.limits
    return decoder_grid(manifest.graphs["model"].inputs, limits.vocab_size, limits.max_tokens, manifest.target)


def seq2seq_batches(manifest: Manifest) -> Iterable[Batch]:
    """Return the batches of an encoder-decoder."""
    return target_grid(manifest.limits, target_vocab_size(manifest))


def greedy(opened: OpenedBundle, reference: Reference) -> Figures:
    """Compare the greedy decoding of a decoder with that of its reference."""
    return check_greedy(as_function(opened), reference, opened.manifest, TOLERANCE)


def translations(opened: OpenedBundle, reference: Reference) -> Figures:
    """Compare the greedy and beam search of an encoder-decoder with those of its reference."""
    return check_translations(opened.session, reference, opened.manifest)


CHECKS: Mapping[Kind, Checks] = {
    "encoder": Checks(encoder_batches, {}),
    "decoder": Checks(decoder_batches, {"greedy": greedy}),
    "encoder-decoder": Checks(seq2seq_batches, {"translations": translations}),
}


def checks_of(manifest: Manifest) -> Checks:
    """Return the verification of the kind of a model."""
    return CHECKS[TASKS[manifest.task].kind]


def batches_of(manifest: Manifest) -> list[Batch]:
    """Return the batches on which the model of a manifest is verified."""
    return list(checks_of(manifest).batches(manifest))


def check_reference(opened: OpenedBundle, reference: Reference, progress: Progress) -> Figures:
    """Compare a bundle with its reference: on the whole grid, and from end to end.

    Portable graphs are compared without graph optimizations as well.

    Raises:
        ParityError: if an error is larger than :data:`TOLERANCE`, or other text is generated.
    """
    manifest, outputs = opened.manifest, opened.signature.outputs
    batches = batches_of(manifest)
    figures = describe(check_parity(opened, reference, outputs, batches, manifest.target, progress))
    if manifest.target == "portable":
        plain = dataclasses.replace(opened, opener=unoptimized)
        figures["unoptimized"] = describe(check_parity(plain, reference, outputs, batches, "unoptimized", progress))
    for name, check in checks_of(manifest).end_to_end.items():
        figures[name] = check(opened, reference)
    return figures


def unoptimized(graph: Path) -> Any:
    """Open a graph node by node, without graph optimizations, as other runtimes may run it."""
    ort = import_onnxruntime()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
