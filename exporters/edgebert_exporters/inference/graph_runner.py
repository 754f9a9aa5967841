"""Open the graphs of a bundle, of whatever kind the model is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgebert_exporters.graphs.signatures import Signature
from edgebert_exporters.inference.decoder import Decoder
from edgebert_exporters.inference.encoder import Encoder
from edgebert_exporters.inference.encoder_decoder import EncoderDecoder
from edgebert_exporters.inference.model_kind import ModelKind, Opener
from edgebert_runtime.bundle.manifest import Manifest, TensorSpec
from edgebert_runtime.decoders.causal_signature import PRESENT, TOP
from edgebert_runtime.session.session import Runnable, open_session
from edgebert_runtime.task_specs import TASKS, Kind

KINDS: Mapping[Kind, ModelKind] = {"encoder": Encoder(), "decoder": Decoder(), "encoder-decoder": EncoderDecoder()}


def kind_of(manifest: Manifest) -> ModelKind:
    """Return the kind of the model in a bundle."""
    return KINDS[TASKS[manifest.task].kind]


def bundle_signature(manifest: Manifest) -> Signature:
    """Return the inputs and outputs of what :func:`open_graphs` opens."""
    return kind_of(manifest).signature(manifest)


def open_graphs(
    folder: Path, manifest: Manifest, opener: Opener = open_session, *, with_swapped_beams: bool = False
) -> Runnable:
    """Open the graphs of a bundle.

    A decoder runs on columns (:mod:`edgebert_exporters.inference.decoder_adapter`), an encoder-decoder on given
    targets (:mod:`edgebert_exporters.inference.teacher_forcing`).
    """
    return kind_of(manifest).open(folder, manifest, opener, with_swapped_beams)


def result_outputs(outputs: Sequence[TensorSpec]) -> list[str]:
    """Return the names of the outputs without KV cache and top-k."""
    return [spec.name for spec in outputs if not spec.name.startswith(f"{PRESENT}.") and spec.name not in TOP]
