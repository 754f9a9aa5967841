"""What sampling draws: the right distribution, and the same again with the same seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgebert_runtime.generation import Options, search
from edgebert_runtime.generation.sampler import Sampler, warp
from tests.runtime.generation.fake_models import Fake, noise

CHANCES = np.array([0.05, 0.4, 0.0, 0.25, 0.2, 0.1])
DRAWS = 6000


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, CHANCES),
        ({"temperature": 0.5}, CHANCES**2 / (CHANCES**2).sum()),
        ({"top_k": 3}, np.array([0, 0.4, 0, 0.25, 0.2, 0]) / 0.85),
        ({"top_p": 0.6}, np.array([0, 0.4, 0, 0.25, 0, 0]) / 0.65),
        ({"min_p": 0.3}, np.array([0, 0.4, 0, 0.25, 0.2, 0]) / 0.85),
        ({"top_k": 4, "top_p": 0.9}, np.array([0, 0.4, 0, 0.25, 0.2, 0.1]) / 0.95),
        ({"temperature": 1e-5}, np.array([0, 1, 0, 0, 0, 0])),
    ],
)
def test_draws_follow_the_distribution(options: dict[str, Any], expected: Any) -> None:
    with np.errstate(divide="ignore"):
        logits = np.log(CHANCES).astype(np.float32)
    sampler = Sampler(Options.read(do_sample=True, seed=1, **options), [[row] for row in range(DRAWS)])
    tokens = sampler.draw(np.tile(logits, (DRAWS, 1)), np.arange(DRAWS))
    counts = np.bincount(tokens, minlength=6)
    deviation = np.sqrt(DRAWS * expected * (1 - expected))
    assert (np.abs(counts - DRAWS * expected) <= 4 * deviation).all(), counts


def test_draws_over_a_large_vocabulary_follow_the_distribution() -> None:
    logits = np.random.default_rng(0).normal(0, 4, 3001).astype(np.float32)
    chances = np.exp(logits.astype(np.float64))
    chances /= chances.sum()
    sampler = Sampler(Options.read(do_sample=True, seed=1), [[row] for row in range(3000)])
    counts = np.bincount(sampler.draw(np.tile(logits, (3000, 1)), np.arange(3000)), minlength=3001)
    common = np.argsort(-chances)[:10]
    deviation = np.sqrt(3000 * chances[common] * (1 - chances[common]))
    assert (np.abs(counts[common] - 3000 * chances[common]) <= 4 * deviation).all()
    halves = counts[:1500].sum() / 3000, chances[:1500].sum()
    assert halves[0] == pytest.approx(halves[1], abs=0.04)


def draw(prompts: list[list[int]], keys: Any = None, **options: Any) -> list[list[tuple[int, ...]]]:
    """Return the tokens that sampling gives."""
    model = Fake(noise(30, scale=1.0), prompts)
    results = search(model, model.first, prompts, Options.read(do_sample=True, max_new_tokens=8, **options), keys=keys)
    return [[h.tokens for h in hypotheses] for hypotheses in results]


def test_a_seed_repeats_its_draws_and_none_does_not() -> None:
    assert draw([[1], [2]], seed=3) == draw([[1], [2]], seed=3)
    assert draw([[1]], seed=3) != draw([[1]], seed=4)
    assert draw([[1]], seed=3) != draw([[1]], seed=2**70 + 3)
    assert draw([[1]]) != draw([[1]])
    ((first,), (second,)) = draw([[1], [1]])
    assert first != second


def test_sequences_of_a_prompt_are_different_draws() -> None:
    (five,) = draw([[1]], seed=3, num_return_sequences=5)
    assert len(set(five)) == 5
    assert draw([[1]], seed=3, num_return_sequences=2) == [five[:2]]
    assert draw([[4], [1]], seed=3, num_return_sequences=2)[1] == five[:2]


def test_keys_stand_for_prompts_that_are_alike() -> None:
    (first,), (second,) = draw([[1], [1]], keys=[[5, 6], [7]], seed=3)
    assert first != second
    assert draw([[1]], keys=[[7]], seed=3) == [[second]]


def test_only_what_is_left_is_sorted() -> None:
    ids, scores = warp(np.array([[1, 5, 3, 5, 2]], np.float32), Options.read(do_sample=True, top_k=3, top_p=0.1))
    assert ids is not None
    assert ids.tolist() == [[1, 2, 3]]
    assert scores.tolist() == [[5, -np.inf, 5]]
