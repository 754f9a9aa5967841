"""Measure an engine: time to load, latency, throughput, memory."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edgebert_runtime.bundle import Bundle
from edgebert_runtime.embedder import Embedder
from edgebert_runtime.errors import InputError

SEED = 7
SENTENCES = 256
# Lengths of short texts are about log-normal: 30 tokens in the mean, a few of more than 100.
MEAN_TOKENS, SPREAD = 30.0, 0.6
LEAST_RUNS = 3


def measure(engine: Embedder, *, seconds: float = 10.0) -> dict[str, Any]:
    """Measure for about ``seconds`` seconds, on token ids that are the same in every run.

    ``latency`` is of one text of 16 and of 128 tokens, in milliseconds; ``throughput`` of 256 texts of 3 to 256
    tokens in one call. Peak memory is that of the whole process, everything it did before included.

    Raises:
        InputError: if ``seconds`` is not a positive number.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < 1e6:
        raise InputError(f"seconds={seconds!r:.60} is not a positive number")
    rows = workload(engine)
    lengths = sorted({min(16, engine.max_tokens), min(128, engine.max_tokens)})
    latency = {f"{n}_tokens": latency_of(engine, n, seconds / 4) for n in lengths}
    times = repeat(lambda: engine.embed(rows), seconds / 2)
    median = float(np.median(times))
    memory = peak_memory()  # before a second engine is loaded to see how long that takes
    start = time.perf_counter()
    Embedder(Bundle.open(engine.bundle.path), device=engine.device, threads=engine.threads)
    loaded = time.perf_counter() - start
    return {
        "device": engine.device,
        "threads": engine.threads,
        "cpu": platform.processor() or platform.machine(),
        "load_seconds": round(loaded, 4),
        "latency": latency,
        "throughput": {
            "texts": len(rows),
            "mean_tokens": round(sum(map(len, rows)) / len(rows), 1),
            "texts_per_second": round(len(rows) / median, 2),
            "tokens_per_second": round(sum(map(len, rows)) / median, 1),
            "runs": len(times),
        },
        "peak_memory_mb": memory,
    }


def workload(engine: Embedder) -> list[list[int]]:
    """Return token ids of 256 texts of log-normal length, the same for one vocabulary and length limit always."""
    rng = np.random.default_rng(SEED)
    lengths = np.round(rng.lognormal(np.log(MEAN_TOKENS) - SPREAD**2 / 2, SPREAD, SENTENCES))
    vocab_size, longest = engine.bundle.manifest.limits.vocab_size, min(256, engine.max_tokens)
    return [rng.integers(0, vocab_size, int(n)).tolist() for n in np.clip(lengths, min(3, longest), longest)]


def latency_of(engine: Embedder, tokens: int, seconds: float) -> dict[str, float]:
    """Return median and 90th percentile of the time for one text of so many tokens."""
    rng = np.random.default_rng(SEED)
    row = [rng.integers(0, engine.bundle.manifest.limits.vocab_size, tokens).tolist()]
    times = 1000 * np.array(repeat(lambda: engine.embed(row), seconds))
    return {"median_ms": round(float(np.median(times)), 4), "p90_ms": round(float(np.percentile(times, 90)), 4)}


def repeat(work: Callable[[], object], seconds: float) -> list[float]:
    """Call ``work`` once to warm up, then for ``seconds`` seconds and at least three times; return the times."""
    work()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < LEAST_RUNS or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return times


def peak_memory() -> float | None:
    """Return the largest resident set of this process so far in megabytes, None where it is not known."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    kilobytes = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
    return round(kilobytes[0] * 1024 / 1e6, 1) if kilobytes else None
