"""Models without weights: their logits follow from the tokens of a row, whatever else is in the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgebert_runtime.generation.step_model import Floats, Ids, TopK

Logits = Callable[[tuple[int, ...]], Floats]


class Fake:
    """Rows whose logits are what ``logits`` says about their tokens."""

    def __init__(self, logits: Logits, prompts: Sequence[Sequence[int]]) -> None:
        self.make = logits
        self.rows = [tuple(prompt) for prompt in prompts]
        self.calls: list[int] = []
        self.first = self.compute()

    def step(self, parents: Ids, tokens: Ids) -> Floats:
        """Continue rows."""
        assert parents.dtype == tokens.dtype == np.int64
        assert parents.shape == tokens.shape == (len(parents),)
        self.rows = [(*self.rows[parent], int(token)) for parent, token in zip(parents, tokens, strict=True)]
        self.calls.append(len(parents))
        return self.compute()

    def compute(self) -> Floats:
        """Return the logits (rows, vocab), in an array that cannot be written to."""
        logits = np.stack([self.make(row) for row in self.rows]).astype(np.float32)
        logits.flags.writeable = False
        return logits


class FakeTop(Fake):
    """The same model, where it chooses the best tokens by itself."""

    def step_top_k(self, parents: Ids, tokens: Ids, k: int) -> TopK:
        """Continue rows."""
        logits = self.step(parents, tokens)
        logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        order = np.argsort(-logits, axis=1, kind="stable")[:, :k]
        top = TopK(order, np.take_along_axis(logprobs, order, axis=1))
        for array in top:
            array.flags.writeable = False
        return top


def noise(vocab: int, seed: int = 0, scale: float = 2.0) -> Logits:
    """Return random logits, the same ones for the same tokens."""

    def logits(tokens: tuple[int, ...]) -> Floats:
        row: Floats = np.random.default_rng([seed, *tokens]).normal(0, scale, vocab).astype(np.float32)
        return row

    return logits


def table(rows: dict[tuple[int, ...], dict[int, float]], vocab: int) -> Logits:
    """Return logits from the probabilities of some tokens after some; the others share what is left."""

    def logits(tokens: tuple[int, ...]) -> Floats:
        probs = rows.get(tokens, {})
        remaining = (1 - sum(probs.values())) / max(1, vocab - len(probs))
        chances = np.full(vocab, max(remaining, 1e-9))
        for token, chance in probs.items():
            chances[token] = chance
        row: Floats = np.log(chances).astype(np.float32)
        return row

    return logits
