"""The errors of requests that wait too long, or cannot even wait."""

from __future__ import annotations

from edgebert_runtime.errors import DeadlineError, QueueFullError
from edgebert_runtime.serving.throughput import Throughput


def past_deadline() -> DeadlineError:
    """Return the error of a request whose time is over."""
    return DeadlineError("the request took longer than its timeout")


def draining() -> QueueFullError:
    """Return the error of a request that comes after the last one."""
    return QueueFullError("no more requests are taken: the model is about to stop", retry_after=1)


def queue_full(tokens: int, limit: int, throughput: Throughput) -> QueueFullError:
    """Return the error of a request beside ``tokens`` that wait."""
    return QueueFullError(
        f"{tokens} tokens wait already, the limit is {limit}", retry_after=throughput.retry_after(tokens)
    )
