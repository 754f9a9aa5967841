"""Measure several bundles side by side: size, speed, fidelity, start and memory."""

from __future__ import annotations

import functools
import os
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

import edgebert_runtime
from edgebert import __version__
from edgebert_exporters.fidelity.comparison import compare
from edgebert_exporters.fidelity.token_bytes import token_bytes
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.inference.sample_texts import MAX_UNKNOWN, sample_rows, unknown_share
from edgebert_exporters.progress import Progress, silent
from edgebert_exporters.reports.conditions import BUILT_IN_TEXTS
from edgebert_runtime.benchmark import milliseconds_in_turns, timed_calls
from edgebert_runtime.bundle.manifest import MANIFEST_NAME
from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.errors import InputError
from edgebert_runtime.fresh_process import memory_bytes, start_seconds
from edgebert_runtime.session.conditions import measurement_conditions
from edgebert_runtime.session.session import open_session

# Processes of each bundle that are started to time the first result.
STARTS = 3
# Settings that decide the meaning of an output.
SETTINGS = ("pooling", "labels", "problem_type")


def compare_bundles(
    bundles: Sequence[str | os.PathLike[str]],
    *,
    texts: Sequence[str] | None = None,
    texts_name: str | None = None,
    seconds: float = 5.0,
    device: str = "cpu",
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure bundles side by side on this machine. The first one is the baseline.

    Speed is measured in turns, start and memory in processes of their own. Speed needs the task of the baseline,
    fidelity its model: task, configuration, tokenizer and outputs.

    Args:
        bundles: The folders, at least two.
        texts: Texts like those that the model will read, for fidelity. None is those of our own that never calibrate.
        texts_name: The name of those texts.
        seconds: The time to measure the speed of each bundle.
        device: As for :func:`edgebert_runtime.load`.
        threads: As for :func:`edgebert_runtime.load`.
        progress: A function of each step, and of the parts that are done and all parts.

    Returns:
        ``conditions``, the name of the ``baseline``, ``bundles`` with the figures of each, and ``left_out`` with the
        figures that a bundle has not, and the reason.

    Raises:
        BundleError: if a folder is no intact bundle.
        InputError: if there are fewer than two bundles.
    """
    if len(bundles) < 2:
        raise InputError("has fewer than two folders", option="bundles", value=..., hint="give two bundles or more")
    progress, left_out = progress or silent, list[dict[str, str]]()
    opener = functools.partial(open_session, device=device, threads=threads)
    opened = [OpenedBundle(Bundle.open(folder), opener) for folder in bundles]
    names = unique_names(bundles, opened)
    rows = [{"name": name, **identity(side)} for name, side in zip(names, opened, strict=True)]
    options: dict[str, Any] = {"device": device, "threads": threads}
    longest = min(side.manifest.limits.max_tokens for side in opened)
    measure_processes(opened, rows, options, longest, progress)
    measure_speed(opened, rows, options, longest, seconds, left_out, progress)
    count = measure_fidelity(opened, rows, texts, left_out, progress)
    origin = BUILT_IN_TEXTS if texts is None else texts_name or "given by the caller"
    conditions = {**measurement_conditions(threads), "edgebert": __version__, "device": device, "seconds": seconds}
    conditions |= {"starts": STARTS, "texts": {"origin": origin, "count": count}}
    return {"conditions": conditions, "baseline": names[0], "bundles": rows, "left_out": left_out}


def unique_names(bundles: Sequence[str | os.PathLike[str]], opened: Sequence[OpenedBundle]) -> list[str]:
    """Return the names of the folders; those that several have are paths, and numbered if these are the same."""
    names = [side.path.resolve().name for side in opened]
    counts = Counter(names)
    names = [os.fspath(folder) if counts[name] > 1 else name for folder, name in zip(bundles, names, strict=True)]
    counts = Counter(names)
    return [f"{name} ({place})" if counts[name] > 1 else name for place, name in enumerate(names, start=1)]


def identity(side: OpenedBundle) -> dict[str, Any]:
    """Return the model, the weights, the size and the notes of a bundle."""
    manifest = side.manifest
    files = [side.path / name for name in (*manifest.files, MANIFEST_NAME)]
    return {
        **{"path": os.fspath(side.path), "task": manifest.task, "family": manifest.family, "target": manifest.target},
        "weights": {
            "scheme": manifest.weights.scheme,
            "bytes": manifest.weights.bytes,
            "coverage": list(manifest.weights.coverage),
        },
        "bytes_on_disk": sum(os.stat(file).st_size for file in files),
        "notes": list(manifest.notes),
    }


def measure_processes(
    opened: Sequence[OpenedBundle],
    rows: Sequence[dict[str, Any]],
    options: dict[str, Any],
    longest: int,
    progress: Progress,
) -> None:
    """Add start and memory of processes of their own to the rows of bundles, in turns."""
    starts: list[list[float]] = [[] for _ in opened]
    done, total = 0, (STARTS + 1) * len(opened)
    for turn in range(STARTS + 1):
        for side, row, times in zip(opened, rows, starts, strict=True):
            if turn < STARTS:
                times.append(start_seconds(side.path, **options))
            else:
                row["memory_bytes"] = memory_bytes(side.path, max_tokens=longest, **options)
            done += 1
            progress("measure start and memory", done, total)
    for row, times in zip(rows, starts, strict=True):
        row["start_seconds"] = spread(times)


def measure_speed(
    opened: Sequence[OpenedBundle],
    rows: Sequence[dict[str, Any]],
    options: dict[str, Any],
    longest: int,
    seconds: float,
    left_out: list[dict[str, str]],
    progress: Progress,
) -> None:
    """Add the times of all workloads to the rows of bundles of the first one's task."""
    task = opened[0].manifest.task
    chosen = [place for place, side in enumerate(opened) if side.manifest.task == task]
    for place in sorted(set(range(len(opened))) - set(chosen)):
        reason = f"its task is {opened[place].manifest.task}, not {task}, whose workloads are others"
        left_out.append({"bundle": rows[place]["name"], "figures": "speed", "reason": reason})
    engines = [edgebert_runtime.load(opened[place].path, verify="size", **options) for place in chosen]
    workloads = list(zip(*(list(timed_calls(engine, longest)) for engine in engines), strict=True))
    for done, calls in enumerate(workloads, start=1):
        times = milliseconds_in_turns([timed.call for timed in calls], seconds * calls[0].share)
        for place, own in zip(chosen, times, strict=True):
            ratio = statistics.median(base / time for base, time in zip(times[0], own, strict=True))
            entry = {"workload": calls[0].name, "turns": len(own), "milliseconds": spread(own), "speedup": ratio}
            rows[place].setdefault("speed", []).append(entry)
        progress("measure speed", done, len(workloads))
    for engine in engines:
        engine.close()


def measure_fidelity(
    opened: Sequence[OpenedBundle],
    rows: Sequence[dict[str, Any]],
    texts: Sequence[str] | None,
    left_out: list[dict[str, str]],
    progress: Progress,
) -> int:
    """Add the fidelity to the first bundle to the rows of bundles of the same model; return the number of texts."""
    base, *others = opened
    ids = sample_rows(base.bundle, texts)
    ids = ids if texts is not None else ids[1::2]  # the others calibrate
    samples = base.samples(ids)
    counts = token_bytes(base.bundle) if base.kind.scores_samples else None
    share = unknown_share(base.bundle, texts)
    unreadable = f"{share:.0%} of the tokens of the texts are unknown to the model" if share > MAX_UNKNOWN else ""
    for done, (side, row) in enumerate(zip(others, rows[1:], strict=True), start=1):
        if reason := unreadable or difference(base, side, texts):
            left_out.append({"bundle": row["name"], "figures": "fidelity", "reason": reason})
        else:
            row["fidelity"], _ = compare(base, side, samples, counts)
        progress("measure fidelity", done, len(others))
    return len(samples)


def difference(base: OpenedBundle, side: OpenedBundle, texts: Sequence[str] | None) -> str:
    """Return why the results of two bundles cannot be compared, nothing if they can."""
    first, second = base.manifest, side.manifest
    if first.task != second.task:
        return f"its task is {second.task}, not {first.task}"
    for name in first.config.keys() & second.config.keys():
        if first.config[name] != second.config[name]:
            return f"it is another model: {name} is {second.config[name]}, not {first.config[name]}"
    for name in SETTINGS:
        if first.settings.get(name) != second.settings.get(name):
            return f"its {name} is {second.settings.get(name)!r:.60}, not {first.settings.get(name)!r:.60}"
    shapes = [
        [spec.shape[-1] for spec in bundle.signature.outputs if spec.name in bundle.results] for bundle in (base, side)
    ]
    if shapes[0] != shapes[1]:
        return f"its outputs have {shapes[1]} numbers, not {shapes[0]}"
    if sample_rows(base.bundle, texts) != sample_rows(side.bundle, texts):
        return "its tokenizer gives other ids"
    return ""


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median with the smallest and the largest value."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}
