"""Fidelity: how close a quantized model is to its float32 form on the same texts.

===========================  ===================================  ==============================
task                         compared                             beside the cosine
===========================  ===================================  ==============================
embed                        the vector of each text              nearest_neighbor_changes
classify, next-sentence      the logits of each text              top1_agreement, flip_rate, kl_mean
tag                          the logits of each token             top1_agreement, flip_rate, kl_mean
answer                       start logits over the tokens of each top1_agreement, flip_rate, kl_mean
                             text, and end logits likewise
fill-mask                    the logits at each mask              top1_agreement, flip_rate, kl_mean
generate                     the next-token logits of each token  top1_agreement, flip_rate, kl_mean,
                                                                  perplexity, bits_per_byte, token_agreement
translate                    the same, of translations by the     top1_agreement, flip_rate, kl_mean,
                             float32 model                        token_agreement
rerank, multiple-choice,     the number of each text              correlation
classify with one number
===========================  ===================================  ==============================

``cosine_mean`` is the headline metric; where there is a correlation, that is. Means over logits weigh each row by its
norms: logits that are all close to zero may turn around without any harm. ``cosines`` is the histogram of the mean
cosines of single texts, and ``cosine_min`` its lower end.

``top1_agreement`` is the share of rows with the same best label or token, ``flip_rate`` that of texts with another one
anywhere. ``perplexity_before`` and ``perplexity_after`` are those of the texts, and so is ``bits_per_byte``, where the
bytes of tokens are known. ``token_agreement`` is the share of greedily generated tokens that are the same, up to the
first difference of each text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from edgebert_exporters.fidelity.histogram import histogram
from edgebert_exporters.fidelity.token_bytes import Counts
from edgebert_exporters.inference.batch import Batch, Floats, row_outputs
from edgebert_exporters.inference.graph_runner import bundle_signature, result_outputs
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.inference.sample_texts import Sample, to_batches
from edgebert_runtime.bundle.manifest import Manifest, TensorSpec
from edgebert_runtime.task_specs import TASKS

Doubles = npt.NDArray[np.float64]
# Of one text: the token ids that have a probability, and their -log p before and after.
TextLosses = tuple[Sequence[int], Doubles, Doubles]

# Texts that also run alone, for the batch invariance of a quantized model.
ALONE = 16
# Rows of logits that are compared at once, in float64: a vocabulary is large.
ROWS_AT_ONCE = 128


def cosines(vectors: npt.NDArray[Any], references: npt.NDArray[Any]) -> Doubles:
    """Return the cosine (n,) of each row of two arrays (n, dim).

    One or two numbers have hardly any direction: two logits near zero turn around at the slightest touch. There a
    difference d, relative to the norm of the reference or to 1, counts as 1 - d²/2, the cosine of unit vectors that
    differ by d.
    """
    vectors, references = vectors.astype(np.float64), references.astype(np.float64)
    if vectors.shape[1] <= 2:
        lengths = np.maximum(np.linalg.norm(references, axis=1), 1)
        distances: Doubles = np.linalg.norm(vectors - references, axis=1) / lengths
        return 1 - distances**2 / 2
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(references, axis=1)
    result: Doubles = (vectors * references).sum(1) / np.maximum(norms, 1e-12)
    return result


def correlation(first: Doubles, second: Doubles) -> float:
    """Return the Pearson correlation of two arrays (n,).

    Of a constant one, it is the mean cosine of the numbers.
    """
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return float(cosines(first[:, None], second[:, None]).mean())
    return float(np.corrcoef(first, second)[0, 1])


def divergences(old: Floats, new: Floats, multi_label: bool) -> Doubles:
    """Return the Kullback-Leibler divergence (n,) of new from old logits (n, labels).

    With ``multi_label`` each label is a yes or no of its own, and the divergences of the labels are added.
    """
    sides = []
    for logits in (old.astype(np.float64), new.astype(np.float64)):
        scores = np.stack([logits, np.zeros_like(logits)], -1) if multi_label else logits[:, None]
        shifted = scores - scores.max(-1, keepdims=True)
        sides.append(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))
    before, after = sides
    result: Doubles = (np.exp(before) * (before - after)).sum((1, 2))
    return result


def nearest(vectors: Floats) -> Any:
    """Return the index (n,) of the nearest neighbor of each vector (n, dim) by cosine."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    similarity = unit @ unit.T
    np.fill_diagonal(similarity, -np.inf)
    return similarity.argmax(1)


def negative_log_likelihood(logits: Floats, ids: Sequence[int]) -> Doubles:
    """Return -log p (n - 1,) of the tokens ``ids[1:]`` by logits (n, vocab)."""
    losses = np.zeros(len(ids) - 1)
    for start in range(0, len(losses), ROWS_AT_ONCE):
        rows = logits[start : start + ROWS_AT_ONCE][: len(losses) - start].astype(np.float64)
        rows -= rows.max(1, keepdims=True)
        chosen = rows[np.arange(len(rows)), list(ids[start + 1 : start + 1 + len(rows)])]
        losses[start : start + len(rows)] = np.log(np.exp(rows).sum(1)) - chosen
    return losses


def vectors_of(outputs: Sequence[TensorSpec], batch: Batch, results: Sequence[Floats], row: int) -> Floats:
    """Return the result vectors (n, dim) of one row of a batch."""
    results = results[: len(result_outputs(outputs))]
    parts = [array[row_outputs(spec.shape, batch, row)] for spec, array in zip(outputs, results, strict=False)]
    return np.stack(parts) if parts[0].ndim == 1 else np.concatenate(parts)


@dataclass
class Fidelity:
    """Accumulates the fidelity of one model to another, text by text.

    ``embeds`` compares nearest neighbors, ``single`` numbers by their correlation; all others compare labels or
    tokens, each a yes or no of its own with ``multi_label``. Of vectors the first ``dim`` numbers count, None for all.
    """

    embeds: bool
    single: bool
    multi_label: bool
    dim: int | None = None
    texts: int = 0
    flipped: int = 0
    means: list[float] = field(default_factory=list)
    cosines: list[Doubles] = field(default_factory=list)
    weights: list[Doubles] = field(default_factory=list)
    same_best: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    divergences: list[Doubles] = field(default_factory=list)
    vectors: list[tuple[Floats, Floats]] = field(default_factory=list)

    @classmethod
    def of(cls, manifest: Manifest) -> Fidelity:
        """Return an empty one for the task of a manifest."""
        single = bundle_signature(manifest).outputs[0].shape[-1] == 1
        embeds, settings = TASKS[manifest.task].embeds, manifest.settings
        return cls(embeds, single, settings.get("problem_type") == "multi_label", settings.get("dim"))

    def add(self, old: Floats, new: Floats) -> None:
        """Compare the vectors (n, dim) of one text before and after."""
        old, new = old[:, : self.dim], new[:, : self.dim]
        self.texts += 1
        first = len(self.cosines)
        for start in range(0, len(old), ROWS_AT_ONCE):
            self.add_rows(old[start : start + ROWS_AT_ONCE], new[start : start + ROWS_AT_ONCE])
        self.means.append(weighted(self.cosines[first:], self.weights[first:]))
        self.flipped += not all(same.all() for same in self.same_best[first:])

    def add_rows(self, old: Floats, new: Floats) -> None:
        """Compare some rows of a text."""
        self.cosines.append(cosines(new, old))
        if self.embeds or self.single:
            self.vectors.append((old, new))
            self.weights.append(np.ones(len(old)))
        else:
            self.weights.append((np.linalg.norm(old, axis=1) * np.linalg.norm(new, axis=1)).astype(np.float64))
            self.same_best.append(old.argmax(1) == new.argmax(1))
            self.divergences.append(divergences(old, new, self.multi_label))

    def figures(self) -> dict[str, Any]:
        """Return the figures for the report."""
        figures: dict[str, Any] = {
            "texts": self.texts,
            "cosine_mean": weighted(self.cosines, self.weights),
            "cosine_min": min(self.means),
            "cosines": histogram(self.means),
        }
        if not self.vectors:
            return figures | {
                "top1_agreement": float(np.concatenate(self.same_best).mean()),
                "flip_rate": self.flipped / self.texts,
                "kl_mean": float(np.concatenate(self.divergences).mean()),
            }
        old, new = (np.concatenate(side) for side in zip(*self.vectors, strict=True))
        if self.single:
            return figures | {"correlation": correlation(old[:, 0].astype(np.float64), new[:, 0].astype(np.float64))}
        return figures | {"nearest_neighbor_changes": float((nearest(old) != nearest(new)).mean())}


def weighted(cosines: Sequence[Doubles], weights: Sequence[Doubles]) -> float:
    """Return the weighted mean of cosines."""
    return float(np.average(np.concatenate(cosines), weights=np.maximum(np.concatenate(weights), 1e-12)))


def headline_metric(figures: dict[str, Any]) -> tuple[str, float]:
    """Return name and value of the figure that ``min_fidelity`` limits."""
    if "correlation" in figures:
        return "correlation", figures["correlation"]
    return "mean cosine", figures["cosine_mean"]


def compare(
    before: OpenedBundle, after: OpenedBundle, samples: Sequence[Sample], sizes: Counts | None = None
) -> tuple[dict[str, Any], float]:
    """Measure the fidelity of ``after`` to ``before`` on samples.

    ``sizes`` (vocab,) are the bytes of each token, where they are known.

    Returns:
        The figures for the report, and the least cosine between some samples alone and in their batch.
    """
    kind, outputs, fidelity = after.kind, after.signature.outputs, Fidelity.of(after.manifest)
    inputs, alone, losses = after.signature.input_names, list[Doubles](), list[TextLosses]()
    every = max(1, len(samples) // ALONE)
    for (indices, batch), (_, same) in zip(
        to_batches(samples, inputs), to_batches(samples, before.signature.input_names), strict=True
    ):
        sides = before.run(before.results, same.feeds), after.run(after.results, batch.feeds)
        for row, index in enumerate(indices):
            old, new = (vectors_of(outputs, batch, side, row) for side in sides)
            fidelity.add(old, new)
            if kind.scores_samples:
                ids = samples[index].ids
                losses.append((ids[1:], negative_log_likelihood(old, ids), negative_log_likelihood(new, ids)))
            if index % every == 0:
                ((_, single),) = to_batches([samples[index]], inputs)
                again = vectors_of(outputs, single, after.run(after.results, single.feeds), 0)
                alone.append(cosines(again, new))
    figures = fidelity.figures() | (likelihood(losses, sizes) if losses else {})
    if (share := kind.token_fidelity(before, after, samples)) is not None:
        figures["token_agreement"] = share
    return figures, float(np.concatenate(alone).min())


def likelihood(losses: Sequence[TextLosses], sizes: Counts | None) -> dict[str, float]:
    """Return perplexity, and bits per byte where ``sizes`` of tokens are known, before and after."""
    ids, *sides = (np.concatenate(part) for part in zip(*losses, strict=True))
    figures = {}
    for name, side in zip(("before", "after"), sides, strict=True):
        figures[f"perplexity_{name}"] = float(np.exp(side.mean()))
        if sizes is not None and (count := sizes[ids.astype(np.int64)].sum()):
            figures[f"bits_per_byte_{name}"] = float(side.sum() / np.log(2) / count)
    return figures
