"""The package as a whole: what it exports, what it imports, and its benchmark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnxruntime
import pytest

import edgebert_runtime
from edgebert_runtime import Embedder, benchmark, errors
from edgebert_runtime.errors import InputError
from edgebert_runtime.task_specs import TASKS
from tests.support.patience import PATIENCE

FORBIDDEN = ("torch", "onnx", "onnx_ir", "transformers", "safetensors", "edgebert")


def test_exports_what_it_names() -> None:
    assert {name: getattr(edgebert_runtime, name) for name in edgebert_runtime.__all__}
    assert edgebert_runtime.EdgebertError is errors.EdgebertError
    public = {name for name in vars(edgebert_runtime) if not name.startswith("_")}
    assert set(edgebert_runtime.__all__) <= public


def test_importing_is_cheap_and_running_needs_three_packages(folder: Path) -> None:
    code = (
        "import sys\n"
        "import edgebert_runtime\n"
        "print(sorted({'onnxruntime', 'tokenizers'} & set(sys.modules)))\n"
        "edgebert_runtime.Embedder.load(sys.argv[1]).embed(['the cat'])\n"
        f"print(sorted(set({FORBIDDEN!r}) & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("[]\n[]\n", "")


def test_a_copy_of_the_folder_is_enough(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "edgebert_runtime").symlink_to(Path(edgebert_runtime.__file__).parent)
    code = "import sys, edgebert_runtime; print(edgebert_runtime.Embedder.load(sys.argv[1]).embed(['the cat']).shape)"
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("(1, 32)\n", "")


KEYS = {"device", "threads", "cpu", "load_seconds", "latency", "throughput", "peak_memory_mb"}


@pytest.mark.parametrize("task", [name for name, spec in TASKS.items() if not spec.generative])
def test_measures(task_bundle: Callable[[str], Path], caplog: pytest.LogCaptureFixture, task: str) -> None:
    engine = edgebert_runtime.load(task_bundle(task))
    figures = benchmark.measure(engine, seconds=0.1)
    assert set(figures) == KEYS
    assert set(figures["latency"]) == {"16_tokens", "40_tokens"}
    for latency in figures["latency"].values():
        assert 0 < latency["median_ms"] <= latency["p90_ms"]
    throughput = figures["throughput"]
    assert throughput["texts"] == 256
    assert throughput["tokens_per_second"] > throughput["texts_per_second"] > 0
    assert figures["load_seconds"] > 0
    assert figures["peak_memory_mb"] > 20
    assert figures["device"] == "cpu"
    assert "edgebert" not in {record.name for record in caplog.records}  # nothing was cut


def clock_of_runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """Return a clock that goes on by a second with each run of a model, and that no busy machine disturbs."""
    runs = 0

    def counted(run: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal runs
            runs += 1
            return run(*args, **options)

        return call

    for name in ("run", "run_with_iobinding"):
        monkeypatch.setattr(onnxruntime.InferenceSession, name, counted(getattr(onnxruntime.InferenceSession, name)))
    return lambda: float(runs)


# The 64 positions of a decoder leave no room for longer texts; sources have 40 of their own.
@pytest.mark.parametrize(("task", "lengths"), [("generate", (32,)), ("translate", (32, 40))])
def test_measures_writing(
    task_bundle: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, task: str, lengths: tuple[int, ...]
) -> None:
    engine = edgebert_runtime.load(task_bundle(task))
    monkeypatch.setattr(benchmark, "time", SimpleNamespace(perf_counter=clock_of_runs(monkeypatch)))
    figures = benchmark.measure(engine, seconds=0.1)
    assert set(figures) == KEYS
    assert set(figures["latency"]) == {f"first_after_{n}_tokens" for n in lengths}
    throughput = figures["throughput"]
    assert throughput["new_tokens"] == 32
    assert set(throughput) == {"new_tokens"} | {
        f"tokens_per_second_of_{count}{beams}"
        for count in (1, 8)
        for beams in (("", "_with_4_beams") if task == "translate" else ("",))
    }
    assert throughput["tokens_per_second_of_8"] > 7 * throughput["tokens_per_second_of_1"] > 0
    assert throughput.get("tokens_per_second_of_8_with_4_beams", 1) > 0
    assert benchmark.WORKLOADS.keys() == {spec.workload for spec in TASKS.values()}


class Counter:
    """A session that notes the tokens of each row."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.lengths: list[int] = []

    def run(self, output_names: Any, feeds: Any) -> Any:
        self.lengths += feeds["attention_mask"].sum(1).tolist()
        return self.session.run(output_names, feeds)


@pytest.mark.parametrize("task", [name for name, spec in TASKS.items() if not spec.generative])
def test_the_work_is_as_long_as_it_says(task_bundle: Callable[[str], Path], task: str) -> None:
    engine: Any = edgebert_runtime.load(task_bundle(task))
    counter = Counter(engine._session)
    second: Any = type(engine)(engine.bundle, session=counter)
    lengths = [max(7, n) for n in benchmark.workload(engine.max_tokens)]
    benchmark.work(second, lengths)()
    assert sorted(counter.lengths) == sorted(lengths)
    counter.lengths = []
    benchmark.work(second, [16])()
    assert counter.lengths == [16] * (2 if task == "multiple-choice" else 1)


def test_the_workload_is_the_same_always(engine: Embedder) -> None:
    lengths = benchmark.workload(engine.max_tokens)
    assert lengths == benchmark.workload(engine.max_tokens)
    assert {type(n) for n in lengths} == {int}
    assert 3 <= min(lengths) <= max(lengths) <= engine.max_tokens
    rows = benchmark.ids(engine, lengths)
    assert rows == benchmark.ids(engine, lengths)
    assert [len(row) for row in rows] == lengths
    assert {type(index) for row in rows for index in row} == {int}
    assert max(map(max, rows)) < engine.bundle.manifest.limits.vocab_size


@pytest.mark.parametrize("seconds", [0, -1, "1", None, True, float("nan"), float("inf")])
def test_measuring_needs_a_positive_time(engine: Embedder, seconds: Any) -> None:
    with pytest.raises(InputError, match="seconds="):
        benchmark.measure(engine, seconds=seconds)
