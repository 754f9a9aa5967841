"""Say how alike two models are, one float32 and one quantized, from what both give for the same texts.

===========================  ===================================  ==============================
task                         compared                             beside the cosine
===========================  ===================================  ==============================
embed                        the vector of each text              nearest_flips
classify, next-sentence      the logits of each text              top1_agreement, flip_rate, kl_mean
tag                          the logits of each token             top1_agreement, flip_rate, kl_mean
answer                       start logits over the tokens of each top1_agreement, flip_rate, kl_mean
                             text, and end logits likewise
fill-mask                    the logits at each mask              top1_agreement, flip_rate, kl_mean
generate                     the logits of what follows each      top1_agreement, flip_rate, kl_mean,
                             token                                perplexity, bits_per_byte, token_agreement
translate                    the same, of translations by the     top1_agreement, flip_rate, kl_mean,
                             float32 model                        token_agreement
rerank, multiple-choice,     the number of each text              correlation
classify with one number
===========================  ===================================  ==============================

``cosine_mean`` decides whether a quantized model is good enough, where there is a correlation that does. A mean over
logits counts each row by its size: logits that are all close to zero may turn around without any harm. ``cosines``
says how the mean cosines of single texts are distributed.

``top1_agreement`` is the share of rows with the same best label or token, ``flip_rate`` that of texts with another one
anywhere. ``perplexity_before`` and ``perplexity_after`` are those of the texts, and so is ``bits_per_byte``, where the
bytes of tokens are known; ``token_agreement`` is the share of the tokens with which both go on greedily from the
beginnings of some texts, up to the first one that differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from edgebert_exporters.fidelity.histogram import Distribution
from edgebert_exporters.fidelity.token_bytes import Counts
from edgebert_exporters.inference.batch import Batch, Floats, row_outputs
from edgebert_exporters.inference.graph_runner import ForcedTargets, as_function, interface, result_outputs
from edgebert_exporters.inference.greedy import token_agreement
from edgebert_exporters.inference.sample_texts import Sample, to_batches
from edgebert_exporters.inference.translation import translated
from edgebert_runtime.bundle.manifest import Manifest, TensorSpec
from edgebert_runtime.session.session import Runnable

Doubles = npt.NDArray[np.float64]

# Texts that are also run alone, to see how much a quantized model minds the rest of a batch.
ALONE = 16
# Of a text that a model is to go on with: how many, how long a beginning, and how many tokens.
PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 8, 12, 16
# Rows of logits that are compared at once, in float64: a vocabulary is large.
ROWS_AT_ONCE = 128


def cosines(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> Doubles:
    """Return the cosine (n,) between each row of two arrays (n, dim).

    One or two numbers have hardly any direction, two logits near zero turn around at the slightest touch: a
    difference d, relative to their size or to 1, counts as 1 - d²/2, the cosine of vectors that differ by d.
    """
    one, other = one.astype(np.float64), other.astype(np.float64)
    if one.shape[1] <= 2:
        off: Doubles = np.linalg.norm(one - other, axis=1) / np.maximum(np.linalg.norm(other, axis=1), 1)
        return 1 - off**2 / 2
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    result: Doubles = (one * other).sum(1) / np.maximum(lengths, 1e-12)
    return result


def correlation(one: Doubles, other: Doubles) -> float:
    """Return the Pearson correlation of two arrays (n,); of a constant one, how close the numbers are instead."""
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return float(cosines(one[:, None], other[:, None]).mean())
    return float(np.corrcoef(one, other)[0, 1])


def divergences(old: Floats, new: Floats, multi_label: bool) -> Doubles:
    """Return the Kullback-Leibler divergence (n,) of the probabilities of logits (n, labels) from older ones.

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
    """Return, for each vector (n, dim), the number of the other vector with the largest cosine."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    similarity = unit @ unit.T
    np.fill_diagonal(similarity, -np.inf)
    return similarity.argmax(1)


def surprise(logits: Floats, ids: Sequence[int]) -> Doubles:
    """Return -log p of each token but the first, of logits (n, vocab) of what follows each of the tokens ``ids``."""
    found = np.zeros(len(ids) - 1)
    for start in range(0, len(found), ROWS_AT_ONCE):
        rows = logits[start : start + ROWS_AT_ONCE][: len(found) - start].astype(np.float64)
        rows -= rows.max(1, keepdims=True)
        chosen = rows[np.arange(len(rows)), list(ids[start + 1 : start + 1 + len(rows)])]
        found[start : start + len(rows)] = np.log(np.exp(rows).sum(1)) - chosen
    return found


def vectors_of(outputs: Sequence[TensorSpec], batch: Batch, results: Sequence[Floats], row: int) -> Floats:
    """Return what one row of a batch gives, as the vectors (n, dim) that the table of this module compares."""
    results = results[: len(result_outputs(outputs))]
    parts = [array[row_outputs(spec.shape, batch, row)] for spec, array in zip(outputs, results, strict=False)]
    return np.stack(parts) if parts[0].ndim == 1 else np.concatenate(parts)


@dataclass
class Agreement:
    """What is known so far about the agreement of two models; only a few numbers are kept for each text."""

    task: str
    single: bool
    multi_label: bool
    texts: int = 0
    flipped: int = 0
    means: Distribution = field(default_factory=Distribution)
    cosines: list[Doubles] = field(default_factory=list)
    weights: list[Doubles] = field(default_factory=list)
    same: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    divergences: list[Doubles] = field(default_factory=list)
    kept: list[tuple[Floats, Floats]] = field(default_factory=list)

    @classmethod
    def of(cls, manifest: Manifest) -> Agreement:
        """Return an empty one for the task of a manifest."""
        single = interface(manifest).outputs[0].shape[-1] == 1
        return cls(manifest.task, single, manifest.settings.get("problem") == "multi_label")

    def add(self, old: Floats, new: Floats) -> None:
        """Take in what one text gave before and after, both (n, dim)."""
        self.texts += 1
        before = len(self.cosines)
        for start in range(0, len(old), ROWS_AT_ONCE):
            self.add_rows(old[start : start + ROWS_AT_ONCE], new[start : start + ROWS_AT_ONCE])
        self.means.add(weighted(self.cosines[before:], self.weights[before:]))
        self.flipped += not all(same.all() for same in self.same[before:])

    def add_rows(self, old: Floats, new: Floats) -> None:
        """Take in some rows of what a text gave."""
        self.cosines.append(cosines(new, old))
        if self.task == "embed" or self.single:
            self.kept.append((old, new))
            self.weights.append(np.ones(len(old)))
        else:
            self.weights.append((np.linalg.norm(old, axis=1) * np.linalg.norm(new, axis=1)).astype(np.float64))
            self.same.append(old.argmax(1) == new.argmax(1))
            self.divergences.append(divergences(old, new, self.multi_label))

    def figures(self) -> dict[str, Any]:
        """Return the figures for the report."""
        figures: dict[str, Any] = {
            "texts": self.texts,
            "cosine_mean": weighted(self.cosines, self.weights),
            "cosine_min": float(np.concatenate(self.cosines).min()),
            "cosines": self.means.counted(),
        }
        if not self.kept:
            agreed, divergence = np.concatenate(self.same).mean(), np.concatenate(self.divergences).mean()
            flipped = self.flipped / self.texts
            return figures | {"top1_agreement": float(agreed), "flip_rate": flipped, "kl_mean": float(divergence)}
        old, new = (np.concatenate(side) for side in zip(*self.kept, strict=True))
        if self.single:
            return figures | {"correlation": correlation(old[:, 0].astype(np.float64), new[:, 0].astype(np.float64))}
        return figures | {"nearest_flips": float((nearest(old) != nearest(new)).mean())}


def weighted(cosines: Sequence[Doubles], weights: Sequence[Doubles]) -> float:
    """Return the mean of cosines by their weights."""
    return float(np.average(np.concatenate(cosines), weights=np.maximum(np.concatenate(weights), 1e-12)))


def decisive(figures: dict[str, Any]) -> tuple[str, float]:
    """Return name and value of the figure that has to reach the least agreement."""
    if "correlation" in figures:
        return "correlation", figures["correlation"]
    return "mean cosine", figures["cosine_mean"]


def fidelity(
    before: Runnable, after: Runnable, manifest: Manifest, samples: Sequence[Sample], sizes: Counts | None = None
) -> dict[str, Any]:
    """Compare two graphs on samples, and some samples alone with the same ones in their batch.

    ``sizes`` (vocab,) are the bytes of each token of a model that generates, where they are known.
    """
    graph, agreement, alone = interface(manifest), Agreement.of(manifest), []
    inputs, outputs = [spec.name for spec in graph.inputs], result_outputs(graph.outputs)
    generates, surprises = manifest.task == "generate", list[list[Any]]()
    every = max(1, len(samples) // ALONE)
    for indices, batch in to_batches(samples, inputs):
        old, new = before.run(outputs, batch.feeds), after.run(outputs, batch.feeds)
        for row, index in enumerate(indices):
            was, found = (vectors_of(graph.outputs, batch, side, row) for side in (old, new))
            agreement.add(was, found)
            if generates:
                ids = samples[index].ids
                surprises.append([ids[1:], *(surprise(logits, ids) for logits in (was, found))])
            if index % every == 0:
                ((_, single),) = to_batches([samples[index]], inputs)
                again = vectors_of(graph.outputs, single, after.run(outputs, single.feeds), 0)
                alone.append(cosines(again, found))
    figures = agreement.figures() | {"alone_in_batch_cosine_min": float(np.concatenate(alone).min())}
    if isinstance(after, ForcedTargets):
        return figures | {"token_agreement": translation(after, manifest, samples)}
    if not generates:
        return figures
    agreed = token_agreement(as_function(before), as_function(after), *beginnings(manifest, samples))
    return figures | likelihood(surprises, sizes) | {"token_agreement": agreed}


def translation(after: ForcedTargets, manifest: Manifest, samples: Sequence[Sample]) -> float:
    """Return the share of the tokens of translations, of which samples have those before, that are the same after.

    Those of a translation count up to the first that differs.
    """
    chosen, same = samples[:PROMPTS], []
    most = max(len(sample.target) for sample in chosen)
    for sample, found in zip(chosen, translated(after, manifest, [s.ids for s in chosen], most), strict=True):
        wanted = sample.target
        alike = [a == b for a, b in zip(wanted, found, strict=False)] + [False] * abs(len(wanted) - len(found))
        same.append(np.cumprod(alike[1:] or [True]))
    return float(np.concatenate(same).mean())


def likelihood(surprises: Sequence[Sequence[Any]], sizes: Counts | None) -> dict[str, float]:
    """Return what texts cost both sides; ``surprises`` has the ids that count of each, and -log p by each side."""
    ids, *sides = (np.concatenate(part) for part in zip(*surprises, strict=True))
    figures = {}
    for name, side in zip(("before", "after"), sides, strict=True):
        figures[f"perplexity_{name}"] = float(np.exp(side.mean()))
        if sizes is not None and (count := sizes[ids.astype(np.int64)].sum()):
            figures[f"bits_per_byte_{name}"] = float(side.sum() / np.log(2) / count)
    return figures


def beginnings(manifest: Manifest, samples: Sequence[Sample]) -> tuple[list[list[int]], tuple[TensorSpec, ...], int]:
    """Return beginnings of samples, the inputs of the graph, and the tokens by which they are to be continued."""
    most = manifest.limits.max_tokens
    steps = min(NEW_TOKENS, max(1, most // 2))
    prompts = [list(sample.ids[: min(PROMPT_TOKENS, most - steps)]) for sample in samples[:PROMPTS]]
    return prompts, interface(manifest).inputs, steps
