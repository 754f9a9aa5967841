"""A generative engine for asyncio: many coroutines share its steps."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from edgebert_runtime.generation import Step
from edgebert_runtime.inputs.validation import Item
from edgebert_runtime.serving.async_model import AsyncModel
from edgebert_runtime.serving.scheduler import Scheduler, SchedulerOptions
from edgebert_runtime.tasks.base.text_engine import Generation, check_stream
from edgebert_runtime.tasks.generator import Generator

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from edgebert_runtime.tasks.base.text_engine import GenerationOptions

# A piece for the queue of a stream, None at its end.
Delivery = tuple["asyncio.Queue[str | None]", "str | None"]


class AsyncTextGenerator(AsyncModel):
    """Continuations of texts in an asyncio application.

    ::

        async with AsyncTextGenerator(Generator.load("gpt2")) as model:
            (generation,) = await model.generate("The harbor")
            async for piece in model.stream("Ships"):
                print(piece, end="")

    Steps of the model carry all requests; see :class:`Scheduler`, whose options go with the engine. A coroutine that is
    cancelled takes its request out of the next step.

    Raises:
        InputError: naming the option that cannot be used.
        BundleError: if the bundle keeps no KV cache in place.
    """

    def __init__(self, engine: Generator, **options: Unpack[SchedulerOptions]) -> None:
        self.scheduler = Scheduler(engine, **options)
        self.deliveries: list[Delivery] = []
        super().__init__(self.scheduler)

    async def generate(
        self,
        prompt: Item,
        *,
        timeout: float | None = None,
        num_return_sequences: int | None = None,
        **options: Unpack[GenerationOptions],
    ) -> list[Generation]:
        """Return the sequences that continue a prompt; options are those of :meth:`Generator.generate`.

        Raises:
            InputError: naming the prompt or option that cannot be used.
            QueueFullError: if too many tokens wait already.
            DeadlineError: after ``timeout`` seconds.
        """
        self.wake()
        prepared = self.scheduler.generator.prepare(prompt, num_return_sequences=num_return_sequences, **options)
        future = self.scheduler.enqueue(prepared, timeout=timeout)
        self.wake()
        return await asyncio.wrap_future(future)

    async def stream(
        self, prompt: Item, *, timeout: float | None = None, **options: Unpack[GenerationOptions]
    ) -> AsyncGenerator[str, None]:
        """Yield the text that continues a prompt, piece by piece; joined, the pieces are the text of ``generate``.

        Raises:
            InputError: naming the prompt or option that cannot be used.
            QueueFullError: if too many tokens wait already.
            DeadlineError: after ``timeout`` seconds.
        """
        self.wake()
        pieces: asyncio.Queue[str | None] = asyncio.Queue()

        def on_step(step: Step) -> None:
            self.deliveries.append((pieces, step.pieces[0]))

        prepared = self.scheduler.generator.prepare(prompt, **options)
        check_stream(prepared.options)
        future = self.scheduler.enqueue(prepared, on_step=on_step, timeout=timeout)
        future.add_done_callback(lambda _: self.deliveries.append((pieces, None)))
        self.wake()
        try:
            while (piece := await pieces.get()) is not None:
                if piece:
                    yield piece
            future.result()
        finally:
            if future.cancel():
                self.wake()

    def after_step(self) -> None:
        """Hand the pieces of a step to the event loop, all in one call."""
        if self.deliveries and self.loop is not None:
            deliveries, self.deliveries = self.deliveries, []
            with contextlib.suppress(RuntimeError):  # a loop that is closed has nobody who waits
                self.loop.call_soon_threadsafe(put_all, deliveries)


def put_all(deliveries: list[Delivery]) -> None:
    """Put pieces into the queues of their streams."""
    for queue, piece in deliveries:
        queue.put_nowait(piece)
