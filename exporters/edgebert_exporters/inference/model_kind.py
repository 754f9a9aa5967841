"""The interface of the three kinds of models: encoder, decoder, encoder-decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edgebert_exporters.graphs.signatures import Signature
from edgebert_exporters.inference.batch import Batch
from edgebert_exporters.inference.sample_texts import Sample
from edgebert_runtime.bundle.manifest import Manifest
from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.session.session import Runnable

Array = npt.NDArray[Any]
Opener = Callable[[Path], Runnable]


class Opened(Protocol):
    """A bundle with open graphs; see :class:`~edgebert_exporters.inference.opened_bundle.OpenedBundle`."""

    @property
    def bundle(self) -> Bundle:
        """Return the checked bundle."""

    @property
    def session(self) -> Any:
        """Return the graphs as one function from a batch to outputs."""


class ModelKind(Protocol):
    """Everything in which the kinds differ while their graphs run.

    The batches and checks of verification are in :mod:`edgebert_exporters.verification.checks`, by kind as well.
    """

    # Whether the tokens of the samples have probabilities: perplexity and bits per byte.
    scores_samples: bool

    def signature(self, manifest: Manifest) -> Signature:
        """Return the inputs and outputs of :meth:`open`."""

    def open(self, folder: Path, manifest: Manifest, opener: Opener, with_swapped_beams: bool) -> Runnable:
        """Open the graphs in ``folder`` as one function from a batch to outputs.

        ``with_swapped_beams`` reorders the KV cache at every step, if there is one to reorder.
        """

    def samples(self, opened: Opened, rows: Sequence[Sequence[int]]) -> list[Sample]:
        """Return samples for the task of a bundle, made of the token ids of texts."""

    def random_sample(self, manifest: Manifest, max_tokens: int, rng: np.random.Generator) -> Sample:
        """Return a sample of at most ``max_tokens`` random tokens."""

    def golden_inputs(self, manifest: Manifest, ids: Array) -> Mapping[str, Array]:
        """Return the inputs of the golden sample with the token ids (1, seq), by name."""

    def workloads(self, manifest: Manifest) -> list[Batch]:
        """Return the batches to be timed, with their shapes as names."""

    def prepared(self, session: Any, batch: Batch) -> Callable[[], object]:
        """Return a function that runs a batch and does nothing else."""

    def token_fidelity(self, before: Opened, after: Opened, samples: Sequence[Sample]) -> float | None:
        """Return the share of greedily generated tokens that stay the same; None without generation."""
