"""Scores of pairs are the log-probabilities that the model gives to each token after those before it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebert_runtime import Translator
from edgebert_runtime.errors import InputError, LimitError
from tests.runtime.tasks.fake_seq2seq import DECODING, EOS, POSITIONS, START, fake_translator, sessions

PAIRS = [
    ("the cat sat", "mat and a dog"),
    ("a", ""),
    ("dog ran in berlin and the cat sat on a mat", "paris"),
    ("", "the"),
    ("paris", "cat and mat and dog and cafe"),
]


@pytest.fixture(scope="module", params=["shared", "growing"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return fake_translator(tmp_path_factory.mktemp(request.param), shared=request.param == "shared")


def expected(engine: Translator, source: list[int], target: list[int], start: list[int]) -> list[float]:
    """Score each token by the model alone."""
    model, results = sessions(engine)[0].model, []
    for place, token in enumerate(target):
        logits = model.logits(source, [*start, *target[:place]]).astype(np.float64)
        results.append(float(logits[token] - np.log(np.exp(logits).sum())))
    return results


@pytest.mark.parametrize("budget", [None, 1, 9, 40])
def test_scores_are_those_of_the_model(engine: Translator, budget: int | None) -> None:
    calls: list[tuple[int, int | None]] = []
    results = engine.score(iter(PAIRS), max_batch_tokens=budget, progress=lambda *done: calls.append(done))
    assert calls[-1] == (len(PAIRS), len(PAIRS))
    for (source, target), scored in zip(PAIRS, results, strict=True):
        ids = [*engine._target.content(target).ids, EOS]
        assert scored.tokens == tuple(ids)
        logprobs = expected(engine, engine._tokenizer.inner.encode(source).ids, ids, [START])
        np.testing.assert_allclose(scored.token_logprobs, logprobs, atol=1e-4)
        assert scored.score == pytest.approx(sum(logprobs), abs=1e-3)
        assert scored.perplexity == pytest.approx(math.exp(-scored.score / len(ids)))


def test_targets_that_are_complete_cost_nothing(engine: Translator) -> None:
    sessions(engine)[1].calls.clear()
    engine.score(PAIRS)
    lengths = [len(engine._target.content(target).ids) + 1 for _, target in PAIRS]
    alive = [sum(length > step for length in lengths) for step in range(max(lengths))]
    assert [rows for rows, *_ in sessions(engine)[1].calls] == alive


@pytest.mark.parametrize("options", [{}, {"num_beams": 3, "length_penalty": 0.6}, {"do_sample": True, "seed": 2}])
def test_what_was_translated_scores_the_same(engine: Translator, options: dict[str, Any]) -> None:
    texts = [source for source, _ in PAIRS if source]
    translations = engine.translate(texts, **options)
    results = engine.score([(text, item.tokens) for text, item in zip(texts, translations, strict=True)])
    for item, scored in zip(translations, results, strict=True):
        assert scored.tokens == item.tokens
        np.testing.assert_allclose(scored.token_logprobs, item.token_logprobs, atol=1e-4)
        penalty = options.get("length_penalty", 1)
        assert scored.score / len(item.tokens) ** penalty == pytest.approx(item.score, abs=1e-4)


def test_a_token_that_all_targets_begin_with_is_given(tmp_path: Path) -> None:
    engine = fake_translator(tmp_path, decoding={**DECODING, "forced_bos_token_id": 9})
    (translations,) = engine.translate(["the cat"])
    assert (translations.tokens[0], translations.token_logprobs[0]) == (9, 0)
    ids = [*engine._target.content("mat and").ids, EOS]
    text, tokens = engine.score([("the cat", "mat and"), ("the cat", translations.tokens)])
    assert (text.tokens, tokens.tokens) == (tuple(ids), translations.tokens[1:])
    source = engine._tokenizer.inner.encode("the cat").ids
    np.testing.assert_allclose(text.token_logprobs, expected(engine, source, ids, [START, 9]), atol=1e-4)
    np.testing.assert_allclose(tokens.token_logprobs, translations.token_logprobs[1:], atol=1e-4)


def test_nothing_that_counts(tmp_path: Path) -> None:
    engine = fake_translator(tmp_path, decoding={"decoder_start_token_id": START})
    (results,) = engine.score([("a", "")])
    assert (results.tokens, results.score, results.perplexity) == ((), 0, 1)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ("a text", "one str was given"),
        (["a text"], "text 0 is str, not a pair of a source and a target"),
        ([("a", "b"), ("a", "b", "c")], "text 1 is tuple, not a pair"),
        ([(3, "b")], "text 0 is int"),
        ([("a", 3)], "text 0 is int"),
        ([("a", [999])], "text 0 has token id 999 at position 0"),
    ],
)
def test_pairs_that_are_none(engine: Translator, pairs: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        engine.score(pairs)


def test_pairs_that_are_too_long(engine: Translator) -> None:
    most = POSITIONS - 1
    assert len(engine.score([("a", "a " * (most - 1))])[0].tokens) == most
    with pytest.raises(LimitError, match=rf"the target of text 1 has {most + 1} tokens, the limit is {most}; split"):
        engine.score([("a", "b"), ("a", "a " * most)])
    with pytest.raises(LimitError, match=r"text 0 has 62 tokens, the limit is 48"):
        engine.score([("a " * 60, "a")])
