"""Translations, and their scores, are those of transformers' generate, from text and token ids to the end."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import edgebert_runtime
from edgebert_runtime import Generation, Translator
from tests.runtime.generation.test_parity import forced_places, random_case

TEXTS = ["the cat sat on a mat", "dog", "sun and moon in the rain and a ship", "a", "", "mat, mat!", "school mail"]
CLASSES = {"marian": transformers.MarianMTModel, "bart": transformers.BartForConditionalGeneration}
Made = tuple[Translator, Any]


@pytest.fixture(scope="module", params=["marian-cpu", "bart-portable"])
def case(
    request: pytest.FixtureRequest,
    translator_checkpoint: Callable[..., Path],
    translator_bundle: Callable[..., Path],
) -> Made:
    """Return an engine, and its checkpoint as a model of transformers."""
    kind, _, target = request.param.partition("-")
    model = CLASSES[kind].from_pretrained(translator_checkpoint(kind))
    return edgebert_runtime.Translator.load(translator_bundle(target, kind)), model.eval()


def theirs(model: Any, pad: int, sources: list[list[int]], **options: Any) -> list[list[tuple[Any, ...]]]:
    """Return tokens, score and log-probabilities that transformers finds."""
    width = max(map(len, sources))
    with torch.no_grad():
        out = model.generate(
            input_ids=torch.tensor([[*row, *[pad] * (width - len(row))] for row in sources]),
            attention_mask=torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in sources]),
            **{"output_scores": True, "output_logits": True, "return_dict_in_generate": True},
            **{"do_sample": False, **options},
        )
    eos = options["eos_token_id"]
    ends, count = [eos] if isinstance(eos, int) else eos, options.get("num_return_sequences", 1)
    results: list[tuple[Any, ...]] = []
    for row, sequence in enumerate(out.sequences[:, 1:].tolist()):
        place = next((i for i, token in enumerate(sequence) if token in ends), len(sequence) - 1)
        tokens = sequence[: place + 1]
        if options.get("num_beams", 1) > 1:
            results.append((tokens, float(out.sequences_scores[row]), None))
            continue
        logits = zip(out.logits, tokens, strict=False)
        results.append((tokens, None, [float(item[row].log_softmax(-1)[token]) for item, token in logits]))
    return [results[i : i + count] for i in range(0, len(results), count)]


def flat(results: list[Any]) -> list[Generation]:
    return [item for some in results for item in (some if isinstance(some, list) else [some])]


def assert_same(results: list[Any], expected: list[list[tuple[Any, ...]]], options: dict[str, Any]) -> None:
    for some, several in zip(results, expected, strict=True):
        ours = some if isinstance(some, list) else [some]
        # Where there are fewer hypotheses than beams, transformers fills up with what is not one.
        others = [second for second in several if second[1] is None or second[1] > -1e6]
        assert [list(item.tokens) for item in ours] == [tokens for tokens, _, _ in others], options
        for item, (_, score, logprobs) in zip(ours, others, strict=True):
            if score is None:
                forced = forced_places(item, options)
                logprobs = [0 if place in forced else logprob for place, logprob in enumerate(logprobs)]
                assert item.token_logprobs == pytest.approx(logprobs, abs=1e-4)
                score = sum(logprobs) / len(logprobs)
            assert item.score == pytest.approx(score, abs=1e-4)
            total = math.fsum(item.token_logprobs)
            assert item.score == pytest.approx(total / len(item.tokens) ** options.get("length_penalty", 1.0))


@pytest.mark.parametrize("beams", [1, 2, 4, 5])
def test_tokens_and_scores_equal_those_of_transformers(case: Made, beams: int) -> None:
    engine, model = case
    pad = engine.decoding["pad_token_id"]
    model = copy.deepcopy(model)
    model.generation_config.forced_eos_token_id = None
    rng = np.random.default_rng([beams, len(engine.decoding)])
    reasons = set()
    for _ in range(8):
        sources, options = random_case(rng, "seq2seq", beams)
        likely = engine.translate(sources, max_new_tokens=6, num_beams=1)
        options["eos_token_id"] = sorted({int(rng.choice(item.tokens[1:])) for item in likely})
        ours = {"forced_eos_token_id": None, **options}
        results = engine.translate(sources, **ours)
        assert_same(results, theirs(model, pad, sources, **options), options)
        alone = [engine.translate([source], **ours)[0] for source in sources]
        assert [item.tokens for item in flat(alone)] == [item.tokens for item in flat(results)]
        reasons |= {item.finish_reason for item in flat(results)}
    assert reasons == {"stop", "length"}


@pytest.mark.parametrize("beams", [1, 4])
def test_a_bundle_does_what_its_checkpoint_says(case: Made, beams: int) -> None:
    engine, model = case
    options: dict[str, Any] = {"max_length": 30, "num_beams": beams}
    texts = [text for text in TEXTS if text]
    sources = [engine._tokenizer.inner.encode(text).ids for text in texts]
    eos = engine.decoding["eos_token_id"]
    expected = theirs(model, engine.decoding["pad_token_id"], sources, eos_token_id=eos, **options)
    results = engine.translate(texts, **options)
    for item, ((tokens, score, _),) in zip(results, expected, strict=True):
        assert list(item.tokens) == tokens
        assert beams == 1 or item.score == pytest.approx(score, abs=1e-4)
        assert item.text == engine._target.inner.decode(list(item.tokens), skip_special_tokens=True)


def test_pairs_score_as_they_were_translated(case: Made) -> None:
    engine, _ = case
    results = engine.translate(TEXTS, max_new_tokens=12, forced_eos_token_id=None)
    scored = engine.score([(text, item.tokens) for text, item in zip(TEXTS, results, strict=True) if text])
    for item, second in zip([item for item in results if item.tokens], scored, strict=True):
        assert second.tokens == item.tokens
        np.testing.assert_allclose(second.token_logprobs, item.token_logprobs, atol=1e-4)


def test_pieces_join_to_the_text(case: Made) -> None:
    engine, _ = case
    modes: list[dict[str, Any]] = [{}, {"do_sample": True, "seed": 3}]
    for text in TEXTS:
        for options in modes:
            whole = engine.translate([text], max_new_tokens=12, **options)[0].text
            assert "".join(engine.stream(text, max_new_tokens=12, **options)) == whole


def test_engines_are_shared_copied_and_pickled(case: Made) -> None:
    engine, _ = case
    options: dict[str, Any] = {"max_new_tokens": 8, "num_beams": 2}
    expected = [item.tokens for item in engine.translate(TEXTS, **options)]
    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(lambda _: engine.translate(TEXTS, **options), range(8)):
            assert [item.tokens for item in results] == expected
    for second in (copy.copy(engine), pickle.loads(pickle.dumps(engine))):
        assert [item.tokens for item in second.translate(TEXTS, **options)] == expected


def test_room_grows_with_the_target(case: Made) -> None:
    """Buffers are made for a likely length, and are the same when they had to grow."""
    engine, model = case
    options: dict[str, Any] = {"max_new_tokens": 36, "eos_token_id": 5, "num_beams": 2}
    sources = [[7, 8, 9], [11]]
    model = copy.deepcopy(model)
    model.generation_config.forced_eos_token_id = None
    expected = theirs(model, engine.decoding["pad_token_id"], sources, **options)
    assert_same(engine.translate(sources, forced_eos_token_id=None, **options), expected, options)
    assert max(len(tokens) for ((tokens, *_),) in expected) > 30
