"""Each change of scores against the class of transformers that makes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers.generation import logits_process as theirs

from edgebert_runtime.errors import InputError
from edgebert_runtime.generation import Options
from edgebert_runtime.generation import logits_processors as processors
from edgebert_runtime.generation import logits_warpers as warpers
from edgebert_runtime.generation.sampler import shortlist
from edgebert_runtime.generation.step_model import Floats, Ids
from edgebert_runtime.generation.token_constraints import rules_of
from edgebert_runtime.generation.token_history import History

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


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("penalty", [0.5, 1.3])
def test_repetition_penalty(seed: int, penalty: float) -> None:
    scores, tokens = random_scores(seed)
    expected = expect(theirs.RepetitionPenaltyLogitsProcessor(penalty), tokens, scores)
    processors.repetition_penalty(scores, History.start(tokens.tolist()), penalty=penalty)
    np.testing.assert_allclose(scores, expected, rtol=1e-6)


def test_repetition_penalty_counts_both_signs_once_and_leaves_padding_out() -> None:
    scores = np.array([[2, -2, 4, -4], [2, -2, 4, -4]], dtype=np.float32)
    processors.repetition_penalty(scores, History.start([[0, 0, 1], [2]]), penalty=2.0)
    assert scores.tolist() == [[1, -4, 4, -4], [2, -2, 2, -4]]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_repeat_ngram(seed: int, size: int) -> None:
    scores, tokens = random_scores(seed)
    expected = expect(theirs.NoRepeatNGramLogitsProcessor(size), tokens, scores)
    processors.no_repeat_ngram(scores, History.start(tokens.tolist()), size=size)
    np.testing.assert_array_equal(scores, expected)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_shorter_rows_of_a_batch_have_no_other_ngrams(size: int) -> None:
    prompts = [[1], [1, 1, 1, 1, 1], [2, 3, 2, 3, 2], [4, 2]]
    scores, _ = random_scores(0)
    single = scores.copy()
    processors.no_repeat_ngram(scores, History.start(prompts), size=size)
    for prompt, row in zip(prompts, single, strict=True):
        processors.no_repeat_ngram(row[None], History.start([prompt]), size=size)
    np.testing.assert_array_equal(scores, single)


@pytest.mark.parametrize("seed", SEEDS)
def test_bad_words(seed: int) -> None:
    scores, tokens = random_scores(seed)
    pairs = np.random.default_rng(seed).integers(0, 5, (10, 2)).tolist()
    words = [[7], [8, 9], *pairs, [1, 2, 3], [0, 1, 4], [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4], [10]]
    expected = expect(theirs.NoBadWordsLogitsProcessor(words, 10), tokens, scores)
    options = Options.read(bad_words_ids=words, eos_token_id=10)
    rules_of(options, np.full(4, tokens.shape[1]), np.full(4, 5)).apply(scores, History.start(tokens.tolist()))
    np.testing.assert_array_equal(scores, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_allowed_tokens(seed: int) -> None:
    scores, tokens = random_scores(seed)

    def allowed(prompt: int, so_far: Any) -> list[int]:
        return [6, 7] if prompt == 0 else [(int(so_far[-1]) + prompt) % VOCAB, 5]

    if seed % 3 == 0:
        scores[:2, 6:8] = -np.inf
    expected = expect(theirs.PrefixConstrainedLogitsProcessor(allowed, 2), tokens, scores)
    history = History.start(tokens[::2].tolist(), repeats=2)
    history = History(history.prompts, 3, tokens, True)
    processors.allowed_tokens(scores, history, function=allowed)
    np.testing.assert_array_equal(scores, expected)


def test_a_function_sees_a_row_without_its_padding() -> None:
    seen: list[tuple[int, list[int]]] = []

    def allowed(prompt: int, so_far: list[int]) -> list[int]:
        seen.append((prompt, so_far))
        return [1]

    processors.allowed_tokens(np.zeros((2, 3), np.float32), History.start([[2], [0, 1, 2]]), function=allowed)
    assert seen == [(0, [2]), (1, [0, 1, 2])]


@pytest.mark.parametrize("returned", [[], [3], [-1], ["a"], [[1]], [1.0]])
def test_a_function_that_returns_no_tokens_is_refused(returned: Any) -> None:
    with pytest.raises(InputError, match="prefix_allowed_tokens_fn returned .* for prompt 0"):
        processors.allowed_tokens(np.zeros((1, 3), np.float32), History.start([[1]]), function=lambda *_: returned)


@pytest.mark.parametrize("generated", range(5))
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
def test_rules_hold_at_their_steps(generated: int, options: dict[str, Any], processor: Any) -> None:
    scores, _ = random_scores(1)
    tokens = np.ones((4, 1 + generated), dtype=np.int64)
    expected = expect(processor(), tokens, scores)
    history = History(np.arange(4), generated, tokens, True)
    rules_of(Options.read(eos_token_id=[2, 3], **options), np.ones(4, np.int64), np.full(4, 5)).apply(scores, history)
    np.testing.assert_array_equal(scores, expected)


def test_begin_suppression_waits_for_a_forced_token() -> None:
    options = Options.read(begin_suppress_tokens=[1], forced_bos_token_id=2)
    rules = rules_of(options, np.ones(1, np.int64), np.full(1, 9))
    rows = []
    for generated in range(3):
        scores = np.full((1, 4), 0.5, np.float32)
        rules.apply(scores, History(np.zeros(1, np.int64), generated, np.ones((1, 1), np.int64), True))
        rows.append(scores[0].tolist())
    assert rows == [[-np.inf, -np.inf, 0, -np.inf], [0.5, -np.inf, 0.5, 0.5], [0.5] * 4]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("warper", "value", "reference"),
    [
        (warpers.temperature, 0.3, theirs.TemperatureLogitsWarper),
        (warpers.temperature, 4.0, theirs.TemperatureLogitsWarper),
        (warpers.top_p, 0.3, theirs.TopPLogitsWarper),
        (warpers.top_p, 0.95, theirs.TopPLogitsWarper),
        (warpers.min_p, 0.05, theirs.MinPLogitsWarper),
        (warpers.min_p, 0.999, theirs.MinPLogitsWarper),
        (warpers.typical_p, 0.2, theirs.TypicalLogitsWarper),
        (warpers.typical_p, 0.9, theirs.TypicalLogitsWarper),
    ],
)
def test_warpers(seed: int, warper: Any, value: float, reference: Any) -> None:
    scores, tokens = random_scores(seed)
    expected = expect(reference(value), tokens, scores)
    before = scores.copy()
    warper(scores, value)
    kept, wanted = scores > -np.inf, expected > -np.inf
    if seed % 2:  # of equal scores at the limit all are kept, where transformers keeps some
        assert (kept | ~wanted).all()
        limit = np.where(wanted, before, np.inf).min(axis=1, keepdims=True)
        assert (
            warper is warpers.typical_p
            or (before[kept & ~wanted] == np.broadcast_to(limit, kept.shape)[kept & ~wanted]).all()
        )
    else:
        np.testing.assert_array_equal(kept, wanted)
    shift = scores.max(axis=1, keepdims=True) - expected.max(axis=1, keepdims=True)
    np.testing.assert_allclose(scores[wanted], (expected + shift)[wanted], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("count", [1, 3, 8, 11])
def test_top_k(seed: int, count: int) -> None:
    scores, tokens = random_scores(seed)
    expected = expect(theirs.TopKLogitsWarper(count), tokens, scores)
    ids, kept = shortlist(scores, count)
    found = np.full_like(scores, -np.inf)
    for row in range(len(scores)):
        real = kept[row] > -np.inf
        found[row, ids[row, real]] = kept[row, real]
    np.testing.assert_array_equal(found, expected)


def test_extreme_scores_stay_numbers() -> None:
    for warper, value in ((warpers.temperature, 1e-5), (warpers.top_p, 1e-9), (warpers.typical_p, 1e-9)):
        scores = np.array([[1e30, -1e30, 0, -np.inf], [3, -np.inf, -np.inf, -np.inf]], dtype=np.float32)
        warper(scores, value)
        assert (scores[:, 0] > -np.inf).all()
        assert warpers.chances(scores).tolist() == [[1, 0, 0, 0], [1, 0, 0, 0]]
