"""An encoder for asyncio: many coroutines share its batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from edgebert_runtime.errors import EdgebertError
from edgebert_runtime.serving.async_model import AsyncModel
from edgebert_runtime.serving.batcher import Batcher, BatcherOptions, Flow
from edgebert_runtime.tasks.base.batch_pipeline import BatchEngine

if TYPE_CHECKING:
    from typing_extensions import Unpack

EngineT = TypeVar("EngineT", bound=BatchEngine[Any, Any, Any, Any])
T = TypeVar("T")

# Calls that are tokenized or wait for their rows at a time; more wait for one of them to end.
MAX_CALLS = 64


class AsyncEngine(AsyncModel, Generic[EngineT]):
    """An engine over batches in an asyncio application.

    ::

        async with AsyncEngine(Embedder.load("minilm")) as model:
            vectors = await model.run(lambda engine: engine.embed(["A text."]))

    Calls of all methods run as they do alone, but for their rows, which share the batches of a :class:`Batcher`. Its
    options go with the engine. A coroutine that is cancelled takes its rows out of the queue.

    Raises:
        InputError: naming the option that cannot be used.
    """

    def __init__(self, engine: EngineT, **options: Unpack[BatcherOptions]) -> None:
        self.engine = engine
        self.batcher = Batcher(engine, **options)
        self.pool = ThreadPoolExecutor(MAX_CALLS, thread_name_prefix="edgebert-call")
        self.closing = False
        super().__init__(self.batcher)

    async def run(self, call: Callable[[EngineT], T], *, timeout: float | None = None) -> T:
        """Return the result of ``call``, which gets the engine.

        Raises:
            InputError: naming the text or option that cannot be used.
            QueueFullError: if too many tokens wait already.
            DeadlineError: if rows still wait after ``timeout`` seconds.
            EdgebertError: before the ``async with`` block and after it.
        """
        self.wake()
        if self.closing:
            raise EdgebertError(f"this {type(self).__name__} is closed; no more calls are taken")
        flow = Flow(self.batcher, self.wake, self.batcher.deadline(timeout))
        task = asyncio.get_running_loop().run_in_executor(self.pool, call, self.engine.with_batcher(flow))
        try:
            return await task
        except asyncio.CancelledError:
            flow.cancel()
            raise

    async def aclose(self, *, at_once: bool = False) -> None:
        """Take no more calls, and wait until those accepted are finished; ``at_once`` fails them instead."""
        self.closing = True
        if not at_once:  # calls may have rows to come: they end before the model's thread
            await asyncio.to_thread(self.pool.shutdown)
        await super().aclose(at_once=at_once)
        await asyncio.to_thread(self.pool.shutdown)
