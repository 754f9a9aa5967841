"""Requests that share the steps of a model get what they get alone, in any traffic."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgebert_runtime import Bundle, Generation, Generator
from edgebert_runtime.decoders.slot_cache import chunk_size
from edgebert_runtime.errors import BundleError, DeadlineError, EdgebertError, InputError, LimitError, QueueFullError
from edgebert_runtime.generation import Step
from edgebert_runtime.serving.scheduler import Scheduler

PROPERTY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MODES: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.7, "no_repeat_ngram_size": 3},
    {"num_beams": 3, "length_penalty": 0.6},
    {"num_beams": 2, "num_return_sequences": 2, "early_stopping": True, "no_repeat_ngram_size": 2},
    {"do_sample": True, "seed": 5, "top_k": 20},
    {"do_sample": True, "seed": 3, "num_return_sequences": 3},
    {"stop": ["a", "ing"], "min_new_tokens": 1},
]


@pytest.fixture(scope="module")
def engine(decoder_bundle: Callable[[str], Path]) -> Generator:
    return Generator(Bundle.open(decoder_bundle("cpu")))


class Alone:
    """What ``generate`` gives each request alone, computed once."""

    def __init__(self, engine: Generator) -> None:
        self.engine = engine
        self.results: dict[str, list[Generation]] = {}

    def __call__(self, ids: list[int], options: dict[str, Any]) -> list[Generation]:
        key = repr((ids, sorted(options.items())))
        if key not in self.results:
            (result,) = self.engine.generate([ids], **options)
            self.results[key] = result if isinstance(result, list) else [result]
        return self.results[key]


@pytest.fixture(scope="module")
def alone(engine: Generator) -> Alone:
    return Alone(engine)


def prompt_of(length: int, first: int) -> list[int]:
    """Return token ids; prompts of the same ``first`` begin alike."""
    return [first, *np.random.default_rng(first).integers(5, 40, 40)[: length - 1].tolist()]


def assert_equal(actual: list[Generation], expected: list[Generation]) -> None:
    assert [item.tokens for item in actual] == [item.tokens for item in expected]
    assert [(item.text, item.finish_reason) for item in actual] == [
        (item.text, item.finish_reason) for item in expected
    ]
    for item, reference in zip(actual, expected, strict=True):
        np.testing.assert_allclose(item.token_logprobs, reference.token_logprobs, atol=1e-4)


def run(scheduler: Scheduler) -> None:
    while scheduler.step():
        pass


requests = st.tuples(
    st.integers(1, 34),  # tokens of the prompt
    st.sampled_from([6, 7, 8]),  # its first one
    st.integers(1, 12),  # new tokens
    st.sampled_from(MODES),
    st.integers(0, 9),  # the step before which it arrives
    st.sampled_from([None, None, None, 0, 1, 3, 7]),  # the steps after which it is cancelled
)


@PROPERTY
@given(
    arrivals=st.lists(requests, min_size=1, max_size=9),
    slots=st.sampled_from([3, 4, 5, 8]),
    chunk=st.sampled_from([3, 7, 11, 1000]),
    prefix_tokens=st.sampled_from([0, 40, 1000]),
)
def test_traffic_changes_no_result(
    engine: Generator, alone: Alone, arrivals: list[Any], slots: int, chunk: int, prefix_tokens: int
) -> None:
    scheduler = Scheduler(engine, slots=slots, chunk=chunk, prefix_tokens=prefix_tokens)
    futures: list[tuple[Future[list[Generation]], list[Generation], int | None]] = []
    waiting = sorted(arrivals, key=lambda request: request[4])
    number, busy = 0, True
    while waiting or busy:
        while waiting and waiting[0][4] <= number:
            length, first, count, mode, _, leaves = waiting.pop(0)
            options = {"max_new_tokens": count, **mode}
            ids = prompt_of(length, first)
            end = None if leaves is None else number + leaves
            futures.append((scheduler.submit(ids, **options), alone(ids, options), end))
        for future, _, end in futures:
            if end == number:
                future.cancel()
        busy = scheduler.step()
        check_slots(scheduler)
        number += 1
    for future, expected, end in futures:
        assert future.done()
        if end is None:
            assert_equal(future.result(), expected)
    assert (scheduler.reserved_rows, scheduler.reserved_tokens) == (0, 0)
    assert not scheduler.cache.lengths.any()


def check_slots(scheduler: Scheduler) -> None:
    """Expect running rows first, then the prompt in prefill, and all other slots empty."""
    table, lengths = scheduler.table, scheduler.cache.lengths
    assert table.running + (table.prefilling is not None) <= scheduler.slots
    assert (lengths[: table.running] > 0).all()
    assert not lengths[table.running + (table.prefilling is not None) :].any()
    assert [owner.slots[number] for owner, number in table.owners] == list(range(table.running))
    assert scheduler.reserved_tokens <= scheduler.max_cached_tokens
    assert lengths.sum() <= scheduler.reserved_tokens


@pytest.mark.parametrize("chunk", range(3, 12))
def test_no_chunk_has_one_token_of_a_longer_prompt(chunk: int) -> None:
    for length in range(1, 60):
        sizes, left = [], length
        while left:
            sizes.append(chunk_size(left, chunk))
            left -= sizes[-1]
        assert sum(sizes) == length
        assert max(sizes) <= chunk
        assert length == 1 or min(sizes) > 1


def test_a_step_runs_one_chunk_and_all_rows(engine: Generator) -> None:
    scheduler = Scheduler(engine, slots=8, chunk=5)
    steps: list[int] = []
    scheduler.submit(prompt_of(4, 6), max_new_tokens=30, min_new_tokens=30, on_step=lambda step: steps.append(1))
    scheduler.step()
    scheduler.submit(prompt_of(34, 7), max_new_tokens=2)
    for _ in range(7):  # 34 tokens in chunks of 5
        rows, chunks = len(steps), scheduler.chunks
        scheduler.step()
        assert len(steps) == rows + 1
        assert scheduler.chunks == chunks + 1


def test_without_running_rows_a_prompt_is_one_chunk(engine: Generator) -> None:
    scheduler = Scheduler(engine, chunk=5)
    scheduler.submit(prompt_of(34, 7), max_new_tokens=2)
    scheduler.step()
    assert scheduler.chunks == 1


def test_pieces_join_to_the_text(engine: Generator, alone: Alone) -> None:
    pieces: list[str] = []

    def on_step(step: Step) -> None:
        pieces.extend(step.pieces)

    options = {"max_new_tokens": 12}
    scheduler = Scheduler(engine)
    future = scheduler.submit(prompt_of(5, 6), on_step=on_step, **options)  # type: ignore[arg-type]
    run(scheduler)
    assert "".join(pieces) == future.result()[0].text == alone(prompt_of(5, 6), options)[0].text


def test_an_error_in_one_request_ends_it_alone(engine: Generator, alone: Alone) -> None:
    def broken(step: Step) -> None:
        raise ValueError("a callback failed")

    def nothing(prompt: int, tokens: list[int]) -> list[int]:
        return []

    scheduler = Scheduler(engine)
    options = {"max_new_tokens": 9}
    fine = scheduler.submit(prompt_of(6, 6), **options)  # type: ignore[arg-type]
    failing = scheduler.submit(prompt_of(6, 7), on_step=broken, max_new_tokens=9)
    impossible = scheduler.submit(prompt_of(6, 7), prefix_allowed_tokens_fn=nothing, max_new_tokens=9)
    run(scheduler)
    assert_equal(fine.result(), alone(prompt_of(6, 6), options))
    with pytest.raises(ValueError, match="a callback failed"):
        failing.result()
    with pytest.raises(InputError, match="returned \\[\\] for prompt 0"):
        impossible.result()


def test_an_error_of_the_session_ends_the_rows_of_that_run(
    engine: Generator, alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = Scheduler(engine, chunk=3)
    options: dict[str, Any] = {"max_new_tokens": 9}
    running = scheduler.submit(prompt_of(6, 6), **options)
    scheduler.step()
    waiting = scheduler.submit(prompt_of(30, 7), **options)
    scheduler.step()
    with monkeypatch.context() as patch:

        def fail(*args: object) -> None:
            raise EdgebertError("the device is lost")

        patch.setattr(scheduler.cache, "step", fail)
        scheduler.step()
    with pytest.raises(EdgebertError, match="the device is lost"):
        running.result()
    run(scheduler)
    assert_equal(waiting.result(), alone(prompt_of(30, 7), options))


@pytest.mark.parametrize("steps", [0, 1, 2, 4])
def test_a_cancelled_request_is_not_computed_again(engine: Generator, steps: int) -> None:
    scheduler = Scheduler(engine)
    seen: list[Step] = []
    future = scheduler.submit(prompt_of(6, 6), max_new_tokens=30, min_new_tokens=30, on_step=seen.append)
    for _ in range(steps):
        scheduler.step()
    before = len(seen)
    assert future.cancel()
    assert not scheduler.step()
    assert len(seen) == before
    assert scheduler.stats().cached_tokens == 0
    with pytest.raises(CancelledError):
        future.result()


def test_a_request_past_its_deadline_ends(engine: Generator) -> None:
    now = [0.0]
    scheduler = Scheduler(engine, slots=1, clock=lambda: now[0])
    running = scheduler.submit(prompt_of(6, 6), max_new_tokens=30, min_new_tokens=30, timeout=5)
    scheduler.step()
    waiting = scheduler.submit(prompt_of(6, 7), max_new_tokens=3, timeout=4)
    patient = scheduler.submit(prompt_of(6, 8), max_new_tokens=3)
    for now[0] in (1, 2, 3, 4):
        scheduler.step()
    with pytest.raises(DeadlineError):
        waiting.result(timeout=0)
    now[0] = 5
    scheduler.step()
    with pytest.raises(DeadlineError):
        running.result(timeout=0)
    run(scheduler)
    assert len(patient.result()[0].tokens) == 3


def test_what_cannot_fit_is_refused_and_what_does_not_fit_yet_waits(engine: Generator) -> None:
    scheduler = Scheduler(engine, slots=2, max_cached_tokens=40, max_queued_tokens=60)
    with pytest.raises(LimitError, match="needs 3 rows, there are 2 slots"):
        scheduler.submit([6], num_beams=3, max_new_tokens=1)
    with pytest.raises(
        LimitError, match=r"the request may have 41 tokens in the KV cache, the limit is 40; lower max_new"
    ):
        scheduler.submit(prompt_of(11, 6), max_new_tokens=30)
    first = scheduler.submit(prompt_of(10, 6), max_new_tokens=20, min_new_tokens=20)
    scheduler.step()
    second = scheduler.submit(prompt_of(10, 7), max_new_tokens=20)
    third = scheduler.submit(prompt_of(10, 8), max_new_tokens=20)
    with pytest.raises(QueueFullError, match=r"60 tokens wait already, the limit is 60; try again in \d+ s") as full:
        scheduler.submit([6], max_new_tokens=2)
    assert 1 <= full.value.retry_after <= 60
    while not first.done():
        assert scheduler.stats().waiting == 2
        scheduler.step()
    run(scheduler)
    assert second.result()
    assert third.result()


def test_one_thread_steps(engine: Generator) -> None:
    scheduler = Scheduler(engine)
    errors: list[EdgebertError] = []

    def step(_: Step) -> None:
        def second_thread() -> None:
            try:
                scheduler.step()
            except EdgebertError as error:
                errors.append(error)

        thread = threading.Thread(target=second_thread)
        thread.start()
        thread.join()

    scheduler.submit([6], on_step=step, max_new_tokens=1)
    run(scheduler)
    assert [str(error) for error in errors] == ["two threads step the same Scheduler; only one may"]


def test_close_fails_what_is_left_and_drain_finishes_it(engine: Generator) -> None:
    scheduler = Scheduler(engine, slots=1)
    futures = [scheduler.submit(prompt_of(6, first), max_new_tokens=9) for first in (6, 7, 8)]
    scheduler.step()
    scheduler.drain()
    with pytest.raises(QueueFullError, match="about to stop"):
        scheduler.submit([6])
    scheduler.step()
    scheduler.close()
    for future in futures:
        with pytest.raises(EdgebertError, match="closed before the request was finished"):
            future.result(timeout=0)
    drained = Scheduler(engine, slots=1)
    futures = [drained.submit(prompt_of(6, first), max_new_tokens=9) for first in (6, 7, 8)]
    drained.drain()
    run(drained)
    assert all(future.result(timeout=0) for future in futures)


def test_prefixes_are_copied_and_change_nothing(engine: Generator, alone: Alone) -> None:
    scheduler = Scheduler(engine, prefix_tokens=100)
    options: dict[str, Any] = {"max_new_tokens": 6}
    shared = prompt_of(30, 6)
    prompts = [shared, [*shared[:25], 9, 11, 12], shared, [*shared, 13], [*shared[:20], 14]]
    for prompt in prompts:
        future = scheduler.submit(prompt, **options)
        run(scheduler)
        assert_equal(future.result(), alone(prompt, options))
    assert scheduler.stats().prefix_hit_tokens == 25 + 28 + 29 + 19
    assert scheduler.prefixes.tokens <= 100


def test_a_bundle_that_copies_its_cache_is_refused(decoder_bundle: Callable[[str], Path]) -> None:
    with pytest.raises(BundleError, match="copies its KV cache at each step; export it with the target cpu"):
        Scheduler(Generator(Bundle.open(decoder_bundle("portable"))))


@pytest.mark.parametrize(
    ("option", "value"),
    [("slots", 0), ("chunk", 2), ("max_cached_tokens", 0), ("max_queued_tokens", "x"), ("prefix_tokens", -1)],
)
def test_options_are_checked(engine: Generator, option: str, value: object) -> None:
    with pytest.raises(InputError, match=f"{option}={value!r}"):
        Scheduler(engine, **{option: value})  # type: ignore[arg-type]
