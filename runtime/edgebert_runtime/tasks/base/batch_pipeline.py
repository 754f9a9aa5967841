"""Run many texts through a model: validate, tokenize, batch, run, scatter, finish.

:meth:`BatchEngine._run` reads from top to bottom. Texts are taken in windows of some hundred rows, so that memory is
bounded. While one window runs, the next is tokenized.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.errors import EdgebertError
from edgebert_runtime.inputs.validation import check_progress
from edgebert_runtime.session.batch_executor import BatchExecutor, PendingBatches
from edgebert_runtime.session.session import Runnable
from edgebert_runtime.tasks.base.engine import Engine, Progress
from edgebert_runtime.tasks.base.model_inputs import ModelInput, WorkItem, build_feeds
from edgebert_runtime.tasks.base.text_options import CheckedOptions, TokenLimits

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger("edgebert")

# Rows of a window: tokenized, sorted by length and run together.
WINDOW = 512

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Request:
    """One call of an engine, its options checked. Engines with options of their own add fields."""

    options: CheckedOptions


RequestT = TypeVar("RequestT", bound=Request)
WorkT = TypeVar("WorkT", bound=WorkItem)
ValueT = TypeVar("ValueT")
ResultT = TypeVar("ResultT")


@dataclass
class Window(Generic[WorkT, ValueT]):
    """Items that run together, the rows of all of them, and the value of each row by its number.

    ``size`` counts the rows, and items without rows.
    """

    items: list[WorkT] = field(default_factory=list)
    rows: list[ModelInput] = field(default_factory=list)
    values: dict[int, ValueT] = field(default_factory=dict)
    size: int = 0

    def add(self, work: WorkT) -> None:
        """Add an item with its rows."""
        self.items.append(work)
        self.rows.extend(work.rows)
        self.size += max(1, len(work.rows))


class RowBatcher(Protocol):
    """Runs rows of many calls in common batches."""

    def submit(
        self, rows: Sequence[ModelInput], receive: Callable[[int, tuple[Floats, ...]], None]
    ) -> Sequence[Future[None]]:
        """Queue rows; ``receive`` gets the number of each, and its part of every output."""


class BatchEngine(Engine, Generic[RequestT, WorkT, ValueT, ResultT]):
    """An engine that runs rows of many texts in batches.

    A task implements three steps: ``_tokenize`` turns an item of a call into rows, ``_read_outputs`` turns a row's
    outputs into a value, and ``_finish`` turns the values of an item's rows into its result.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        device: str = "cpu",
        threads: int | None = None,
        session: Runnable | None = None,
    ) -> None:
        super().__init__(bundle, device=device, threads=threads, session=session)
        file = bundle.path / bundle.manifest.graphs[self._graphs[0]].file
        size = sum(entry.bytes for entry in bundle.manifest.files.values())
        self._executor = BatchExecutor(self._session, file, self.threads, size)
        self._batcher: RowBatcher | None = None
        self._limits = TokenLimits(self.default_tokens, self.max_tokens, self._executor.batch_tokens)

    def close(self) -> None:
        """Free the sessions. A closed engine refuses every call; closing it twice is allowed."""
        super().close()
        self._executor.close()

    def with_batcher(self, batcher: RowBatcher) -> Self:
        """Return this engine with its rows run by ``batcher``, together with those of others."""
        engine = object.__new__(type(self))
        engine.__dict__.update(self.__dict__, _batcher=batcher)
        return engine

    def _tokenize(self, item: Any, index: int, request: RequestT) -> WorkT:
        """Turn an item of a call into rows; ``index`` is its number there.

        Raises:
            InputError: naming an item that cannot be used.
        """
        raise NotImplementedError

    def _read_outputs(self, row: ModelInput, outputs: tuple[Floats, ...], request: RequestT) -> ValueT:
        """Turn a row's part of every output into a value. The arrays hold until the batch ends."""
        raise NotImplementedError

    def _finish(self, work: WorkT, values: list[ValueT], request: RequestT) -> ResultT:
        """Turn the values of an item's rows into its result."""
        raise NotImplementedError

    def _run(self, items: Iterable[Any], request: RequestT) -> Iterator[list[ResultT]]:
        """Yield the results of one window after the other, in order."""
        window: Window[WorkT, ValueT] = Window()
        running: tuple[Window[WorkT, ValueT], PendingBatches] | None = None
        for index, item in enumerate(items):
            window.add(self._tokenize(item, index, request))
            if window.size >= WINDOW:
                started = self._start(window, request)
                if running is not None:
                    yield self._results(*running, request)
                running, window = started, Window()
        started = self._start(window, request)
        if running is not None:
            yield self._results(*running, request)
        yield self._results(*started, request)

    def _start(self, window: Window[WorkT, ValueT], request: RequestT) -> tuple[Window[WorkT, ValueT], PendingBatches]:
        """Start to run a window, in batches of rows of about the same length."""
        if self._batcher is not None:
            futures = self._batcher.submit(window.rows, partial(self._receive, window, request))
            return window, PendingBatches(self._session, (), futures)
        lengths = [len(row.ids) for row in window.rows]
        compute = partial(self._run_batch, window, request)
        return window, self._executor.start(lengths, request.options.max_batch_tokens, compute)

    def _run_batch(self, window: Window[WorkT, ValueT], request: RequestT, session: Runnable, batch: list[int]) -> None:
        """Run the rows of a batch, and set their values in the window."""
        outputs = self.run_rows([window.rows[number] for number in batch], session)
        for number, parts in zip(batch, outputs, strict=True):
            self._receive(window, request, number, parts)

    def run_rows(self, rows: Sequence[ModelInput], session: Runnable | None = None) -> list[tuple[Floats, ...]]:
        """Run rows as one batch; return each row's part of every output, which holds until the next batch."""
        return self._scatter(rows, (session or self._session).run(list(self._outputs), build_feeds(rows, self._inputs)))

    def _receive(
        self, window: Window[WorkT, ValueT], request: RequestT, number: int, parts: tuple[Floats, ...]
    ) -> None:
        """Set the value of a row in its window.

        Raises:
            EdgebertError: if its outputs are not finite numbers.
        """
        row = window.rows[number]
        for part in parts:
            if not np.isfinite(part).all():
                raise not_finite(window.items, row)
        window.values[number] = self._read_outputs(row, parts, request)

    def _scatter(self, rows: Sequence[ModelInput], outputs: Sequence[Floats]) -> list[tuple[Floats, ...]]:
        """Return each row's part of every output, without padding."""
        if "logits_indices" in self._inputs:
            ends = np.cumsum([len(row.logits_indices) for row in rows])[:-1]
            return list(zip(*(np.split(output, ends) for output in outputs), strict=True))
        per_token = ["sequence" in self._shapes[name] for name in self._outputs]
        return [
            tuple(
                output[number, : len(row.ids)] if by_token else output[number]
                for output, by_token in zip(outputs, per_token, strict=True)
            )
            for number, row in enumerate(rows)
        ]

    def _results(self, window: Window[WorkT, ValueT], pending: PendingBatches, request: RequestT) -> list[ResultT]:
        """Run the batches of a window, or wait for those that run, and return the result of each item."""
        for batch in pending.batches:
            self._run_batch(window, request, pending.session, batch)
        if pending.futures:
            pending.wait()
        results, first = [], 0
        for work in window.items:
            end = first + len(work.rows)
            results.append(self._finish(work, list(map(window.values.__getitem__, range(first, end))), request))
            first = end
        return results

    def _collect(self, windows: Iterator[list[ResultT]], items: object, progress: Progress | None) -> list[ResultT]:
        """Return the results of a whole call, and report progress on the way."""
        if progress is not None:
            check_progress(progress)
        total = len(items) if isinstance(items, Sized) else None
        results: list[ResultT] = []
        for part in windows:
            results += part
            if progress is not None and part:
                progress(len(results), total)
        return results

    def _warn_truncated(self, truncated: int, total: int, max_tokens: int) -> None:
        """Warn once that texts were cut."""
        if truncated:
            logger.warning("%d of %d texts were cut to %d tokens", truncated, total, max_tokens)


def not_finite(items: Sequence[WorkItem], row: ModelInput) -> EdgebertError:
    """Return the error for a row whose outputs are not numbers."""
    index = next(work.index for work in items if any(candidate is row for candidate in work.rows))
    return EdgebertError(f"the model produced NaN or infinity for text {index}; verify the bundle")
