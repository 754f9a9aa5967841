"""Coroutines that share a model get what direct calls give."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebert_runtime import Bundle, Embedder, Generator, Tagger
from edgebert_runtime.errors import DeadlineError, EdgebertError, InputError, LimitError, QueueFullError
from edgebert_runtime.serving.async_engine import AsyncEngine
from edgebert_runtime.serving.async_text_generator import AsyncTextGenerator

TEXTS = ["the cat sat", "a dog", "sun and moon and rain in the sun", "x", "rain in rain in the rain and a cat"]


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


@pytest.fixture(scope="module")
def embedder(task_bundle: Callable[[str], Path]) -> Embedder:
    return Embedder(Bundle.open(task_bundle("embed")))


@pytest.fixture(scope="module")
def generator(decoder_bundle: Callable[[str], Path]) -> Generator:
    return Generator(Bundle.open(decoder_bundle("cpu")))


def test_calls_of_all_methods_give_what_they_give_alone(embedder: Embedder, task_bundle: Callable[[str], Path]) -> None:
    tagger = Tagger(Bundle.open(task_bundle("tag")))

    async def main() -> None:
        async with AsyncEngine(embedder) as vectors, AsyncEngine(tagger) as tags:
            calls = [TEXTS[: 1 + number % 5] for number in range(40)]
            results = await asyncio.gather(*(vectors.run(partial(Embedder.embed, texts=texts)) for texts in calls))
            entities = await tags.run(lambda engine: engine.tag(TEXTS))
        for texts, result in zip(calls, results, strict=True):
            np.testing.assert_allclose(result, embedder.embed(texts), atol=1e-5)
        assert [[(e.label, e.start, e.end) for e in text] for text in entities] == [
            [(e.label, e.start, e.end) for e in text] for text in tagger.tag(TEXTS)
        ]
        stats = vectors.batcher.stats()
        assert stats.rows == sum(map(len, calls))
        assert stats.batches < stats.rows
        assert stats.waiting == stats.queued_tokens == 0

    run(main())


def test_rows_of_a_batch_have_like_lengths_and_fit(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[list[int]] = []
    plain = Embedder.run_rows

    def watch(engine: Any, rows: Any, session: Any = None) -> Any:
        shapes.append([len(row.ids) for row in rows])
        return plain(engine, rows, session)

    monkeypatch.setattr(Embedder, "run_rows", watch)
    texts = [[5] * length for length in (3, 4, 30, 31, 3, 20, 4, 28, 3)]

    async def main() -> None:
        async with AsyncEngine(embedder, max_batch_tokens=64) as model:
            await model.run(lambda engine: engine.embed(texts))

    run(main())
    assert sorted(length for shape in shapes for length in shape) == sorted(map(len, texts))
    for shape in shapes:
        assert len(shape) * max(shape) <= 64
        assert max(shape) <= 1.25 * shape[0]
        assert min(shape) >= int(shape[0] / 1.25)


def test_a_row_that_fails_fails_alone(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Embedder.run_rows

    def poisoned(engine: Any, rows: Any, session: Any = None) -> Any:
        if any(13 in row.ids for row in rows):
            raise EdgebertError("the model cannot take 13")
        return plain(engine, rows, session)

    monkeypatch.setattr(Embedder, "run_rows", poisoned)

    async def main() -> None:
        async with AsyncEngine(embedder) as model:
            calls = [model.run(partial(Embedder.embed, texts=[ids])) for ids in ([7, 8], [7, 13], [8, 9], [9])]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert [isinstance(result, EdgebertError) for result in results] == [False, True, False, False]
            with pytest.raises(InputError):
                await model.run(lambda engine: engine.embed([b"bytes"]))  # type: ignore[list-item]

    run(main())


def test_limits_deadlines_and_the_end(embedder: Embedder) -> None:
    async def main() -> None:
        model = AsyncEngine(embedder, max_queued_tokens=8)
        with pytest.raises(EdgebertError, match="use it inside its async with block"):
            await model.run(lambda engine: engine.embed(["a"]))
        async with model:
            with pytest.raises(LimitError, match="the texts have 20 tokens together, the limit is 8"):
                await model.run(lambda engine: engine.embed([[5] * 20]))
            with pytest.raises(DeadlineError):
                await model.run(lambda engine: engine.embed([[5]]), timeout=1e-9)
        with pytest.raises(EdgebertError, match="closed"):
            await model.run(lambda engine: engine.embed(["a"]))

    run(main())


def test_many_windows_are_finished_after_the_block(embedder: Embedder) -> None:
    async def main() -> None:
        async with AsyncEngine(embedder) as model:
            call = asyncio.create_task(model.run(lambda engine: engine.embed([[5, 6]] * 1500)))
            await asyncio.sleep(0)
        assert (await call).shape == (1500, embedder.dim)

    run(main())


def test_streams_and_whole_texts_give_what_they_give_alone(generator: Generator) -> None:
    options: dict[str, Any] = {"max_new_tokens": 10}

    async def streamed(model: AsyncTextGenerator, text: str) -> str:
        return "".join([piece async for piece in model.stream(text, **options)])

    async def main() -> None:
        async with AsyncTextGenerator(generator, slots=3) as model:
            pieces = asyncio.gather(*(streamed(model, text) for text in TEXTS))
            whole = asyncio.gather(*(model.generate(text, num_beams=2, **options) for text in TEXTS))
            texts, beams = await pieces, await whole
        assert texts == [generation.text for generation in generator.generate(TEXTS, **options)]
        assert [generation.text for (generation,) in beams] == [
            generation.text for generation in generator.generate(TEXTS, num_beams=2, **options)
        ]

    run(main())


def test_a_reader_that_leaves_ends_its_request(generator: Generator) -> None:
    async def main() -> None:
        async with AsyncTextGenerator(generator) as model:
            stream = model.stream(TEXTS[0], max_new_tokens=30, min_new_tokens=30)
            await anext(stream)
            await stream.aclose()
            generated = model.scheduler.generated_tokens
            await model.generate("a", max_new_tokens=1)
            assert model.scheduler.stats().active == 0
            assert model.scheduler.generated_tokens <= generated + 1
            waiting = asyncio.create_task(model.generate(TEXTS[0], max_new_tokens=30, min_new_tokens=30))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    run(main())


def test_an_error_in_the_block_fails_requests_at_once(generator: Generator) -> None:
    async def main() -> None:
        model = AsyncTextGenerator(generator, slots=1)
        tasks = []
        try:
            async with model:
                tasks = [asyncio.create_task(model.generate("a", max_new_tokens=30)) for _ in range(20)]
                await asyncio.sleep(0)
                raise KeyError
        except KeyError:
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results[-1], EdgebertError)
        with pytest.raises(QueueFullError):
            await model.generate("a")

    run(main())


def test_a_step_that_raises_fails_what_waits_and_the_next_request_works(
    generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with AsyncTextGenerator(generator) as model:
            with monkeypatch.context() as patch:

                def broken() -> bool:
                    raise RuntimeError("a bug")

                patch.setattr(model.scheduler, "run_step", broken)
                with pytest.raises(RuntimeError, match="a bug"):
                    await model.generate("a", max_new_tokens=1)
            assert len(await model.generate("a", max_new_tokens=1)) == 1

    run(main())


def test_a_result_that_cannot_be_read_ends_its_request(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with AsyncTextGenerator(generator) as model:
            with monkeypatch.context() as patch:

                def broken(*_: object) -> None:
                    raise ValueError("no text")

                patch.setattr(generator, "results", broken)
                with pytest.raises(ValueError, match="no text"):
                    await model.generate("a", max_new_tokens=1)
            assert len(await model.generate("a", max_new_tokens=1)) == 1

    run(main())


@pytest.mark.parametrize("timeout", [0, -1, True, "5", float("nan")])
def test_a_timeout_is_a_number_of_seconds(embedder: Embedder, timeout: Any) -> None:
    async def main() -> None:
        async with AsyncEngine(embedder) as model:
            with pytest.raises(InputError, match="timeout=.* is not a number of seconds above 0"):
                await model.run(lambda engine: engine.embed(["a"]), timeout=timeout)

    run(main())


@pytest.mark.parametrize("value", [0, "x"])
def test_the_size_of_a_batch_is_checked(embedder: Embedder, value: Any) -> None:
    with pytest.raises(InputError, match=f"max_batch_tokens={value!r}"):
        AsyncEngine(embedder, max_batch_tokens=value)


def test_a_long_call_that_is_cancelled_leaves_no_rows(embedder: Embedder) -> None:
    async def main() -> None:
        async with AsyncEngine(embedder) as model:
            call = asyncio.create_task(model.run(lambda engine: engine.embed([[5] * 30] * 3000)))
            while len(model.batcher.queue) < 600:  # two windows wait
                await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            batches = model.batcher.batches
            await model.run(lambda engine: engine.embed(["a"]))
            assert model.batcher.batches <= batches + 2
            assert len(model.batcher.queue) == 0

    run(main())
