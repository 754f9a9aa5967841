"""Score texts: the log-probability of each token after the tokens before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgebert_runtime.decoders.causal_kv_cache import KVCache
from edgebert_runtime.decoders.kv_cache import Floats, Ints
from edgebert_runtime.generation.step_model import Doubles, StepModel
from edgebert_runtime.generation.top_k import log_norms
from edgebert_runtime.inputs.batching import pad, plan_batches

Progress = Callable[[int, "int | None"], None]


@dataclass(frozen=True)
class Scored:
    """The score of a text.

    ``tokens`` are the scored ones, ``token_logprobs`` the natural logarithms of their probabilities, and ``score``
    their sum. ``perplexity`` is ``exp(-score / len(tokens))``, and 1 without tokens.
    """

    tokens: tuple[int, ...]
    token_logprobs: tuple[float, ...]
    score: float
    perplexity: float

    @classmethod
    def of(cls, tokens: Sequence[int], logprobs: Sequence[float]) -> Scored:
        """Add up the log-probabilities of tokens."""
        total = math.fsum(logprobs)
        return cls(tuple(tokens), tuple(logprobs), total, math.exp(-total / max(1, len(tokens))))


def score_rows(
    rows: Sequence[list[int]],
    make_cache: Callable[[int, int], KVCache],
    positions: int,
    budget: int,
    progress: Progress | None = None,
) -> list[Scored]:
    """Score all tokens of ``rows`` but the first of each, ``budget`` logits at a time.

    ``make_cache`` takes the number of rows and of tokens; ``positions`` is the model's limit of tokens.
    """
    logprobs = [np.zeros(max(0, len(row) - 1), np.float64) for row in rows]
    short = [i for i, row in enumerate(rows) if 1 < len(row) <= min(positions, budget)]
    long = [i for i, row in enumerate(rows) if len(row) > min(positions, budget)]
    done = len(rows) - len(short) - len(long)
    for batch in plan_batches([len(rows[i]) for i in short], budget):
        indices = [short[i] for i in batch]
        for i, scores in zip(indices, score_batch([rows[i] for i in indices], make_cache), strict=True):
            logprobs[i][:] = scores
        done += len(indices)
        if progress is not None:
            progress(done, len(rows))
    for i in long:
        logprobs[i][:] = score_long(rows[i], make_cache, positions, budget)
        done += 1
        if progress is not None:
            progress(done, len(rows))
    return [Scored.of(row[1:], scores.tolist()) for row, scores in zip(rows, logprobs, strict=True)]


def score_batch(rows: Sequence[list[int]], make_cache: Callable[[int, int], KVCache]) -> list[Doubles]:
    """Score rows in one run of the graph."""
    ids, mask = pad(rows)
    counts = mask.sum(1)
    indices = np.flatnonzero(np.arange(ids.shape[1]) < counts[:, None] - 1)
    (logits,) = make_cache(*ids.shape).run(ids, counts, indices)
    logprobs = token_logprobs(logits, np.concatenate([row[1:] for row in rows]))
    return np.split(logprobs, np.cumsum(counts - 1)[:-1])


def score_long(row: list[int], make_cache: Callable[[int, int], KVCache], positions: int, budget: int) -> Doubles:
    """Score a row in chunks, and in overlapping windows if it is longer than the model."""
    parts: list[Doubles] = []
    begin, scored = 0, 0
    while scored < len(row) - 1:
        end = min(begin + positions, len(row))
        cache = make_cache(1, end - begin)
        for start in range(begin, end, budget):
            piece = np.array([row[start : min(start + budget, end)]])
            last = min(start + piece.shape[1], len(row) - 1)  # nothing follows the last token
            first = max(start, scored)
            indices = np.arange(first, last) if last > first else np.array([start])  # at least one
            (logits,) = cache.run(piece, np.array([piece.shape[1]]), indices - start)
            if last > first:
                parts.append(token_logprobs(logits, np.array(row[first + 1 : last + 1])))
                scored = last
        begin = end - positions // 2
    return np.concatenate(parts)


def score_targets(model: StepModel, logits: Floats, targets: Sequence[Sequence[int]]) -> list[list[float]]:
    """Score all tokens of ``targets``, one token of each a step; ``logits`` (targets, vocab) precede the first.

    Complete targets are not computed further.
    """
    logprobs: list[list[float]] = [[] for _ in targets]
    rows = list(range(len(targets)))
    while True:
        tokens = np.array([targets[row][len(logprobs[row])] for row in rows], np.int64)
        for row, logprob in zip(rows, token_logprobs(logits, tokens).tolist(), strict=True):
            logprobs[row].append(logprob)
        parents = np.flatnonzero([len(logprobs[row]) < len(targets[row]) for row in rows])
        if not parents.size:
            return logprobs
        rows = [rows[parent] for parent in parents]
        logits = model.step(parents, tokens[parents])


def token_logprobs(logits: Floats, tokens: Ints) -> Doubles:
    """Return the log-probability (n,) of each token under logits (n, vocab)."""
    result: Doubles = logits[np.arange(len(tokens)), tokens] - log_norms(logits)
    return result
