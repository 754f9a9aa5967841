"""Dynamic batching: rows of many calls share the batches of one encoder."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypedDict

from edgebert_runtime.errors import LimitError
from edgebert_runtime.inputs.validation import check_whole
from edgebert_runtime.serving.worker import Worker
from edgebert_runtime.tasks.base.batch_pipeline import BatchEngine, Floats
from edgebert_runtime.tasks.base.model_inputs import ModelInput
from edgebert_runtime.tasks.base.text_options import MAX_BATCH_TOKENS

Receive = Callable[[int, tuple[Floats, ...]], None]
# Lengths in a batch differ by a quarter at most: padding costs time, and int8 kernels gain little from more rows.
SPREAD = 1.25
# Rows among which those of like length are looked for.
LOOK_AHEAD = 512


@dataclass(eq=False)
class WaitingRow:
    """A row of a call: its number there, and the future that is done when ``receive`` has its outputs."""

    row: ModelInput
    number: int
    receive: Receive
    future: Future[None]
    deadline: float

    @property
    def length(self) -> int:
        """The number of tokens."""
        return max(1, len(self.row.ids))


@dataclass(frozen=True)
class BatcherStats:
    """Rows and tokens that wait, and totals since the start."""

    waiting: int
    queued_tokens: int
    batches: int
    rows: int
    tokens_per_second: float


class BatcherOptions(TypedDict, total=False):
    """The options of :class:`Batcher` by keyword."""

    max_batch_tokens: int | None
    max_queued_tokens: int | None
    clock: Callable[[], float]


class Batcher(Worker[WaitingRow]):
    """Runs rows of many calls of a :class:`BatchEngine` in common batches.

    The row that waits longest by the fair order leads a batch; rows of like length join it. Nothing waits for a batch
    to fill: one forms while the one before runs. Any thread submits; one calls :meth:`step`, see :class:`Worker`.

    Args:
        engine: The engine whose rows these are.
        max_batch_tokens: The most tokens of a batch, padding included. Without it, the engine's own number.
        max_queued_tokens: The tokens of waiting rows above which more are refused.
        clock: Returns the time in seconds; deadlines are in it.
    """

    def __init__(
        self,
        engine: BatchEngine[Any, Any, Any, Any],
        *,
        max_batch_tokens: int | None = None,
        max_queued_tokens: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(max_queued_tokens, clock)
        self.engine = engine
        if max_batch_tokens is None:
            max_batch_tokens = engine._executor.batch_tokens
        self.max_batch_tokens = check_whole("max_batch_tokens", max_batch_tokens, 1, MAX_BATCH_TOKENS)
        self.batches = self.rows = 0

    def submit(
        self, rows: Sequence[ModelInput], receive: Receive, flow: Hashable, deadline: float = math.inf
    ) -> list[Future[None]]:
        """Queue rows of a call; ``receive`` gets the number of each and its outputs, on the thread that steps.

        Raises:
            LimitError: if the rows alone are more than may wait.
            QueueFullError: if too many tokens wait already.
        """
        waiting = [WaitingRow(row, number, receive, Future(), deadline) for number, row in enumerate(rows)]
        tokens = [row.length for row in waiting]
        if self.max_queued_tokens is not None and sum(tokens) > self.max_queued_tokens:
            raise LimitError(
                f"have {sum(tokens)} tokens together, the limit is {self.max_queued_tokens}", item="the texts"
            )
        self.push(waiting, tokens, flow)
        return [row.future for row in waiting]

    def run_step(self) -> bool:
        """Run one batch, and return whether rows are left."""
        if batch := self.next_batch():
            begin = time.perf_counter()
            self.run(batch)
            self.throughput.add(sum(row.length for row in batch), time.perf_counter() - begin)
        return len(self.queue) > 0

    def next_batch(self) -> list[WaitingRow]:
        """Take the first row, and rows of like length after it, as many as a batch may have."""
        least = most = longest = count = 0

        def joins(row: WaitingRow) -> bool:
            nonlocal least, most, longest, count
            if count == 0:
                least, most = int(row.length / SPREAD), int(row.length * SPREAD)
            elif not least <= row.length <= most or (count + 1) * max(longest, row.length) > self.max_batch_tokens:
                return False
            longest, count = max(longest, row.length), count + 1
            return True

        with self.lock:
            batch = self.queue.take(joins, LOOK_AHEAD)
        return [row for row in batch if row.future.set_running_or_notify_cancel()]

    def run(self, batch: list[WaitingRow]) -> None:
        """Run rows as one batch. If that fails, run each alone, so that it fails alone."""
        try:
            outputs = self.engine.run_rows([row.row for row in batch])
        except Exception as error:
            if len(batch) == 1:
                batch[0].future.set_exception(error)
                return
            for row in batch:
                self.run([row])
            return
        self.batches += 1
        self.rows += len(batch)
        for row, parts in zip(batch, outputs, strict=True):
            try:
                row.receive(row.number, parts)
            except Exception as error:
                row.future.set_exception(error)
            else:
                row.future.set_result(None)

    def stats(self) -> BatcherStats:
        """Return the figures of this moment."""
        return BatcherStats(
            len(self.queue), self.queue.tokens, self.batches, self.rows, self.throughput.tokens_per_second
        )


@dataclass(eq=False)
class Flow:
    """A :class:`~edgebert_runtime.tasks.base.batch_pipeline.RowBatcher` for one call.

    ``futures`` are those of the rows that are not computed, so that they can be cancelled.
    """

    batcher: Batcher
    wake: Callable[[], None]
    deadline: float
    futures: list[Future[None]] = field(default_factory=list)
    cancelled: bool = False

    def submit(self, rows: Sequence[ModelInput], receive: Receive) -> list[Future[None]]:
        """Queue rows of the call."""
        futures = self.batcher.submit(rows, receive, self, self.deadline)
        self.futures = [*(future for future in self.futures if not future.done()), *futures]
        if self.cancelled:
            self.cancel()
        self.wake()
        return futures

    def cancel(self) -> None:
        """Take the rows of the call out of the queue."""
        self.cancelled = True
        for future in self.futures:
            future.cancel()
        self.wake()
