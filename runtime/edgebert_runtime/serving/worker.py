"""Requests of one model: a queue that many threads fill, and that one empties step by step."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

from edgebert_runtime.errors import DeadlineError, EdgebertError, InputError, QueueFullError
from edgebert_runtime.inputs.validation import check_whole
from edgebert_runtime.serving.fair_queue import FairQueue
from edgebert_runtime.serving.throughput import Throughput

MAX_QUEUED_TOKENS = 1 << 40


class Waiting(Protocol):
    """A request: the future of its result, and the time at which it is over."""

    future: Future[Any]
    deadline: float


ItemT = TypeVar("ItemT", bound=Waiting)


class Worker(ABC, Generic[ItemT]):
    """A queue in a fair order, and the requests that are computed.

    Any thread queues requests, and cancels them by the ``cancel`` of their futures. One thread calls :meth:`step`.

    Args:
        max_queued_tokens: The tokens that may wait; None is any number.
        clock: Returns the time in seconds; deadlines are in it.

    Raises:
        InputError: naming the option that cannot be used.
    """

    def __init__(self, max_queued_tokens: int | None, clock: Callable[[], float]) -> None:
        if max_queued_tokens is not None:
            max_queued_tokens = check_whole("max_queued_tokens", max_queued_tokens, 1, MAX_QUEUED_TOKENS)
        self.max_queued_tokens = max_queued_tokens
        self.clock = clock
        self.queue: FairQueue[ItemT] = FairQueue(clock)
        self.lock = threading.Lock()  # of the queue
        self.stepping = threading.Lock()
        self.throughput = Throughput()
        self.draining = False

    def deadline(self, timeout: float | None) -> float:
        """Return the time ``timeout`` seconds from now; None is never.

        Raises:
            InputError: if it is no number above 0.
        """
        if timeout is None:
            return math.inf
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
            raise InputError("is not a number of seconds above 0", option="timeout", value=timeout)
        return self.clock() + timeout

    def push(self, items: Sequence[ItemT], tokens: Sequence[int], flow: Hashable) -> None:
        """Queue items of one flow with the ``tokens`` of each: all of them or none.

        Raises:
            QueueFullError: if too many tokens wait already, or the worker drains.
        """
        with self.lock:
            if self.draining:
                raise QueueFullError("no more requests are taken: the model is about to stop", retry_after=1)
            waiting = self.queue.tokens
            if self.max_queued_tokens is not None and waiting + sum(tokens) > self.max_queued_tokens:
                raise QueueFullError(
                    f"{waiting} tokens wait already, the limit is {self.max_queued_tokens}",
                    retry_after=self.throughput.retry_after(waiting),
                )
            pace = self.throughput.seconds(1)
            for item, count in zip(items, tokens, strict=True):
                self.queue.push(item, count, flow, pace)

    def step(self) -> bool:
        """Compute a step, and return whether work is left.

        Raises:
            EdgebertError: if another thread is in it.
        """
        if not self.stepping.acquire(blocking=False):
            raise EdgebertError(f"two threads step the same {type(self).__name__}; only one may")
        try:
            self.sweep()
            return self.run_step()
        finally:
            self.stepping.release()

    @abstractmethod
    def run_step(self) -> bool:
        """Compute a step, and return whether work is left."""

    def active(self) -> list[ItemT]:
        """Return the requests that are computed, from one step to the next."""
        return []

    def leave(self, item: ItemT) -> None:
        """Free what a request holds that is computed."""

    def sweep(self) -> None:
        """End the requests that were cancelled, or whose time is over."""
        now = self.clock()

        def is_over(item: ItemT) -> bool:
            return item.future.cancelled() or item.deadline <= now

        self.end(is_over, past_deadline)

    def end(self, chosen: Callable[[ItemT], bool], error: Callable[[], Exception]) -> None:
        """Fail the chosen requests, waiting and active, each with an ``error`` of its own."""
        with self.lock:
            items = self.queue.take(chosen)
        for item in filter(chosen, self.active()):
            self.leave(item)
            items.append(item)
        for item in items:
            fail(item, error())

    def drain(self) -> None:
        """Take no more requests; :meth:`step` until it returns False finishes those that were taken."""
        with self.lock:
            self.draining = True

    def abort(self, error: Exception) -> None:
        """Fail all requests that are not finished. New ones are taken."""
        with self.stepping:
            self.end(lambda _: True, lambda: error)

    def close(self) -> None:
        """Take no more requests, and fail all that are not finished."""
        self.drain()
        self.abort(EdgebertError("the model was closed before the request was finished"))


def past_deadline() -> DeadlineError:
    """Return the error of a request whose time is over."""
    return DeadlineError("the request took longer than its timeout")


def fail(item: Waiting, error: Exception) -> None:
    """Give a request its error, unless it was cancelled or has one."""
    if not item.future.done() and (item.future.running() or item.future.set_running_or_notify_cancel()):
        item.future.set_exception(error)
