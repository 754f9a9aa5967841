"""Generation with cached keys and values gives what the PyTorch model gives when it computes everything anew."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgebert.checkpoints import open_checkpoint
from edgebert.models.gpt2.heads import Gpt2LanguageModel
from edgebert_runtime import Bundle, Generation, Generator
from edgebert_runtime.errors import InputError, LimitError
from edgebert_runtime.generation import Options, search

PROMPTS = ["the cat sat", "a", "sun and moon and sun and moon and", "rain in rain in the", "dog ran"]
PROPERTY = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "greedy with a penalty": {"repetition_penalty": 1.7, "no_repeat_ngram_size": 3},
    "beams": {"num_beams": 4, "length_penalty": 0.6, "early_stopping": "never"},
    "n best": {"num_beams": 3, "num_return_sequences": 3, "early_stopping": True},
    "sampling": {"do_sample": True, "seed": 5, "top_k": 20},
    "draws": {"do_sample": True, "seed": 5, "num_return_sequences": 3},
}


class Anew:
    """The PyTorch model under a search, without any cache: every row is computed from its first token on."""

    def __init__(self, model: Gpt2LanguageModel, prompts: list[list[int]]) -> None:
        self.model, self.rows = model, [list(prompt) for prompt in prompts]

    @torch.no_grad()
    def logits(self) -> Any:
        results = []
        for row in self.rows:
            ids = torch.tensor([row])
            last = torch.tensor([len(row) - 1])
            results.append(self.model(ids, torch.ones_like(ids), last, self.model.gpt2.empty_past(1))[0])
        return torch.cat(results).numpy()

    def step(self, parents: Any, tokens: Any) -> Any:
        self.rows = [
            [*self.rows[parent], token] for parent, token in zip(parents.tolist(), tokens.tolist(), strict=True)
        ]
        return self.logits()


@pytest.fixture(scope="module")
def model(task_checkpoint: Callable[[str], Path]) -> Gpt2LanguageModel:
    loaded = open_checkpoint(task_checkpoint("generate")).load_model()
    assert isinstance(loaded, Gpt2LanguageModel)
    return loaded


@pytest.fixture(scope="module", params=["cpu", "portable"])
def engine(request: pytest.FixtureRequest, decoder_bundle: Callable[[str], Path]) -> Generator:
    return Generator(Bundle.open(decoder_bundle(request.param)))


def ids_of(engine: Generator, text: str) -> list[int]:
    ids: list[int] = engine._tokenizer.content(text).ids
    return ids


def anew(engine: Generator, model: Gpt2LanguageModel, texts: list[str], **options: Any) -> list[Any]:
    """Return what a search over the PyTorch model finds."""
    prompts = [ids_of(engine, text) for text in texts]
    rows = Anew(model, prompts)
    chosen = Options.read({"max_new_tokens": 128, **engine.decoding}, **options)
    return search(rows, rows.logits(), prompts, chosen, limit=engine.max_tokens, decode=engine._decode)


def flat(results: list[Any]) -> list[Generation]:
    return [item for several in results for item in (several if isinstance(several, list) else [several])]


@pytest.mark.parametrize("mode", MODES)
def test_equals_the_model_without_a_cache(engine: Generator, model: Gpt2LanguageModel, mode: str) -> None:
    options = {"max_new_tokens": 17, **MODES[mode]}
    results = flat(engine.generate(PROMPTS, **options))
    expected = [item for several in anew(engine, model, PROMPTS, **options) for item in several]
    assert [item.tokens for item in results] == [item.tokens for item in expected]
    assert [item.finish_reason for item in results] == [item.finish_reason for item in expected]
    for item, second in zip(results, expected, strict=True):
        np.testing.assert_allclose(item.token_logprobs, second.token_logprobs, atol=1e-4)
        assert item.score == pytest.approx(second.score, abs=1e-4)


@PROPERTY
@given(
    texts=st.lists(st.sampled_from([*PROMPTS, "", "x y z", "日本 é", "cat " * 12]), min_size=1, max_size=6),
    mode=st.sampled_from(sorted(MODES)),
    budget=st.sampled_from([None, 1, 60, 200]),
    count=st.integers(1, 9),
)
def test_batch_equals_single(engine: Generator, texts: list[str], mode: str, budget: int | None, count: int) -> None:
    options = {"max_new_tokens": count, **MODES[mode]}
    together = flat(engine.generate(texts, max_batch_tokens=budget, **options))
    alone = flat([engine.generate([text], **options)[0] for text in texts])
    assert [item.tokens for item in together] == [item.tokens for item in alone]
    np.testing.assert_allclose([item.score for item in together], [item.score for item in alone], atol=1e-4)


def test_token_ids_stand_for_a_text(engine: Generator) -> None:
    ids = ids_of(engine, PROMPTS[0])
    texts, numbers, arrays = engine.generate([PROMPTS[0], ids, np.array(ids)], max_new_tokens=5)
    assert texts == numbers == arrays


def test_an_empty_prompt_starts_from_the_first_token(engine: Generator) -> None:
    empty, bos, nothing = engine.generate(["", [engine.decoding["bos_token_id"]], []], max_new_tokens=6)
    assert empty == bos == nothing


@pytest.mark.parametrize("mode", ["greedy", "greedy with a penalty", "sampling"])
@pytest.mark.parametrize("prompt_lookup", [False, True])
def test_pieces_join_to_the_text(engine: Generator, mode: str, prompt_lookup: bool) -> None:
    for prompt in PROMPTS:
        whole = engine.generate([prompt], max_new_tokens=20, **MODES[mode])[0]
        assert (
            "".join(engine.stream(prompt, max_new_tokens=20, prompt_lookup=prompt_lookup, **MODES[mode])) == whole.text
        )


class Counting:
    """A session that notes the rows and new tokens of each run."""

    def __init__(self, session: Any) -> None:
        self.session, self.shapes = session, []  # type: ignore[var-annotated]

    def run(self, names: Any, feeds: Any) -> Any:
        self.shapes.append(feeds["input_ids"].shape)
        return self.session.run(names, feeds)


@pytest.fixture
def counted(engine: Generator) -> Generator:
    if engine._graph.in_place:
        pytest.fail("only graphs that return their past run on a session of the caller's own")
    return Generator(engine.bundle, session=Counting(engine._session))


def shapes(engine: Generator) -> list[Any]:
    session: Any = engine._session
    results = list(session.shapes)
    session.shapes.clear()
    return results


@pytest.mark.parametrize("engine", ["portable"], indirect=True)
def test_a_stream_that_is_closed_stops_the_model(counted: Generator) -> None:
    pieces = counted.stream(PROMPTS[0], max_new_tokens=30)
    next(pieces)
    steps = len(shapes(counted))
    assert steps < 10
    pieces.close()  # type: ignore[attr-defined]
    assert shapes(counted) == []


@pytest.mark.parametrize("engine", ["portable"], indirect=True)
def test_rows_that_end_cost_nothing(counted: Generator) -> None:
    results = counted.generate(PROMPTS, max_new_tokens=12)
    eos = results[0].tokens[2]
    ended = counted.generate(PROMPTS, max_new_tokens=12, eos_token_id=eos)
    lengths = sorted(len(item.tokens) for item in ended)
    assert lengths[0] < 12
    steps = shapes(counted)[-lengths[-1] + 1 :]
    assert [rows for rows, _ in steps] == [sum(length > step for length in lengths) for step in range(1, lengths[-1])]


@pytest.mark.parametrize("engine", ["portable"], indirect=True)
def test_lookup_takes_fewer_steps_where_text_repeats(counted: Generator) -> None:
    prompt = ids_of(counted, "the cat sat on a mat and ")
    again: dict[str, Any] = {"prefix_allowed_tokens_fn": lambda _row, tokens: [tokens[-len(prompt)]]}
    (expected,) = counted.generate([prompt], max_new_tokens=20, **again)  # repeats the prompt
    assert len(shapes(counted)) == 20
    (results,) = counted.generate([prompt], max_new_tokens=20, prompt_lookup=True, **again)
    assert results.tokens == expected.tokens
    assert len(shapes(counted)) < 10


@PROPERTY
@given(
    words=st.lists(st.sampled_from("cat sat mat the a".split()), min_size=1, max_size=14),
    penalty=st.sampled_from([None, 1.3]),
)
def test_lookup_changes_nothing(engine: Generator, words: list[str], penalty: float | None) -> None:
    text = " ".join(words)
    options: dict[str, Any] = {"max_new_tokens": 24, "repetition_penalty": penalty}
    (plain,) = engine.generate([text], **options)
    (guessed,) = engine.generate([text], prompt_lookup=True, **options)
    assert guessed.tokens == plain.tokens
    np.testing.assert_allclose(guessed.token_logprobs, plain.token_logprobs, atol=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_a_prefix_is_computed_once(engine: Generator, mode: str) -> None:
    prefix = engine.prefix("the cat sat on")
    ends = [" a mat", " the moon and the sun", " x"]
    joined = [[*prefix.ids, *ids_of(engine, end)] for end in ends]
    options = {"max_new_tokens": 9, **MODES[mode]}
    results, expected = flat(engine.generate(ends, prefix=prefix, **options)), flat(engine.generate(joined, **options))
    assert [item.tokens for item in results] == [item.tokens for item in expected]
    np.testing.assert_allclose([item.score for item in results], [item.score for item in expected], atol=1e-4)


def expected_scores(model: Gpt2LanguageModel, ids: list[int], positions: int) -> list[float]:
    """Score each token by the half window rule, one token at a time."""
    results, begin = [], 0
    for place in range(1, len(ids)):
        if place > begin + positions:
            begin += positions - positions // 2
        row = Anew(model, [ids[begin:place]]).logits()[0]
        results.append(float(torch.from_numpy(row).log_softmax(-1)[ids[place]]))
    return results


@pytest.mark.parametrize("budget", [None, 1, 7, 40])
def test_scores_are_those_of_the_model(engine: Generator, model: Gpt2LanguageModel, budget: int | None) -> None:
    texts = [*PROMPTS, "", "cat and dog " * 20]
    bos = engine.decoding["bos_token_id"]
    for text, results in zip(texts, engine.score(texts, max_batch_tokens=budget), strict=True):
        ids = [bos, *ids_of(engine, text)]
        assert results.tokens == tuple(ids[1:])
        np.testing.assert_allclose(results.token_logprobs, expected_scores(model, ids, engine.max_tokens), atol=1e-4)
        assert results.score == pytest.approx(sum(results.token_logprobs))
        assert results.perplexity == pytest.approx(math.exp(-results.score / max(1, len(ids) - 1)))


def test_what_was_generated_scores_the_same(engine: Generator) -> None:
    prompt = ids_of(engine, PROMPTS[2])
    (generation,) = engine.generate([[engine.decoding["bos_token_id"], *prompt]], max_new_tokens=10)
    (results,) = engine.score([[*prompt, *generation.tokens]])
    np.testing.assert_allclose(results.token_logprobs[len(prompt) :], generation.token_logprobs, atol=1e-4)


def test_the_context_ends(engine: Generator) -> None:
    limit = engine.max_tokens
    prompt = [7] * (limit - 2)
    (generation,) = engine.generate([prompt], max_new_tokens=50)
    assert (len(generation.tokens), generation.finish_reason) == (2, "length")
    assert len(engine.generate([prompt])[0].tokens) == 2
    with pytest.raises(LimitError, match=rf"prompt 1 has {limit} tokens and leaves no room in the model's {limit}"):
        engine.generate([[7], [7] * limit])
    with pytest.raises(LimitError, match="max_length=3"):
        engine.generate([[7, 8, 9]], max_length=3)
    assert len(engine.generate([[7, 8, 9]], max_length=5)[0].tokens) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens=0"),
        ({"max_new_tokens": 1.5}, r"max_new_tokens=1\.5"),
        ({"num_beams": "4"}, "num_beams='4'"),
        ({"top_k": 5}, "top_k=5 has no effect without do_sample"),
        ({"temprature": 1.0}, "did you mean temperature"),
        ({"max_batch_tokens": 0}, "max_batch_tokens=0"),
        ({"prompt_lookup": True, "num_beams": 2}, "prompt_lookup guesses for one sequence"),
    ],
)
def test_options_that_cannot_be(engine: Generator, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        engine.generate(["a"], **options)


@pytest.mark.parametrize("options", [{"num_beams": 2}, {"do_sample": True, "num_return_sequences": 2}])
def test_what_cannot_be_streamed(engine: Generator, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="cannot be streamed"):
        engine.stream("a", **options)


@pytest.mark.parametrize(("prompts", "message"), [("a text", "one str was given"), ([3], "prompt 0|text 0 is int")])
def test_prompts_that_are_none(engine: Generator, prompts: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        engine.generate(prompts)


def test_nothing_in_nothing_out(engine: Generator) -> None:
    assert engine.generate([]) == []
    assert engine.score([]) == []


def test_stop_strings_end_a_text(engine: Generator) -> None:
    (whole,) = engine.generate([PROMPTS[0]], max_new_tokens=20)
    middle = whole.text[len(whole.text) // 2 :][:2]
    (generation,) = engine.generate([PROMPTS[0]], max_new_tokens=20, stop=[middle])
    assert generation.text == whole.text[: whole.text.index(middle)]
    assert generation.finish_reason == "stop_string"


def test_a_callback_sees_the_numbers_of_prompts(engine: Generator) -> None:
    calls: set[int] = set()

    def allowed(number: int, tokens: list[int]) -> Iterator[int]:
        calls.add(number)
        return iter([7 + number])

    results = engine.generate(PROMPTS, max_new_tokens=3, max_batch_tokens=30, prefix_allowed_tokens_fn=allowed)
    assert [item.tokens for item in results] == [(7 + number,) * 3 for number in range(len(PROMPTS))]
    assert calls == set(range(len(PROMPTS)))


def test_engines_are_shared_copied_and_pickled(engine: Generator) -> None:
    expected = engine.generate(PROMPTS, max_new_tokens=8)
    with ThreadPoolExecutor(4) as pool:
        assert all(
            results == expected for results in pool.map(lambda _: engine.generate(PROMPTS, max_new_tokens=8), range(8))
        )
    for second in (copy.copy(engine), pickle.loads(pickle.dumps(engine))):
        assert second.generate(PROMPTS, max_new_tokens=8) == expected


def test_progress_is_reported(engine: Generator) -> None:
    calls: list[tuple[int, int | None]] = []
    engine.generate(
        PROMPTS, max_new_tokens=2, max_batch_tokens=30, progress=lambda done, total: calls.append((done, total))
    )
    assert calls[-1] == (len(PROMPTS), len(PROMPTS))
    assert len(calls) > 1
