"""Greedy search and sampling, step by step and as a whole."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgebert_runtime.errors import EdgebertError, InputError, LimitError
from edgebert_runtime.generation import Hypothesis, Options, search, stream
from edgebert_runtime.generation.step_model import Floats
from tests.runtime.generation.fake_models import Fake, FakeTop, noise, table

EOS, PAD = 0, 9
LETTERS = ".abcdefgh_"


def spell(ids: Any) -> str:
    """Decode ids as letters."""
    return "".join(LETTERS[i] for i in ids)


def run(prompts: list[list[int]], logits: Any = None, **options: Any) -> list[list[Hypothesis]]:
    """Search with defaults as a bundle gives them."""
    model = Fake(logits or noise(10), prompts)
    limit = options.pop("limit", None)
    read = Options.read({"eos_token_id": EOS, "pad_token_id": PAD}, **options)
    return search(model, model.first, prompts, read, limit=limit, decode=spell)


def ending(first: int, second: int) -> Any:
    """Return logits that end prompts which begin with 1 after ``first`` tokens, others after ``second``."""
    base = noise(10)

    def logits(tokens: tuple[int, ...]) -> Floats:
        row = base(tokens)
        row[EOS] = 20 if len(tokens) == (first if tokens[0] == 1 else second) else -20
        return row

    return logits


def test_rows_that_ended_leave_the_batch() -> None:
    prompts = [[1], [2], [1]]
    model = Fake(ending(2, 9), prompts)
    results = search(model, model.first, prompts, Options.read(eos_token_id=EOS, max_new_tokens=20))
    assert [len(hypotheses[0].tokens) for hypotheses in results] == [2, 9, 2]
    assert all(h.tokens[-1] == EOS and h.finish_reason == "stop" for (h,) in results)
    assert model.calls == [3, *[1] * 7]


SAMPLED: dict[str, Any] = {"do_sample": True, "seed": 5, "num_return_sequences": 3, "temperature": 0.8, "top_k": 6}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=4), min_size=2, max_size=4),
    st.fixed_dictionaries(
        {},
        optional={
            "min_length": st.integers(2, 5),
            "no_repeat_ngram_size": st.integers(1, 2),
            "repetition_penalty": st.just(1.5),
            "forced_bos_token_id": st.just(4),
            "suppress_tokens": st.just([3, 5]),
            "bad_words_ids": st.just([[1, 2], [6, 7, 8], [2]]),
            "stop": st.sampled_from(["a", "bc", ["gh", "de"]]),
        },
    ),
    st.booleans(),
)
def test_a_prompt_gets_in_a_batch_what_it_gets_alone(
    prompts: list[list[int]], options: dict[str, Any], sample: bool
) -> None:
    options |= {"max_length": 8, **(SAMPLED if sample else {})}
    assert run(prompts, **options) == [run([prompt], **options)[0] for prompt in prompts]


@pytest.mark.parametrize("mode", [{}, {"do_sample": True}, {"num_beams": 3, "num_return_sequences": 3}])
def test_padding_is_a_token_like_others_and_a_forced_token_comes_first(mode: dict[str, Any]) -> None:
    """Transformers bans padding only where the checkpoint does, as Marian in ``bad_words_ids``."""
    base = noise(10)

    def loves_padding(tokens: tuple[int, ...]) -> Floats:
        row = base(tokens)
        row[PAD] = 10
        return row

    for banned in ({}, {"bad_words_ids": [[PAD]]}):
        results = run([[1], [2, 3]], loves_padding, max_new_tokens=6, forced_bos_token_id=7, **banned, **mode)
        for hypothesis in (h for hypotheses in results for h in hypotheses):
            assert hypothesis.tokens[0] == 7
            assert hypothesis.token_logprobs[0] == 0
            assert (PAD in hypothesis.tokens) == (not banned)


@pytest.mark.parametrize("mode", [{}, {"do_sample": True, "top_p": 0.9}, {"num_beams": 4, "length_penalty": 0.6}])
def test_scores_are_those_of_the_model_given_the_tokens(mode: dict[str, Any]) -> None:
    for (hypothesis,) in run([[1], [2, 3], [4]], ending(4, 5), max_new_tokens=6, suppress_tokens=[4], **mode):
        assert hypothesis.finish_reason == "stop"
    for prompt, (hypothesis,) in zip([[1], [2, 3]], run([[1], [2, 3]], max_new_tokens=5, **mode), strict=True):
        expected = []
        for place, token in enumerate(hypothesis.tokens):
            row = noise(10)((*prompt, *hypothesis.tokens[:place])).astype(np.float64)
            expected.append(float(row[token] - math.log(np.exp(row).sum())))
        assert hypothesis.token_logprobs == pytest.approx(expected, abs=1e-5)
        divisor = len(hypothesis.tokens) ** mode.get("length_penalty", 1)
        assert hypothesis.score == pytest.approx(sum(expected) / divisor, abs=1e-5)


@pytest.mark.parametrize("name", ["greedy", "beam"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"suppress_tokens": [PAD], "min_length": 5},
        {"forced_bos_token_id": 3, "forced_eos_token_id": [EOS, 2], "begin_suppress_tokens": [1, 2]},
        {"suppress_tokens": [1, 2, 3, 4, 5, 6, 7, 8], "bad_words_ids": [[PAD]]},
        {"repetition_penalty": 1.3},
    ],
)
def test_a_model_that_chooses_by_itself_changes_nothing(name: str, options: dict[str, Any]) -> None:
    if name == "beam":
        options = options | {"num_beams": 3, "num_return_sequences": 2}
    prompts = [[1], [2, 3, 4], [5, 6]]
    read = Options.read({"eos_token_id": EOS, "max_length": 9}, **options)
    for seed in range(10):
        plain, quick = Fake(noise(10, seed), prompts), FakeTop(noise(10, seed), prompts)
        expected = search(plain, plain.first, prompts, read)
        results = search(quick, quick.first, prompts, read)
        assert [[h.tokens for h in each] for each in results] == [[h.tokens for h in each] for each in expected]
        for hypothesis, reference in zip(sum(results, []), sum(expected, []), strict=True):
            assert hypothesis.token_logprobs == pytest.approx(reference.token_logprobs, abs=1e-5)
            assert hypothesis.finish_reason == reference.finish_reason


def test_a_model_that_can_choose_by_itself_is_asked_to_where_no_rule_needs_more() -> None:
    class OnlyTop(FakeTop):
        def step(self, parents: Any, tokens: Any) -> Floats:
            raise AssertionError

        def step_top_k(self, parents: Any, tokens: Any, count: int) -> Any:
            counts.append(count)
            self.rows = [(*self.rows[p], int(t)) for p, t in zip(parents, tokens, strict=True)]
            logprobs = np.full((len(self.rows), count), -1.0, np.float32)
            return (
                FakeTop(self.make, self.rows)
                .step_top_k(np.arange(len(self.rows)), tokens, count)
                ._replace(logprobs=logprobs)
            )

    counts: list[int] = []
    for options in ({}, {"num_beams": 2}):
        model = OnlyTop(noise(10), [[1]])
        search(
            model, model.first, [[1]], Options.read(options, max_new_tokens=2, eos_token_id=EOS, suppress_tokens=[PAD])
        )
    assert counts == [1 + 1, 2 * 2 + 1]


def test_steps_show_each_token_and_the_text_that_it_makes_certain() -> None:
    prompts = [[1], [2, 3], [4, 4]]
    options = Options.read(max_new_tokens=8, eos_token_id=EOS, stop=["cd", "ha"])
    model, texts = Fake(noise(10), prompts), ["", "", ""]
    tokens: list[list[int]] = [[], [], []]
    for step in stream(model, model.first, prompts, options, decode=spell):
        for row, token, piece in zip(step.rows, step.tokens, step.pieces, strict=True):
            texts[row] += piece
            tokens[row].append(int(token))
    model = Fake(noise(10), prompts)
    results = search(model, model.first, prompts, options, decode=spell)
    assert tokens == [list(h.tokens) for (h,) in results]
    for text, (h,) in zip(texts, results, strict=True):
        whole = spell(h.tokens[:-1] if h.finish_reason == "stop" else h.tokens)
        assert text == min(whole.partition("cd")[0], whole.partition("ha")[0], key=len)


def test_closing_a_stream_stops_the_model() -> None:
    model = Fake(ending(50, 50), [[1], [2]])
    steps = stream(model, model.first, [[1], [2]], Options.read(max_new_tokens=40))
    assert model.calls == []
    next(steps)
    next(steps)
    assert len(model.calls) == 1
    steps.close()  # type: ignore[attr-defined]
    assert list(steps) == []
    assert len(model.calls) == 1


def test_beams_cannot_be_streamed() -> None:
    model = Fake(noise(10), [[1]])
    with pytest.raises(InputError, match="num_beams=2 cannot be streamed"):
        stream(model, model.first, [[1]], Options.read(num_beams=2, max_new_tokens=3))


def test_no_prompts_give_no_results() -> None:
    model = Fake(noise(10), [[1]])
    assert search(model, model.first[:0], [], Options.read(max_new_tokens=3)) == []
    assert list(stream(model, model.first[:0], [], Options.read(max_new_tokens=3))) == []


@pytest.mark.parametrize(
    ("prompt", "options", "count"),
    [
        (50, {"max_new_tokens": 5}, 5),
        (50, {"max_length": 53}, 3),
        (30, {"max_new_tokens": 50, "limit": 32}, 2),
        (30, {"limit": 32}, 2),
        (1, {"max_length": 9, "limit": 5}, 4),
    ],
)
def test_lengths_end_a_sequence(prompt: int, options: dict[str, Any], count: int) -> None:
    for mode in ({}, {"do_sample": True}, {"num_beams": 2}):
        ((hypothesis,),) = run([[1] * prompt], ending(99, 99), **options, **mode)
        assert (len(hypothesis.tokens), hypothesis.finish_reason) == (count, "length")


def test_prompts_without_room_are_refused_with_both_numbers() -> None:
    with pytest.raises(LimitError, match=r"prompt 1 has 50 tokens, max_length=40 counts them .* max_new_tokens"):
        run([[1], [1] * 50], max_length=40)
    with pytest.raises(LimitError, match="prompt 0 has 33 tokens and leaves no room in the model's 32"):
        run([[1] * 33], max_new_tokens=1, limit=32)
    with pytest.raises(InputError, match="neither max_new_tokens nor max_length"):
        run([[1]])


@pytest.mark.parametrize("mode", [{}, {"do_sample": True}])
def test_options_that_leave_no_token_are_refused(mode: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="prompt 1 has no allowed token left after 0 new ones"):
        run(
            [[1], [8] * 3],
            max_new_tokens=3,
            prefix_allowed_tokens_fn=lambda i, t: [[2], [PAD]][i],
            suppress_tokens=[PAD],
            **mode,
        )
    with pytest.raises(InputError, match="prompt 0 has no allowed token left after 3 new ones"):
        run([[3]], noise(5), max_new_tokens=9, no_repeat_ngram_size=1, min_new_tokens=9, **mode)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("options", [{}, {"do_sample": True}, {"num_beams": 2}, {"repetition_penalty": 2.0}])
def test_logits_that_are_no_numbers_are_an_error(value: float, options: dict[str, Any]) -> None:
    def broken(tokens: tuple[int, ...]) -> Floats:
        row = noise(10)(tokens)
        row[4] = value if len(tokens) == 3 else 0
        return row

    with pytest.raises(EdgebertError, match="not finite numbers"):
        run([[1]], broken, max_new_tokens=5, min_new_tokens=5, **options)


def test_of_equal_tokens_the_lowest_is_chosen() -> None:
    ((hypothesis,),) = run([[1]], lambda tokens: np.array([0, 1, 2, 2, 1, 2.0] + [0] * 4), max_new_tokens=3)
    assert hypothesis.tokens == (2, 2, 2)


@pytest.mark.parametrize("stop", ["bc", "c", ["xyz", "bc"]])
def test_stop_strings_end_a_sequence_across_tokens(stop: Any) -> None:
    logits = table({(5,): {1: 0.9}, (5, 1): {2: 0.9}, (5, 1, 2): {3: 0.9}, (5, 1, 2, 3): {4: 0.9}}, 10)
    ((hypothesis,),) = run([[5]], logits, max_new_tokens=4, stop=stop)
    assert (hypothesis.tokens, hypothesis.finish_reason) == ((1, 2, 3), "stop_string")
    with pytest.raises(InputError, match="needs a tokenizer"):
        search(Fake(logits, [[5]]), logits((5,))[None], [[5]], Options.read(max_new_tokens=4, stop=stop))


def test_tokens_beyond_the_vocabulary_are_refused() -> None:
    for options in ({"eos_token_id": [2, 10]}, {"bad_words_ids": [[1, 10]]}, {"forced_bos_token_id": 10}):
        with pytest.raises(InputError, match=f"{next(iter(options))} names token 10, the vocabulary is 0 to 9"):
            run([[1]], max_new_tokens=1, **options)


@pytest.mark.parametrize("mode", [{}, {"num_beams": 3, "num_return_sequences": 3}])
def test_many_vetoes_are_worth_whole_rows(mode: dict[str, Any]) -> None:
    banned = list(range(3, 90))

    def without(tokens: tuple[int, ...]) -> Floats:
        row = noise(100)(tokens)
        row[banned] = -30
        return row

    for prompt in range(3):
        few, many = Fake(without, [[prompt]]), Fake(noise(100), [[prompt]])
        (expected,) = search(few, few.first, [[prompt]], Options.read(max_new_tokens=4, **mode))
        options = Options.read(max_new_tokens=4, suppress_tokens=banned, **mode)
        (results,) = search(many, many.first, [[prompt]], options)
        assert results[0].tokens[0] not in banned
        if not mode:
            assert [h.tokens for h in results] == [h.tokens for h in expected]


def test_keys_are_as_many_as_prompts() -> None:
    model = Fake(noise(10), [[1]])
    for way in (search, stream):
        with pytest.raises(InputError, match="2 keys were given for 1 prompts"):
            way(model, model.first, [[1]], Options.read(max_new_tokens=2), keys=[[1], [2]])
