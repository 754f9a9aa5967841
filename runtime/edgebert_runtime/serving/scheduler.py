"""Continuous batching: the rows of many requests share the steps of one model."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from edgebert_runtime.decoders.slot_cache import chunk_size
from edgebert_runtime.errors import LimitError
from edgebert_runtime.generation import Hypothesis, StepRequest, TopK
from edgebert_runtime.generation.search import start_search
from edgebert_runtime.generation.step_model import Floats
from edgebert_runtime.inputs.validation import Item, check_whole
from edgebert_runtime.serving.prefix_cache import PrefixCache
from edgebert_runtime.serving.requests import ActiveRequest, OnStep, SchedulerStats, answer_of, resolve
from edgebert_runtime.serving.slots import SlotTable
from edgebert_runtime.serving.worker import Worker, fail
from edgebert_runtime.tasks.base.text_engine import Generation, PreparedPrompt
from edgebert_runtime.tasks.generator import Generator

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from edgebert_runtime.tasks.base.text_engine import GenerationOptions

# Tokens of a prompt that are computed between two steps of running rows.
CHUNK = 128
SLOTS = 16


class SchedulerOptions(TypedDict, total=False):
    """The options of :class:`Scheduler` by keyword."""

    slots: int
    chunk: int
    max_cached_tokens: int | None
    max_queued_tokens: int | None
    prefix_tokens: int
    clock: Callable[[], float]


class Scheduler(Worker[ActiveRequest]):
    """Runs requests of a :class:`~edgebert_runtime.Generator` together, each with its own options.

    A request gets the tokens that ``generate`` gives it alone, in a float32 bundle and in any other that is
    batch-invariant. Any thread submits; one calls :meth:`step`, see :class:`Worker`.

    Args:
        generator: The engine. Its bundle keeps the KV cache in place: target ``cpu``.
        slots: The most rows of a step.
        chunk: The most tokens of a prompt that are computed between two steps, at least 3.
        max_cached_tokens: The tokens for which the KV cache has memory. A request reserves its prompt and all tokens
            that it may generate, for each of its rows. Without it, ``slots`` rows of the longest kind.
        max_queued_tokens: The tokens of waiting requests, counted alike, above which more are refused.
        prefix_tokens: The tokens of prompts whose keys and values are kept for prompts that begin alike.
        clock: Returns the time in seconds; deadlines are in it.

    Raises:
        InputError: naming the option that cannot be used.
        BundleError: if the bundle keeps no KV cache in place.
    """

    def __init__(
        self,
        generator: Generator,
        *,
        slots: int = SLOTS,
        chunk: int = CHUNK,
        max_cached_tokens: int | None = None,
        max_queued_tokens: int | None = None,
        prefix_tokens: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(max_queued_tokens, clock)
        self.generator = generator
        self.slots = check_whole("slots", slots, 1, 1 << 16)
        self.chunk = check_whole("chunk", chunk, 3, 1 << 24)
        most = self.slots * generator.max_tokens
        self.max_cached_tokens = check_whole(
            "max_cached_tokens", most if max_cached_tokens is None else max_cached_tokens, 1, most
        )
        self.cache = generator.slot_cache(self.slots)
        self.table: SlotTable[ActiveRequest] = SlotTable(self.cache)
        self.prefixes = PrefixCache(check_whole("prefix_tokens", prefix_tokens, 0, 1 << 40))
        self.steps = self.chunks = self.generated_tokens = self.prefill_tokens = 0

    def submit(
        self,
        prompt: Item,
        *,
        on_step: OnStep | None = None,
        timeout: float | None = None,
        flow: Hashable = None,
        num_return_sequences: int | None = None,
        **options: Unpack[GenerationOptions],
    ) -> Future[list[Generation]]:
        """Queue a prompt with options of ``generate``; see :meth:`enqueue`.

        Raises:
            InputError: naming the prompt or option that cannot be used.
            LimitError: for a request that can never fit.
            QueueFullError: if too many tokens wait already.
        """
        prepared = self.generator.prepare(prompt, num_return_sequences=num_return_sequences, **options)
        return self.enqueue(prepared, on_step=on_step, timeout=timeout, flow=flow)

    def enqueue(
        self,
        prompt: PreparedPrompt,
        *,
        on_step: OnStep | None = None,
        timeout: float | None = None,
        flow: Hashable = None,
    ) -> Future[list[Generation]]:
        """Queue a prepared prompt; the future has a :class:`~edgebert_runtime.Generation` for each sequence.

        ``on_step`` is called with each step of its rows, text included, on the thread that steps. An error in it ends
        the request. ``timeout`` is in seconds from now. Requests of the same ``flow`` share a turn in the queue; None
        is a flow of its own.

        Raises:
            LimitError: for a request that can never fit.
            QueueFullError: if too many tokens wait already.
        """
        request = ActiveRequest(prompt, Future(), on_step, self.deadline(timeout))
        self.check_size(request)
        self.push([request], [request.tokens], object() if flow is None else flow)
        return request.future

    def check_size(self, request: ActiveRequest) -> None:
        """Refuse a request that can never run.

        Raises:
            LimitError: naming the limit.
        """
        if request.prompt.rows > self.slots:
            raise LimitError(f"needs {request.prompt.rows} rows, there are {self.slots} slots", item="the request")
        for limit in (self.max_cached_tokens, self.max_queued_tokens):
            if limit is not None and request.tokens > limit:
                raise LimitError(
                    f"may have {request.tokens} tokens in the KV cache, the limit is {limit}",
                    item="the request",
                    hint="lower {max_new_tokens}",
                    options={"max_new_tokens": ...},
                )

    def run_step(self) -> bool:
        """Continue all running rows by a token, and compute a chunk of one prompt. Return whether work is left."""
        self.admit()
        self.decode()
        self.prefill()
        return bool(self.queue) or bool(self.table.owners) or self.table.prefilling is not None

    def active(self) -> list[ActiveRequest]:
        """Return the requests in the KV cache."""
        prefilling = self.table.prefilling
        return self.table.requests() + ([prefilling] if prefilling is not None else [])

    @property
    def reserved_rows(self) -> int:
        """The rows of active requests, those to come included."""
        return sum(request.prompt.rows for request in self.active())

    @property
    def reserved_tokens(self) -> int:
        """The tokens of active requests, those to come included."""
        return sum(request.tokens for request in self.active())

    def admit(self) -> None:
        """Start the prefill of the first waiting request, once it fits. None passes it meanwhile."""
        if self.table.prefilling is not None:
            return
        with self.lock:
            if not self.queue:
                return
            request = self.queue.first()
            if (
                self.reserved_rows + request.prompt.rows > self.slots
                or self.reserved_tokens + request.tokens > self.max_cached_tokens
            ):
                return
            self.queue.pop()
        slot = self.table.begin_prefill(request)
        if (contents := self.prefixes.longest(request.prompt.ids)) is not None:
            self.cache.write(slot, contents)
            request.position = contents.shape[2]

    def decode(self) -> None:
        """Continue all running rows by one token."""
        requests = self.table.requests()
        if not requests:
            return
        tokens = self.place_rows(requests)
        sizes = [request.pending.top_k for request in requests if request.pending is not None]
        logits, top_k = None in sizes, max((size for size in sizes if size is not None), default=0)
        begin = time.perf_counter()
        try:
            outputs = self.cache.step(tokens, logits, min(top_k, self.cache.signature.vocab_size))
        except Exception as error:
            for request in requests:
                self.leave(request)
                fail(request, error)
            return
        answers = [answer_of(request, outputs) for request in requests]
        for request, answer in zip(requests, answers, strict=True):
            self.advance(request, answer)
        self.steps += 1
        self.generated_tokens += len(tokens)
        self.throughput.add(len(tokens), time.perf_counter() - begin)

    def place_rows(self, requests: list[ActiveRequest]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Bring the rows that each request asks for into slots; return the token (n,) of each slot."""
        for request in requests:
            assert request.pending is not None
            self.table.continue_rows(request, request.pending.parents)
        tokens = np.empty(self.table.running, np.int64)
        for request in requests:
            assert request.pending is not None
            tokens[request.slots] = request.pending.tokens
        return tokens

    def prefill(self) -> None:
        """Compute a chunk of the prompt in prefill, all of it if no row runs; start its search at the end."""
        request = self.table.prefilling
        if request is None:
            return
        ids = request.prompt.ids
        count = chunk_size(len(ids) - request.position, self.chunk if self.table.running else len(ids))
        begin = time.perf_counter()
        try:
            logits = self.cache.append(request.slots[0], ids[request.position : request.position + count])
        except Exception as error:
            self.leave(request)
            fail(request, error)
            return
        request.position += count
        self.chunks += 1
        self.prefill_tokens += count
        self.throughput.add(count, time.perf_counter() - begin)
        if request.position == len(ids):
            if self.prefixes.max_tokens and not self.prefixes.covers(ids):
                self.prefixes.store(ids, self.cache.read(request.slots[0], len(ids)))
            self.table.end_prefill()
            self.start(request, logits)

    def start(self, request: ActiveRequest, logits: Floats) -> None:
        """Start the search of a request after its prompt."""
        prompt = request.prompt
        with_text = request.on_step is not None or prompt.options.stop
        request.search = start_search(logits, prompt.plan, None, prompt.decode if with_text else None)
        self.advance(request, None)

    def advance(self, request: ActiveRequest, answer: Floats | TopK | None) -> None:
        """Send a search the answer to its request, and hand on its steps, up to the next request or the end."""
        assert request.search is not None
        hypotheses: list[list[Hypothesis]]
        try:
            while True:
                event = request.search.send(answer)
                answer = None
                if isinstance(event, StepRequest):
                    request.pending = event
                    return
                if request.on_step is not None and not request.future.cancelled():
                    request.on_step(event)
        except StopIteration as end:
            hypotheses = end.value
        except Exception as error:
            self.leave(request)
            fail(request, error)
            return
        self.leave(request)
        try:
            generations = self.generator.results(request.prompt, hypotheses[0])
        except Exception as error:
            fail(request, error)
        else:
            resolve(request, generations)

    def leave(self, item: ActiveRequest) -> None:
        """Free the slots of a request, and with them its reservation."""
        self.table.remove(item)

    def stats(self) -> SchedulerStats:
        """Return the figures of this moment."""
        active = self.active()
        return SchedulerStats(
            waiting=len(self.queue),
            queued_tokens=self.queue.tokens,
            active=len(active),
            running_rows=self.table.running,
            cached_tokens=int(self.cache.lengths.sum()),
            max_cached_tokens=self.max_cached_tokens,
            steps=self.steps,
            chunks=self.chunks,
            generated_tokens=self.generated_tokens,
            prefill_tokens=self.prefill_tokens,
            prefix_hit_tokens=self.prefixes.hit_tokens,
            tokens_per_second=self.throughput.tokens_per_second,
        )
