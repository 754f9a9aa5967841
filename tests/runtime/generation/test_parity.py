"""Searches find what transformers' generate finds, with the same scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from edgebert_runtime.generation import Hypothesis, Options, search
from edgebert_runtime.generation.sampler import unnormalized_probs, warp
from edgebert_runtime.generation.step_model import TokenHistory
from edgebert_runtime.generation.token_constraints import TokenConstraints
from tests.runtime.generation.tiny_models import START, VOCAB, Rows, bart, generate, gpt2, marian, sample

MODELS: dict[str, Callable[[int], Any]] = {"gpt2": gpt2, "marian": marian, "bart": bart}
PENALTIES = (0.0, 0.6, 1.0, 2.0, -0.5)
Case = tuple[list[list[int]], dict[str, Any]]


def random_case(rng: np.random.Generator, kind: str, beams: int) -> Case:
    """Return prompts, or sources, and options."""
    batch = int(rng.integers(1, 4))
    rows = [rng.integers(5, VOCAB, size=rng.integers(1, 7)).tolist() for _ in range(batch)]
    eos = rng.choice(np.arange(2, 20), size=rng.choice([1, 2, 5, 10, 15]), replace=False).tolist()
    options: dict[str, Any] = {
        "eos_token_id": eos if len(eos) > 1 else eos[0],
        "max_new_tokens": int(rng.integers(1, 11)),
    }
    if beams > 1:
        options |= {"num_beams": beams, "num_return_sequences": int(rng.integers(1, beams + 1))}
        options["length_penalty"] = float(rng.choice(PENALTIES))
        options["early_stopping"] = [False, True, "never"][rng.integers(3)]
    for name, value in rare_options(rng, options["max_new_tokens"]).items():
        if rng.random() < 0.2:
            options[name] = value
    if kind != "gpt2" and rng.random() < 0.2:
        options["forced_bos_token_id"] = 22
    if batch == 1 and rng.random() < 0.3:  # with padding, transformers counts it
        length = len(rows[0]) if kind == "gpt2" else 1
        options["max_length"] = length + options.pop("max_new_tokens")
        if "min_new_tokens" in options:
            options["min_length"] = min(length + options.pop("min_new_tokens"), options["max_length"])
    return rows, options


def rare_options(rng: np.random.Generator, length: int) -> dict[str, Any]:
    """Return options of which some are taken."""
    pairs = rng.integers(5, VOCAB, size=(30, 2)).tolist()
    return {
        "min_new_tokens": int(rng.integers(0, length + 1)),
        "repetition_penalty": float(rng.choice([0.7, 1.2, 2.0])),
        "no_repeat_ngram_size": int(rng.integers(1, 4)),
        "bad_words_ids": [[7], [8], *pairs, [9, 10, 11]],
        "suppress_tokens": [20, 21],
        "begin_suppress_tokens": rng.integers(24, VOCAB, size=10).tolist(),
        "forced_eos_token_id": 23,
    }


def run(kind: str, model: Any, rows: list[list[int]], options: dict[str, Any]) -> list[list[Hypothesis]]:
    """Search for continuations of prompts, or of START for each source."""
    prompts = rows if kind == "gpt2" else [[START]] * len(rows)
    side = Rows(model, prompts, None if kind == "gpt2" else rows)
    return search(side, side.logits, prompts, Options.read(**options))


def reference(
    model: Any, rows: list[list[int]], options: dict[str, Any]
) -> list[list[tuple[list[int], float, list[float]]]]:
    """Let transformers do the same, prompts one at a time: for its processors the padding of a batch is text too.

    Where a prompt has fewer continuations than beams, it fills up with repeated ones whose score is -1e9 or so.
    """
    batches = [rows] if model.config.is_encoder_decoder else [[row] for row in rows]
    results = [those for batch in batches for those in generate(model, batch, **options)]
    return [[each for each in those if each[1] > -1e6] for those in results]


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("beams", [1, 2, 3, 4, 5])
def test_tokens_and_scores_equal_those_of_transformers(kind: str, beams: int) -> None:
    rng = np.random.default_rng([beams, *kind.encode()])
    reasons = set()
    models = [MODELS[kind](number) for number in range(4)]
    for number in range(16):
        model = models[number % 4]
        rows, options = random_case(rng, kind, beams)
        results = run(kind, model, rows, options)
        expected = reference(model, rows, options)
        for hypotheses, theirs in zip(results, expected, strict=True):
            assert [list(h.tokens) for h in hypotheses] == [tokens for tokens, _, _ in theirs], (rows, options)
            for hypothesis, (_, score, logprobs) in zip(hypotheses, theirs, strict=True):
                reasons.add(hypothesis.finish_reason)
                if beams > 1:
                    assert hypothesis.score == pytest.approx(score, abs=1e-4)
                else:
                    forced = forced_places(hypothesis, options)
                    target = [0 if i in forced else logprob for i, logprob in enumerate(logprobs)]
                    assert hypothesis.token_logprobs == pytest.approx(target, abs=1e-4)
                total = math.fsum(hypothesis.token_logprobs)
                assert hypothesis.score == total / len(hypothesis.tokens) ** options.get("length_penalty", 1.0)
    assert reasons == {"stop", "length"}


def forced_places(hypothesis: Hypothesis, options: dict[str, Any]) -> set[int]:
    """Return the places of the tokens that were forced."""
    places = {0} if "forced_bos_token_id" in options else set()
    last = len(hypothesis.tokens) - 1
    if hypothesis.finish_reason == "length" and "forced_eos_token_id" in options:
        places.add(last)
    return places


@pytest.mark.parametrize("beams", [1, 4])
def test_allowed_tokens_equal_those_of_transformers(beams: int) -> None:
    rng = np.random.default_rng(beams)
    allowed = [rng.choice(np.arange(5, VOCAB), size=16, replace=False).tolist() for _ in range(VOCAB)]
    model = gpt2(3)
    for number in range(6):
        rows = rng.integers(5, VOCAB, size=(2, 3)).tolist()
        options = {
            "eos_token_id": 6,
            "max_new_tokens": 6,
            "num_beams": beams,
            "prefix_allowed_tokens_fn": lambda prompt, tokens: allowed[(int(tokens[-1]) + prompt) % VOCAB],
            "repetition_penalty": 1.2 if number % 2 else 1.0,
        }
        results = [[list(h.tokens) for h in hypotheses] for hypotheses in run("gpt2", model, rows, options)]
        expected = generate(model, rows, **options)  # in one batch, whose numbers the function gets; none is padded
        assert results == [[tokens for tokens, score, _ in theirs if score > -1e6] for theirs in expected]


WARPED: tuple[dict[str, Any], ...] = (
    {"temperature": 0.6, "top_k": 8},
    {"temperature": 1.7, "top_p": 0.8, "repetition_penalty": 1.3},
    {"top_k": 20, "min_p": 0.05, "no_repeat_ngram_size": 1, "suppress_tokens": [9]},
    {"top_k": 30, "top_p": 0.7, "typical_p": 0.8, "temperature": 1.2, "min_new_tokens": 3},
)


@pytest.mark.parametrize("options", WARPED)
@pytest.mark.parametrize("kind", ["gpt2", "marian"])
def test_sampling_draws_from_the_distributions_of_transformers(kind: str, options: dict[str, Any]) -> None:
    rows = [[5, 9, 30], [40, 41, 11]]
    model = MODELS[kind](1)
    options = {"eos_token_id": [3, 4], "max_new_tokens": 8, **options}
    neutral: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "temperature": 1.0}
    torch.manual_seed(0)
    out = sample(model, rows, **{**neutral, **options})
    prompts = np.array(rows if kind == "gpt2" else [[START]] * 2)
    read = Options.read(do_sample=True, **options)
    rules = TokenConstraints.from_options(read, np.full(2, prompts.shape[1]), np.full(2, 8))
    for step, (logits, expected) in enumerate(zip(out.logits, out.scores, strict=True)):
        tokens = out.sequences[:, : prompts.shape[1] + step].numpy()
        scores = logits.numpy().copy()
        rules.apply(scores, TokenHistory(np.arange(2), step, tokens, True))
        ids, shaped = warp(scores, read)
        results = np.full_like(scores, -np.inf)
        np.put_along_axis(results, np.tile(np.arange(VOCAB), (2, 1)) if ids is None else ids, shaped, axis=1)
        target = expected.softmax(-1).numpy()
        np.testing.assert_allclose(
            unnormalized_probs(results) / unnormalized_probs(results).sum(1, keepdims=True), target, atol=1e-6
        )
    assert step >= 2
