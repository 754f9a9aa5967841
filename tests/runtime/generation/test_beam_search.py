"""Beam search against exhaustive search, and what its beams do when hypotheses finish."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgebert_runtime.errors import InputError
from edgebert_runtime.generation import Hypothesis, Options, search
from edgebert_runtime.generation.beam_search import select
from edgebert_runtime.generation.step_model import TopK
from tests.runtime.generation.fake_models import Fake, Logits, noise, table

EOS = 0


def beams(logits: Logits, prompts: list[list[int]], **options: Any) -> tuple[list[list[Hypothesis]], Fake]:
    """Search, and return the model too."""
    model = Fake(logits, prompts)
    return search(model, model.first, prompts, Options.read({"eos_token_id": EOS}, **options)), model


def exhaustive(logits: Logits, prompt: list[int], length: int, penalty: float) -> list[tuple[float, tuple[int, ...]]]:
    """Score every sequence that ends with EOS or is as long as can be, best first."""
    vocab = len(logits(tuple(prompt)))
    results = []
    for size in range(1, length + 1):
        for tokens in itertools.product(range(vocab), repeat=size):
            if EOS in tokens[:-1] or (tokens[-1] != EOS and size < length):
                continue
            total = 0.0
            for place, token in enumerate(tokens):
                row = logits((*prompt, *tokens[:place])).astype(np.float64)
                total += float(row[token]) - math.log(np.exp(row).sum())
            results.append((total / size**penalty, tokens))
    return sorted(results, key=lambda item: -item[0])


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(2, 4),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.6, 1.0, 2.0, -1.0]),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
)
def test_enough_beams_find_what_exhaustive_search_finds(
    seed: int, vocab: int, length: int, penalty: float, prompt: list[int]
) -> None:
    logits = noise(vocab, seed)
    expected = exhaustive(logits, prompt, length, penalty)
    count = max(2, len(expected))
    ((*results,),), _ = beams(
        logits, [prompt], max_new_tokens=length, num_beams=count, length_penalty=penalty, early_stopping="never",
        num_return_sequences=count,
    )  # fmt: skip
    assert [h.tokens for h in results] == [tokens for _, tokens in expected]
    assert [h.score for h in results] == pytest.approx([score for score, _ in expected], abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=2, max_size=4),
    st.integers(2, 4),
    st.sampled_from([False, True, "never"]),
    st.fixed_dictionaries(
        {},
        optional={
            "max_length": st.integers(5, 9),
            "min_length": st.integers(2, 5),
            "no_repeat_ngram_size": st.integers(1, 3),
            "repetition_penalty": st.just(1.5),
            "forced_eos_token_id": st.just(EOS),
            "suppress_tokens": st.just([3]),
        },
    ),
)
def test_a_prompt_gets_in_a_batch_what_it_gets_alone(
    prompts: list[list[int]], count: int, early: bool | str, options: dict[str, Any]
) -> None:
    options |= {"num_beams": count, "num_return_sequences": count, "early_stopping": early}
    options.setdefault("max_length", 8)
    together, _ = beams(noise(10), prompts, **options)
    assert together == [beams(noise(10), [prompt], **options)[0][0] for prompt in prompts]


def test_finished_beams_are_replaced() -> None:
    logits = table({(1,): {EOS: 0.3, 2: 0.2, 3: 0.15, 4: 0.12, 5: 0.1}, (1, 2): {EOS: 0.5, 6: 0.4}}, 10)
    _, model = beams(logits, [[1]], num_beams=4, max_new_tokens=4, early_stopping="never", length_penalty=0.0)
    assert model.calls[:2] == [4, 4]


def test_several_tokens_that_end_sequences_leave_enough_beams() -> None:
    logits = table({(1,): {EOS: 0.3, 7: 0.25, 8: 0.2, 2: 0.1, 3: 0.08}}, 10)
    _, model = beams(logits, [[1]], num_beams=2, max_new_tokens=3, early_stopping="never", eos_token_id=[EOS, 7, 8])
    assert model.calls[0] == 2
    assert model.rows[0][:2] in ((1, 2), (1, 3))


def test_a_longer_hypothesis_overtakes_one_that_finished_first() -> None:
    tail = {(1, 2): {3: 0.9}, (1, 2, 3): {4: 0.9}, (1, 2, 3, 4): {EOS: 0.9}}
    logits = table({(1,): {EOS: 0.5, 2: 0.4}, **tail}, 6)
    options = {"num_beams": 2, "max_new_tokens": 6, "early_stopping": "never"}
    long, short = (2, 3, 4, EOS), (EOS,)
    assert beams(logits, [[1]], length_penalty=2.0, **options)[0][0][0].tokens == long
    assert beams(logits, [[1]], length_penalty=0.0, **options)[0][0][0].tokens == short
    score = math.log(0.4 * 0.9**3) / 4**2
    assert beams(logits, [[1]], length_penalty=2.0, **options)[0][0][0].score == pytest.approx(score, abs=1e-6)


def test_prompts_that_are_done_leave_the_batch() -> None:
    logits = noise(10)

    def ending(tokens: tuple[int, ...]) -> Any:
        row = logits(tokens).copy()
        row[EOS] = 20 if len(tokens) > (2 if tokens[0] == 1 else 6) else -20
        return row

    results, model = beams(ending, [[1], [2]], num_beams=3, max_new_tokens=12)
    assert [len(hypotheses[0].tokens) for hypotheses in results] == [3, 7]
    assert set(model.calls) == {6, 3}
    assert model.calls == sorted(model.calls, reverse=True)


def test_fewer_continuations_than_beams_are_no_fault() -> None:
    (results,), model = beams(noise(3), [[1]], num_beams=50, num_return_sequences=50, max_new_tokens=2)
    assert model.calls == [2]  # tokens 1 and 2; EOS is finished
    assert len(results) == 1 + 2 * 3
    assert len({h.tokens for h in results}) == len(results)


def test_one_allowed_token_leaves_one_beam() -> None:
    (results,), model = beams(
        noise(9), [[1]], num_beams=4, num_return_sequences=4, max_new_tokens=3,
        prefix_allowed_tokens_fn=lambda prompt, tokens: [len(tokens)],
    )  # fmt: skip
    assert [h.tokens for h in results] == [(1, 2, 3)]
    assert model.calls == [1, 1]


def test_options_that_leave_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="prompt 0 has no allowed token left after 2 new ones"):
        beams(noise(3), [[0]], num_beams=2, max_new_tokens=5, no_repeat_ngram_size=1)


def test_of_equal_continuations_the_better_beam_and_the_lower_id_come_first() -> None:
    top = TopK(np.array([[4, 7], [2, 5], [1, 3]]), np.array([[-2, -2], [-1, -2], [-1, -1]], np.float32))
    results = select(top, np.array([-1.0, -2.0, -3.0]), np.array([3, 3, 8]), 3)
    assert results.tokens[0].tolist() == [4, 7, 2]
    assert results.rows[0].tolist() == [0, 0, 1]
    assert results.tokens[1, :2].tolist() == [1, 3]
    assert results.totals.tolist() == [[-3, -3, -3], [-4, -4, -np.inf]]
    assert results.exist.tolist() == [[True, True, True], [True, True, False]]
    uniform, _ = beams(lambda tokens: np.zeros(6, np.float32), [[1]], num_beams=2, max_new_tokens=3, min_new_tokens=3)
    assert uniform[0][0].tokens == (1, 1, 1)


def test_stop_strings_finish_beams() -> None:
    logits = table({(9,): {1: 0.6, 2: 0.3}, (9, 1): {2: 0.8}, (9, 2): {3: 0.9}}, 10)
    options = Options.read(num_beams=2, num_return_sequences=2, max_new_tokens=4, stop="bc", eos_token_id=EOS)
    model = Fake(logits, [[9]])
    (results,) = search(model, model.first, [[9]], options, decode=lambda ids: "".join(".abcdefghi"[i] for i in ids))
    assert {h.tokens: h.finish_reason for h in results}[2, 3] == "stop_string"
    assert all("bc" not in "".join(".abcdefghi"[i] for i in h.tokens[:-1]) for h in results)
