"""Measure an engine: time to load, latency, throughput, memory."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.errors import InputError
from edgebert_runtime.session.cpu_features import cpu_name
from edgebert_runtime.task_specs import TASKS, Workload
from edgebert_runtime.tasks.base.engine import Engine

SEED = 7
SENTENCES = 256
# Lengths of short texts are about log-normal: 30 tokens in the mean, a few of more than 100.
MEAN_TOKENS, SPREAD = 30.0, 0.6
LEAST_RUNS, MOST_TURNS = 3, 31
# A call that takes longer needs no other one to warm up before each turn.
WARM_SECONDS = 0.5
NEW_TOKENS = 32
BEAMS = 4


def measure(engine: Engine, *, seconds: float = 10.0) -> dict[str, Any]:
    """Measure for about ``seconds`` seconds, on token ids, or texts, that are the same in every run.

    ``latency`` is of one text of 16 and of 128 tokens, in milliseconds; ``throughput`` of 256 texts of 3 to 256
    tokens in one call. Where a task takes pairs, a text is a pair, for multiple-choice a prompt with one of two
    choices; a question with both is timed. For generate, ``latency`` is that of the first token after prompts of 32
    and 512 tokens, and ``throughput`` counts 32 new tokens after one short prompt, and after eight together; for
    translate the same after sources, and with beams as well. Peak memory is that of the whole process, everything it
    did before included.

    Raises:
        InputError: if ``seconds`` is not a positive number.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < 1e6:
        raise InputError("is not a positive number", option="seconds", value=seconds)
    make = decoder_figures if TASKS[engine.bundle.manifest.task].generative else encoder_figures
    figures = make(engine, seconds)
    memory = peak_memory()  # before a second engine is loaded to see how long that takes
    start = time.perf_counter()
    type(engine)(Bundle.open(engine.bundle.path), device=engine.device, threads=engine.threads)
    loaded = time.perf_counter() - start
    return {
        "device": engine.device,
        "threads": engine.threads,
        "cpu": cpu_name(),
        "load_seconds": round(loaded, 4),
        **figures,
        "peak_memory_mb": memory,
    }


@dataclass(frozen=True)
class TimedCall:
    """A call whose time is measured: its key in figures, its name for readers, its share of the time to measure.

    ``num_tokens`` are those that a call reads, or adds to texts.
    """

    key: str
    name: str
    call: Callable[[], object]
    share: float
    num_tokens: int


def timed_calls(engine: Engine, max_tokens: int | None = None) -> Iterator[TimedCall]:
    """Yield the workloads of an engine, with texts of at most ``max_tokens`` tokens, or of the model's limit."""
    longest = min(engine.max_tokens, max_tokens or engine.max_tokens)
    make = decoder_calls if TASKS[engine.bundle.manifest.task].generative else encoder_calls
    return make(engine, longest)


def encoder_calls(engine: Engine, longest: int) -> Iterator[TimedCall]:
    """Yield the workloads of a task that reads texts: a short text, a long one, and many."""
    for n in sorted({min(16, longest), min(128, longest)}):
        yield TimedCall(f"{n}_tokens", f"1 text of {n} tokens", work(engine, [n]), 1 / 4, n)
    lengths = workload(longest)
    name = f"{len(lengths)} texts of {sum(lengths) / len(lengths):.0f} tokens on average"
    yield TimedCall("throughput", name, work(engine, lengths), 1 / 2, sum(lengths))


def decoder_calls(engine: Any, longest: int) -> Iterator[TimedCall]:
    """Yield the workloads of a task that adds tokens: the first one, and more of them, also with beams."""
    translates = TASKS[engine.bundle.manifest.task].kind == "encoder-decoder"
    longest = longest if translates else longest - NEW_TOKENS
    lengths = sorted({max(1, min(n, longest)) for n in (32, 512)})
    searches = [(count, beams) for beams in (1, *((BEAMS,) if translates else ())) for count in (1, 8)]
    share = 1 / (len(lengths) + len(searches))
    for n in lengths:
        yield TimedCall(
            f"first_after_{n}_tokens", f"the first token after {n} tokens", continued(engine, [n], 1), share, 1
        )
    for count, beams in searches:
        key = f"tokens_per_second_of_{count}" + (f"_with_{beams}_beams" if beams > 1 else "")
        name = f"{NEW_TOKENS} new tokens of {count} text{'s' * (count > 1)}" + f" with {beams} beams" * (beams > 1)
        call = continued(engine, [lengths[0]] * count, NEW_TOKENS, beams)
        yield TimedCall(key, name, call, share, count * NEW_TOKENS)


def encoder_figures(engine: Engine, seconds: float) -> dict[str, Any]:
    """Measure latency and throughput of a task that reads texts."""
    *short, many = timed_calls(engine)
    latency = {timed.key: latency_of(timed.call, seconds * timed.share) for timed in short}
    times = repeat(many.call, seconds * many.share)
    median = float(np.median(times))
    throughput = {
        "texts": SENTENCES,
        "mean_tokens": round(many.num_tokens / SENTENCES, 1),
        "texts_per_second": round(SENTENCES / median, 2),
        "tokens_per_second": round(many.num_tokens / median, 1),
        "runs": len(times),
    }
    return {"latency": latency, "throughput": throughput}


def decoder_figures(engine: Engine, seconds: float) -> dict[str, Any]:
    """Measure the time to the first token after short and long texts, and the new tokens a second after that."""
    latency, throughput = dict[str, Any](), dict[str, Any]()
    for timed in timed_calls(engine):
        if timed.num_tokens == 1:
            latency[timed.key] = latency_of(timed.call, seconds * timed.share)
        else:
            median = float(np.median(repeat(timed.call, seconds * timed.share)))
            throughput[timed.key] = round(timed.num_tokens / median, 1)
    return {"latency": latency, "throughput": {"new_tokens": NEW_TOKENS, **throughput}}


def milliseconds_in_turns(calls: Sequence[Callable[[], object]], seconds: float) -> list[list[float]]:
    """Time calls in turns, so that all meet the same moods of the machine; return the milliseconds of each turn.

    It takes about ``seconds`` seconds for each call, after one to warm up, and :data:`LEAST_RUNS` turns at least.
    """
    for call in calls:
        call()
    turns: list[list[float]] = []
    end = time.perf_counter() + seconds * len(calls)
    while len(turns) < LEAST_RUNS or (len(turns) < MOST_TURNS and time.perf_counter() < end):
        turns.append([milliseconds(call) for call in calls])
    return [list(times) for times in zip(*turns, strict=True)]


def milliseconds(run: Callable[[], object], least: float = 0.03) -> float:
    """Return the milliseconds of one run, averaged over at least ``least`` seconds after one to warm up.

    A run of more than :data:`WARM_SECONDS` counts itself: its beginning is a small part of it.
    """
    start = time.perf_counter()
    run()
    if (passed := time.perf_counter() - start) > WARM_SECONDS:
        return passed * 1000
    start, runs = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < least:
        run()
        runs += 1
    return passed / runs * 1000


def continued(engine: Any, lengths: Sequence[int], new: int, beams: int = 1) -> Callable[[], object]:
    """Return a call that generates so many tokens from texts of these lengths."""
    call = getattr(engine, TASKS[engine.bundle.manifest.task].method)
    options: dict[str, Any] = {"max_new_tokens": new, "num_beams": beams}
    options |= {"eos_token_id": None, "forced_eos_token_id": None}  # so that none has fewer
    if languages := getattr(engine, "languages", ()):
        options["target_language"] = engine.target_language or languages[0]
    return functools.partial(call, ids(engine, lengths), **options)


def workload(longest: int) -> list[int]:
    """Return how many tokens 256 texts of log-normal length have, the same for one length limit always."""
    rng = np.random.default_rng(SEED)
    lengths = np.round(rng.lognormal(np.log(MEAN_TOKENS) - SPREAD**2 / 2, SPREAD, SENTENCES))
    longest = min(256, longest)
    return [int(n) for n in np.clip(lengths, min(3, longest), longest)]


def ids(engine: Any, lengths: Sequence[int]) -> list[list[int]]:
    """Return random token ids of texts of these lengths."""
    rng = np.random.default_rng(SEED)
    return [rng.integers(0, engine.bundle.manifest.limits.vocab_size, n).tolist() for n in lengths]


def masked(engine: Any, lengths: Sequence[int]) -> list[list[int]]:
    """Return random token ids with a mask in the middle."""
    return [[*row[: len(row) // 2], engine._mask_id, *row[len(row) // 2 + 1 :]] for row in ids(engine, lengths)]


def word(engine: Any) -> str:
    """Return a short text that the tokenizer has a token for."""
    tokenizer = engine._tokenizer
    if tokenizer.outside is None:
        return "a"
    candidates: list[str] = ["a", *tokenizer.inner.get_vocab()]
    return next(text for text in candidates if tokenizer.takes(f"{text} {text}"))


def words(engine: Any, tokens: int) -> str:
    """Return a text of so many tokens, or of fewer where the tokenizer takes several for its word."""
    text = word(engine)
    each = max(1, round(len(engine._tokenizer.content(" ".join([text] * 64)).ids) / 64))
    return " ".join([text] * max(1, tokens // each))


def pairs(engine: Any, lengths: Sequence[int]) -> list[tuple[str, str]]:
    """Return pairs of texts of these lengths together, the first one a quarter of it."""
    rooms = [max(4, n - engine._tokenizer.pair.num_special_tokens) for n in lengths]
    return [(words(engine, room // 4), words(engine, room - room // 4)) for room in rooms]


def questions(engine: Any, lengths: Sequence[int]) -> list[tuple[str, list[str]]]:
    """Return prompts of one word with two choices, of one length or of two that follow each other."""
    choices = [words(engine, n - engine._tokenizer.pair.num_special_tokens - 1) for n in lengths]
    return [(word(engine), list(two)) for two in zip(choices[::2], choices[1::2] or choices, strict=True)]


def texts(engine: Any, lengths: Sequence[int]) -> list[str]:
    """Return texts of these lengths."""
    return [words(engine, n - engine._tokenizer.num_special_tokens) for n in lengths]


def columns(engine: Any, lengths: Sequence[int]) -> tuple[list[str], list[str]]:
    """Return the first and the second texts of :func:`pairs`."""
    first, second = zip(*pairs(engine, lengths), strict=True)
    return list(first), list(second)


# The arguments of the method of an engine.
WORKLOADS: dict[Workload, Callable[[Any, Sequence[int]], Sequence[Any]]] = {
    "ids": lambda engine, lengths: [ids(engine, lengths)],
    "masked": lambda engine, lengths: [masked(engine, lengths)],
    "texts": lambda engine, lengths: [texts(engine, lengths)],
    "pairs": lambda engine, lengths: [pairs(engine, lengths)],
    "columns": columns,
    "choices": lambda engine, lengths: [questions(engine, lengths)],
}


def work(engine: Engine, lengths: Sequence[int]) -> Callable[[], object]:
    """Return a call that computes texts of these lengths, in the way of the engine's task."""
    spec = TASKS[engine.bundle.manifest.task]
    call, arguments = getattr(engine, spec.method), WORKLOADS[spec.workload](engine, lengths)
    return functools.partial(call, *arguments, max_tokens=engine.max_tokens)


def latency_of(call: Callable[[], object], seconds: float) -> dict[str, float]:
    """Return median and 90th percentile of the time of a call."""
    times = 1000 * np.array(repeat(call, seconds))
    return {"median_ms": round(float(np.median(times)), 4), "p90_ms": round(float(np.percentile(times, 90)), 4)}


def repeat(call: Callable[[], object], seconds: float) -> list[float]:
    """Call it once to warm up, then for ``seconds`` seconds and at least three times; return the times."""
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < LEAST_RUNS or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def peak_memory() -> float | None:
    """Return the largest resident set of this process so far in megabytes, None where it is not known."""
    sizes = memory_sizes()
    return round(sizes["VmHWM"] / 1e6, 1) if "VmHWM" in sizes else None


def memory_sizes() -> dict[str, int]:
    """Return the bytes that Linux counts for this process by their names there, none on other systems.

    ``VmHWM`` is the largest resident set so far. Of the set now, ``RssFile`` is that of mapped files: weights and
    libraries, which processes share.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return {}
    sizes = [line.split() for line in status.splitlines() if line.endswith(" kB")]
    return {name.rstrip(":"): int(count) * 1024 for name, count, _ in sizes}
