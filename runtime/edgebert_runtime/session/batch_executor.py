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
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from edgebert_runtime.inputs.batching import plan_batches
from edgebert_runtime.session.session import ClosedSession, Runnable, Session, open_session

# Tokens, padding included, of a batch on one thread: the activations of BERT-base then fit into a core's cache.
TOKENS_PER_THREAD = 256
# The second session is opened after so many tokens, which take a small model about a third of a second.
TOKENS_BEFORE_SECOND = 8192
MAX_SECOND_BYTES = 96 << 20

Compute = Callable[[Runnable, "list[int]"], None]


@dataclass(frozen=True)
class PendingBatches:
    """Batches of row numbers: those that ``futures`` compute, or else those that the caller runs on ``session``."""

    session: Runnable
    batches: Sequence[list[int]]
    futures: Sequence[Future[None]] = ()

    def wait(self) -> None:
        """Wait for all futures. Raise the error of the first that failed, after stopping those not yet begun."""
        try:
            for future in self.futures:
                future.result()
        except BaseException:
            for future in self.futures:
                future.cancel()
            for future in self.futures:
                if not future.cancelled():
                    future.exception()
            raise


class BatchExecutor:
    """The session of a model, and for bulk work a second one with single-threaded runs side by side.

    ``size`` is that of the model in bytes.
    """

    def __init__(self, session: Runnable, file: Path, threads: int, size: int) -> None:
        self.session, self.file, self.threads = session, file, threads
        self.batch_tokens = TOKENS_PER_THREAD * threads
        on_cpu = isinstance(session, Session) and session.device == "cpu"
        self.may_open_second = on_cpu and threads > 1 and size <= MAX_SECOND_BYTES
        self.tokens_seen = 0
        self.second: tuple[Session, ThreadPoolExecutor] | None = None
        self.lock = threading.Lock()

    def start(self, lengths: Sequence[int], max_tokens: int, compute: Compute) -> PendingBatches:
        """Batch rows of these lengths, at most ``max_tokens`` tokens at a time, padding included.

        For many tokens, ``compute`` starts at once, with a session and the numbers of the rows of a batch.
        """
        tokens = sum(lengths)
        if tokens <= max_tokens or not self.may_open_second:
            return PendingBatches(self.session, plan_batches(lengths, max_tokens))
        with self.lock:  # until all are submitted, so that close() waits for them
            parallel = self.parallel_session(tokens)
            if parallel is None:
                return PendingBatches(self.session, plan_batches(lengths, max_tokens))
            session, pool = parallel
            batches = plan_batches(lengths, max(1, max_tokens // self.threads))
            return PendingBatches(session, (), [pool.submit(compute, session, batch) for batch in batches])

    def parallel_session(self, tokens: int) -> tuple[Session, ThreadPoolExecutor] | None:
        """Return the second session with its threads, opened when it is time. None where it does not pay."""
        if not self.may_open_second:
            return None
        self.tokens_seen += tokens
        if self.second is None and self.tokens_seen >= TOKENS_BEFORE_SECOND:
            pool = ThreadPoolExecutor(self.threads, thread_name_prefix="edgebert")
            self.second = open_session(self.file, threads=1), pool
        return self.second

    def close(self) -> None:
        """Free both sessions, once the batches that run are computed."""
        with self.lock:
            second, self.second = self.second, None
            self.may_open_second = False
            self.session = ClosedSession()
        if second is not None:
            second[1].shutdown()
