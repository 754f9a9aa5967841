"""Each change of scores against the class of transformers that makes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers.generation import logits_process as theirs

from edgebert_runtime.errors import InputError
from edgebert_runtime.generation import Options, sampler
from edgebert_runtime.generation import logits_processors as processors
from edgebert_runtime.generation.step_model import Floats, Ids, TokenHistory
from edgebert_runtime.generation.token_constraints import TokenConstraints

VOCAB = 12
SEEDS = range(20)


def random_scores(seed: int) -> tuple[Floats, Ids]:
    """Return scores (rows, vocab), with equal ones and -inf among them, and tokens (rows, width)."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 2, (4, VOCAB)).astype(np.float32)
    if seed % 2:
        scores = scores.round()
    scores[rng.random(scores.shape) < 0.2] = -np.inf
    scores[:, 5] = 1
    return scores, rng.integers(0, 5, (4, rng.integers(1, 12)))


def expect(processor: Any, tokens: Ids, scores: Floats) -> Floats:
    """Let transformers change scores."""
    changed: Floats = processor(torch.from_numpy(tokens), torch.from_numpy(scores.copy())).numpy()
    return changed


@pytest.mark.parametrize("penalty", [0.5, 1.3])
def test_repetition_penalty(penalty: float) -> None:
    for seed in SEEDS:
        scores, tokens = random_scores(seed)
        expected = expect(theirs.RepetitionPenaltyLogitsProcessor(penalty), tokens, scores)
        processors.repetition_penalty(scores, TokenHistory.start(tokens.tolist()), penalty=penalty)
        np.testing.assert_allclose(scores, expected, rtol=1e-6, err_msg=f"seed {seed}")


def test_repetition_penalty_counts_both_signs_once_and_leaves_padding_out() -> None:
    scores = np.array([[2, -2, 4, -4], [2, -2, 4, -4]], dtype=np.float32)
    processors.repetition_penalty(scores, TokenHistory.start([[0, 0, 1], [2]]), penalty=2.0)
    assert scores.tolist() == [[1, -4, 4, -4], [2, -2, 2, -4]]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_repeat_ngram(size: int) -> None:
    for seed in SEEDS:
        scores, tokens = random_scores(seed)
        expected = expect(theirs.NoRepeatNGramLogitsProcessor(size), tokens, scores)
        processors.no_repeat_ngram(scores, TokenHistory.start(tokens.tolist()), size=size)
        np.testing.assert_array_equal(scores, expected, err_msg=f"seed {seed}")


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_shorter_rows_of_a_batch_have_no_other_ngrams(size: int) -> None:
    prompts = [[1], [1, 1, 1, 1, 1], [2, 3, 2, 3, 2], [4, 2]]
    scores, _ = random_scores(0)
    single = scores.copy()
    processors.no_repeat_ngram(scores, TokenHistory.start(prompts), size=size)
    for prompt, row in zip(prompts, single, strict=True):
        processors.no_repeat_ngram(row[None], TokenHistory.start([prompt]), size=size)
    np.testing.assert_array_equal(scores, single)


def constraints(options: Options, prompt_length: int) -> TokenConstraints:
    """Return the constraints of four prompts of one length, with five new tokens."""
    return TokenConstraints.from_options(options, np.full(4, prompt_length), np.full(4, 5))


def test_bad_words() -> None:
    for seed in SEEDS:
        scores, tokens = random_scores(seed)
        pairs = np.random.default_rng(seed).integers(0, 5, (10, 2)).tolist()
        words = [[7], [8, 9], *pairs, [1, 2, 3], [0, 1, 4], [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4], [10]]
        expected = expect(theirs.NoBadWordsLogitsProcessor(words, 10), tokens, scores)
        options = Options.read(bad_words_ids=words, eos_token_id=10)
        constraints(options, tokens.shape[1]).apply(scores, TokenHistory.start(tokens.tolist()))
        np.testing.assert_array_equal(scores, expected, err_msg=f"seed {seed}")


def test_allowed_tokens() -> None:
    def allowed(prompt: int, so_far: Any) -> list[int]:
        return [6, 7] if prompt == 0 else [(int(so_far[-1]) + prompt) % VOCAB, 5]

    for seed in SEEDS:
        scores, tokens = random_scores(seed)
        if seed % 3 == 0:
            scores[:2, 6:8] = -np.inf
        expected = expect(theirs.PrefixConstrainedLogitsProcessor(allowed, 2), tokens, scores)
        history = TokenHistory.start(tokens[::2].tolist(), repeats=2)
        history = TokenHistory(history.prompts, 3, tokens, True)
        processors.allowed_tokens(scores, history, function=allowed)
        np.testing.assert_array_equal(scores, expected, err_msg=f"seed {seed}")


def test_a_function_sees_a_row_without_its_padding() -> None:
    calls: list[tuple[int, list[int]]] = []

    def allowed(prompt: int, so_far: list[int]) -> list[int]:
        calls.append((prompt, so_far))
        return [1]

    processors.allowed_tokens(np.zeros((2, 3), np.float32), TokenHistory.start([[2], [0, 1, 2]]), function=allowed)
    assert calls == [(0, [2]), (1, [0, 1, 2])]


@pytest.mark.parametrize("returned", [[], [3], [-1], ["a"], [[1]], [1.0]])
def test_a_function_that_returns_no_tokens_is_refused(returned: Any) -> None:
    with pytest.raises(InputError, match="prefix_allowed_tokens_fn returned .* for prompt 0"):
        processors.allowed_tokens(np.zeros((1, 3), np.float32), TokenHistory.start([[1]]), function=lambda *_: returned)


@pytest.mark.parametrize(
    ("options", "processor"),
    [
        ({"min_length": 4}, lambda: theirs.MinLengthLogitsProcessor(4, [2, 3])),
        ({"min_new_tokens": 3}, lambda: theirs.MinNewTokensLengthLogitsProcessor(1, 3, [2, 3])),
        ({"forced_bos_token_id": 6}, lambda: theirs.ForcedBOSTokenLogitsProcessor(6)),
        ({"forced_eos_token_id": [2, 3]}, lambda: theirs.ForcedEOSTokenLogitsProcessor(6, [2, 3])),
        ({"suppress_tokens": [1, 4]}, lambda: theirs.SuppressTokensLogitsProcessor([1, 4])),
        ({"begin_suppress_tokens": [1, 4]}, lambda: theirs.SuppressTokensAtBeginLogitsProcessor([1, 4], 1)),
    ],
)
def test_constraints_hold_at_their_steps(options: dict[str, Any], processor: Any) -> None:
    for generated in range(5):
        scores, _ = random_scores(1)
        tokens = np.ones((4, 1 + generated), dtype=np.int64)
        expected = expect(processor(), tokens, scores)
        history = TokenHistory(np.arange(4), generated, tokens, True)
        constraints(Options.read(eos_token_id=[2, 3], **options), 1).apply(scores, history)
        np.testing.assert_array_equal(scores, expected, err_msg=f"after {generated} tokens")


def test_begin_suppression_waits_for_a_forced_token() -> None:
    options = Options.read(begin_suppress_tokens=[1], forced_bos_token_id=2)
    only = TokenConstraints.from_options(options, np.ones(1, np.int64), np.full(1, 9))
    rows = []
    for generated in range(3):
        scores = np.full((1, 4), 0.5, np.float32)
        only.apply(scores, TokenHistory(np.zeros(1, np.int64), generated, np.ones((1, 1), np.int64), True))
        rows.append(scores[0].tolist())
    assert rows == [[-np.inf, -np.inf, 0, -np.inf], [0.5, -np.inf, 0.5, 0.5], [0.5] * 4]


@pytest.mark.parametrize(
    ("warper", "value", "reference"),
    [
        (sampler.temperature, 0.3, theirs.TemperatureLogitsWarper),
        (sampler.temperature, 4.0, theirs.TemperatureLogitsWarper),
        (sampler.top_p, 0.3, theirs.TopPLogitsWarper),
        (sampler.top_p, 0.95, theirs.TopPLogitsWarper),
        (sampler.min_p, 0.05, theirs.MinPLogitsWarper),
        (sampler.min_p, 0.999, theirs.MinPLogitsWarper),
        (sampler.typical_p, 0.2, theirs.TypicalLogitsWarper),
        (sampler.typical_p, 0.9, theirs.TypicalLogitsWarper),
    ],
)
def test_warpers(warper: Any, value: float, reference: Any) -> None:
    for seed in SEEDS:
        scores, tokens = random_scores(seed)
        expected = expect(reference(value), tokens, scores)
        before = scores.copy()
        warper(scores, value)
        ours, others = scores > -np.inf, expected > -np.inf
        if seed % 2:  # of equal scores at the limit all stay, where transformers keeps some
            assert (ours | ~others).all(), f"seed {seed}"
            limit = np.where(others, before, np.inf).min(axis=1, keepdims=True)
            more = ours & ~others
            assert warper is sampler.typical_p or (before[more] == np.broadcast_to(limit, more.shape)[more]).all()
        else:
            np.testing.assert_array_equal(ours, others, err_msg=f"seed {seed}")
        shift = scores.max(axis=1, keepdims=True) - expected.max(axis=1, keepdims=True)
        np.testing.assert_allclose(scores[others], (expected + shift)[others], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [1, 3, 8, 11])
def test_top_k(count: int) -> None:
    for seed in SEEDS:
        scores, tokens = random_scores(seed)
        expected = expect(theirs.TopKLogitsWarper(count), tokens, scores)
        ids, best = sampler.top_k_filter(scores, count)
        ours = np.full_like(scores, -np.inf)
        for row in range(len(scores)):
            real = best[row] > -np.inf
            ours[row, ids[row, real]] = best[row, real]
        np.testing.assert_array_equal(ours, expected, err_msg=f"seed {seed}")


def test_extreme_scores_stay_numbers() -> None:
    for warper, value in ((sampler.temperature, 1e-5), (sampler.top_p, 1e-9), (sampler.typical_p, 1e-9)):
        scores = np.array([[1e30, -1e30, 0, -np.inf], [3, -np.inf, -np.inf, -np.inf]], dtype=np.float32)
        warper(scores, value)
        assert (scores[:, 0] > -np.inf).all()
        assert sampler.unnormalized_probs(scores).tolist() == [[1, 0, 0, 0], [1, 0, 0, 0]]
