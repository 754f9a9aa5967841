r"""Compare models side by side, in short turns; print medians and the median of the ratios.

    python benchmarks/compare.py --side int8=edgebert:bert.int8 --side ort=onnxruntime:model.onnx E1 E2 E3
    python benchmarks/compare.py --side int8=edgebert:gpt2.int8 --side q8=llama:gpt2_q8_0.gguf@/venv/bin/python G1
    python benchmarks/compare.py --texts sentences.txt --tokenizer tokenizer.json \
        --side int8=edgebert:minilm.int8 --side ct2=ctranslate2:minilm_ct2_int8@/venv/bin/python E4 E4one

A side is NAME=KIND:PATH; @PYTHON behind it names another interpreter. benchmarks/worker.py lists the kinds. The speed
of a machine drifts, so each ratio compares turns that follow each other: the first side against each other side.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from workloads import CALLS, IDS, TEXTS, WRITING

WORKER = Path(__file__).with_name("worker.py")


class Worker:
    """A side in its own process."""

    def __init__(self, spec: str, first: str, environment: dict[str, str]) -> None:
        match = re.fullmatch(r"([^=]+)=([a-z0-9-]+):([^@]+)(?:@(.+))?", spec)
        if not match:
            sys.exit(f"--side {spec!r} is not NAME=KIND:PATH or NAME=KIND:PATH@PYTHON")
        self.name, kind, path, python = match.groups()
        command = [python or sys.executable, str(WORKER), kind, path, first]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | environment
        )
        self.start = self.answer()

    def answer(self) -> dict[str, Any]:
        """Read one line of the worker."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the side {self.name} ended; its message stands above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, workload: str, argument: object) -> dict[str, Any]:
        """Have the worker do something and read its answer."""
        assert self.process.stdin is not None
        print(workload, argument, file=self.process.stdin, flush=True)
        return self.answer()

    def close(self) -> None:
        """End the worker."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def compare(workers: list[Worker], workload: str, turns: int) -> None:
    """Time one workload on all sides in turn and print a line for each."""
    seconds: dict[str, list[float]] = {worker.name: [] for worker in workers}
    peaks = {}
    for worker in workers:
        worker.ask(workload, 1)
    for _ in range(turns):
        for worker in workers:
            answer = worker.ask(workload, CALLS[workload])
            seconds[worker.name].append(answer["seconds"])
            peaks[worker.name] = answer["peak_mb"]
    ours = seconds[workers[0].name]
    for worker in workers:
        theirs = seconds[worker.name]
        ratios = [theirs_s / ours_s for ours_s, theirs_s in zip(ours, theirs, strict=True)]
        print(
            f"{workload:6} {worker.name:24} {statistics.median(theirs) * 1e3:9.2f} ms (best {min(theirs) * 1e3:8.2f})  "
            f"ratio {statistics.median(ratios):6.3f}  peak {peaks[worker.name]:6.0f} MB",
            flush=True,
        )


def agreement(workers: list[Worker]) -> None:
    """Print the cosine of each side's vectors to those of the last side, the reference."""
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{i}.npy" for i in range(len(workers))]
        for worker, file in zip(workers, files, strict=True):
            worker.ask("save", file)
        reference = np.load(files[-1])
        for worker, file in zip(workers, files, strict=True):
            cosines = (np.load(file) * reference).sum(1)
            print(f"cosine {worker.name:24} mean {cosines.mean():.5f} min {cosines.min():.5f}", flush=True)


def cold(side: str, first: str, environment: dict[str, str], runs: int) -> None:
    """Print the time from process start to the first vector and the peak memory until then."""
    starts = []
    for _ in range(runs):
        worker = Worker(side, first, environment)
        starts.append(worker.start)
        worker.close()
    times = [s["first_s"] for s in starts]
    print(
        f"cold   {worker.name:24} {statistics.median(times):9.3f} s  (best {min(times):.3f})  "
        f"peak {max(s['peak_mb'] for s in starts):6.0f} MB",
        flush=True,
    )


def main() -> None:
    """Read the command line and run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="+", choices=[*IDS, *TEXTS, *WRITING])
    parser.add_argument("--side", action="append", required=True, help="NAME=KIND:PATH[@PYTHON], ours first")
    parser.add_argument("--texts", help="file of texts, a line each, for E4 and E4one")
    parser.add_argument("--tokenizer", help="tokenizer.json for sides without one")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--cold", type=int, default=0, help="processes to start to time the first vector")
    parser.add_argument("--agreement", action="store_true", help="print cosines to the last side")
    options = parser.parse_args()
    environment = {"BENCH_TEXTS": options.texts or "", "BENCH_TOKENIZER": options.tokenizer or ""}
    first = options.workloads[-1]
    for side in options.side if options.cold else []:
        cold(side, first, environment, options.cold)
    workers = [Worker(side, first, environment) for side in options.side]
    for workload in options.workloads:
        compare(workers, workload, options.turns)
    if options.agreement:
        agreement(workers)
    for worker in workers:
        worker.close()


if __name__ == "__main__":
    main()
