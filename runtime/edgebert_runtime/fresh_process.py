"""Measure a bundle in a process of its own: the time to its first result, and its memory."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from typing import Any

from edgebert_runtime.benchmark import memory_sizes, timed_calls
from edgebert_runtime.errors import EdgebertError

# The new process imports what this one would; its own folder, where it was started, is not on its path.
PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1].split(sys.argv[2]); "
    "from edgebert_runtime.fresh_process import main; main(*sys.argv[3:])"
)


def start_seconds(folder: str | os.PathLike[str], *, device: str = "cpu", threads: int | None = None) -> float:
    """Return the seconds from the start of Python to the first result of a bundle.

    Imports, the check of the files and the opening of the session are a part of it.

    Raises:
        EdgebertError: if the process fails.
    """
    start = time.perf_counter()
    with process("start", folder, device, threads) as child:
        assert child.stdout is not None
        child.stdout.readline()
        seconds = time.perf_counter() - start
        answer_of(child, folder)
    return seconds


def memory_bytes(
    folder: str | os.PathLike[str], *, device: str = "cpu", threads: int | None = None, max_tokens: int | None = None
) -> dict[str, int] | None:
    """Return the bytes of memory of a process that runs each workload once, None where the system does not say.

    ``peak`` is the largest resident set. ``mapped`` of it are pages of files, weights and libraries, which processes
    share and the system may drop. ``libraries`` is the resident set before the bundle is opened. ``max_tokens`` is as
    for :func:`edgebert_runtime.benchmark.timed_calls`.

    Raises:
        EdgebertError: if the process fails.
    """
    with process("memory", folder, device, threads, max_tokens) as child:
        sizes: dict[str, int] | None = answer_of(child, folder)
    return sizes


def process(
    job: str, folder: str | os.PathLike[str], device: str, threads: int | None, max_tokens: int | None = None
) -> subprocess.Popen[str]:
    """Start a process for one job."""
    options = json.dumps({"device": device, "threads": threads, "max_tokens": max_tokens})
    path = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", PROGRAM, path, os.pathsep, job, os.path.abspath(folder), options]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    )


def answer_of(child: subprocess.Popen[str], folder: str | os.PathLike[str]) -> Any:
    """Return the answer of a process, which ends with it.

    Raises:
        EdgebertError: with its last words, if it failed.
    """
    output, errors = child.communicate()
    if child.returncode:
        words = (errors.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
        raise EdgebertError(f"{os.fspath(folder)} cannot be measured in a process of its own: {words}")
    return json.loads(output or "null")


def main(job: str, folder: str, options: str) -> None:
    """Do one job and write the answer to standard output."""
    chosen = json.loads(options)
    max_tokens = chosen.pop("max_tokens")
    if job == "start":
        run_first(folder, chosen)
        sys.stdout.write("\n")
    else:
        json.dump(run_all(folder, chosen, max_tokens), sys.stdout)
    sys.stdout.flush()


def run_first(folder: str, options: dict[str, Any]) -> None:
    """Load a bundle and compute its first result."""
    from edgebert_runtime import load

    next(timed_calls(load(folder, **options))).call()


def run_all(folder: str, options: dict[str, Any], max_tokens: int | None) -> dict[str, int] | None:
    """Load a bundle, run its workloads once, and return the sizes of memory."""
    from edgebert_runtime import load

    for library in ("numpy", "tokenizers", "onnxruntime"):
        importlib.import_module(library)
    libraries = memory_sizes().get("VmRSS")
    for timed in timed_calls(load(folder, **options), max_tokens):
        timed.call()
    sizes = memory_sizes()
    if libraries is None:
        return None
    return {"peak": sizes["VmHWM"], "mapped": sizes["RssFile"], "libraries": libraries}
