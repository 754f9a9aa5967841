"""Many requests at a time over one model: continuous and dynamic batching, without HTTP.

::

    async_engine.py     async_text_generator.py   engines for asyncio
    async_model.py      model_thread.py           the thread that runs a model
    batcher.py                                    dynamic batching: rows of many calls share batches
    scheduler.py        requests.py               continuous batching: rows join and leave between steps
    slots.py            prefix_cache.py           places in the KV cache; keys and values that prompts share
    fair_queue.py       throughput.py             the order of what waits, and how long it will
    worker.py                                     the queue that both of them step through
"""

from __future__ import annotations

from edgebert_runtime.serving.async_engine import AsyncEngine
from edgebert_runtime.serving.async_text_generator import AsyncTextGenerator
from edgebert_runtime.serving.batcher import Batcher
from edgebert_runtime.serving.scheduler import Scheduler

__all__ = ["AsyncEngine", "AsyncTextGenerator", "Batcher", "Scheduler"]
