"""A model that an asyncio application shares: its thread starts and ends with an ``async with`` block."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from edgebert_runtime.errors import EdgebertError
from edgebert_runtime.serving.model_thread import ModelThread
from edgebert_runtime.serving.worker import Worker

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


class AsyncModel:
    """Owns the thread that runs a model. The event loop never does.

    Leaving the ``async with`` block finishes the requests that were accepted. After an error in the block they fail
    between two steps.
    """

    def __init__(self, worker: Worker[Any]) -> None:
        self.worker = worker
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread: ModelThread | None = None

    async def __aenter__(self) -> Self:
        self.loop = asyncio.get_running_loop()
        self.thread = ModelThread(self.worker, self.after_step)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose(at_once=error is not None)

    async def aclose(self, *, at_once: bool = False) -> None:
        """Take no more requests, and wait until those accepted are finished; ``at_once`` fails them instead."""
        if self.thread is not None:
            self.thread.stop(at_once)
            await asyncio.to_thread(self.thread.thread.join)

    def wake(self) -> None:
        """Let the model thread look for work.

        Raises:
            EdgebertError: outside of the ``async with`` block.
        """
        if self.thread is None:
            raise EdgebertError(f"this {type(self).__name__} has no thread yet; use it inside its async with block")
        self.thread.wake()

    def after_step(self) -> None:
        """Hand on what a step gave; it is called on the model thread."""
