"""Batches on the sessions of one model: one after the other, or side by side.

A few texts run fastest as one batch on all threads. Many texts run faster with a batch on each thread: no thread waits
for another inside an operator, and a small batch stays in the cache of its core. One session does only one of the two
well, because its thread pool either exists or not. Measured on two cores (onnxruntime
1.32, dynamic int8), in texts per second:

====================================  ==================  ==================
                                      MiniLM, 6 layers    BERT-base
====================================  ==================  ==================
one batch of 512 on two threads       1640                302
two batches on that same session      1280 to 1500        not measured
two batches of 256, threads of 1      1940 (+18 %)        322 (+7 %)
memory of the second session          60 MB               180 MB
====================================  ==================  ==================

So the second session opens once there is enough work to pay for it, and only for small models.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.session.session import Runnable, Session, open_session

# Tokens, padding included, of a batch on one thread: the activations of BERT-base then fit into a core's cache.
TOKENS_PER_THREAD = 256
# The second session is opened after so many tokens, which take a small model about a third of a second.
TOKENS_BEFORE_SECOND = 8192
MAX_SECOND_BYTES = 96 << 20

Batches = list[list[int]]
Compute = Callable[[Runnable, list[int]], None]


class Workers:
    """The session of a model, and a second one for bulk work on one thread each."""

    def __init__(self, bundle: Bundle, file: str, device: str, threads: int | None, session: Runnable | None) -> None:
        self.path = bundle.path / file
        opened: Session | None = None
        if session is None:
            session = opened = open_session(self.path, device=device, threads=threads)
        self.session: Runnable = session
        self.device = opened.device if opened else "cpu"
        self.fallback = opened.fallback if opened else None
        self.threads = opened.threads if opened else threads or 1
        self.batch_tokens = TOKENS_PER_THREAD * self.threads
        size = sum(entry.bytes for entry in bundle.manifest.files.values())
        self.may_open_second = (
            opened is not None and opened.device == "cpu" and opened.threads > 1 and size <= MAX_SECOND_BYTES
        )
        self.tokens_seen = 0
        self.second: tuple[Session, ThreadPoolExecutor] | None = None
        self.lock = threading.Lock()

    def start(self, plan: Callable[[int], Batches], tokens: int, budget: int, compute: Compute) -> Callable[[], None]:
        """Start work of ``tokens`` tokens, ``budget`` at a time; return a function that waits for it.

        Raises:
            EdgebertError: out of the function returned, if a batch fails.
        """
        side_by_side = self.parallel_session(tokens) if tokens > budget else None
        if side_by_side is None:
            batches = plan(budget)
            return lambda: self.serial(batches, compute)
        session, pool = side_by_side
        futures = [pool.submit(compute, session, batch) for batch in plan(max(1, budget // self.threads))]
        return lambda: gather(futures)

    def serial(self, batches: Batches, compute: Compute) -> None:
        """Compute one batch after the other on all threads."""
        for batch in batches:
            compute(self.session, batch)

    def parallel_session(self, tokens: int) -> tuple[Session, ThreadPoolExecutor] | None:
        """Return the session and pool of parallel batches. None where they do not pay."""
        if not self.may_open_second:
            return None
        with self.lock:
            self.tokens_seen += tokens
            if self.second is None and self.tokens_seen >= TOKENS_BEFORE_SECOND:
                pool = ThreadPoolExecutor(self.threads, thread_name_prefix="edgebert")
                self.second = open_session(self.path, threads=1), pool
            return self.second


def gather(futures: list[Future[None]]) -> None:
    """Wait for all ``futures``. An error of one cancels those not yet begun."""
    try:
        for future in futures:
            future.result()
    except BaseException:
        for future in futures:
            future.cancel()
        for future in futures:
            if not future.cancelled():
                future.exception()
        raise
