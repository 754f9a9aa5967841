"""One engine under many threads, many shapes and many repeats."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgebert_runtime
from edgebert_runtime import Bundle, Embedder
from edgebert_runtime.errors import EdgebertError
from edgebert_runtime.session import batch_executor as workers
from tests.support.patience import PATIENCE

CLEAN = """
import multiprocessing, os, sys
import edgebert_runtime

def child(engine):
    assert engine.embed(["the cat"]).any()

if __name__ == "__main__":
    engine = edgebert_runtime.load(sys.argv[1], threads=2)
    environment = dict(os.environ)
    engine.embed(["the cat sat on a mat"] * 2000, progress=lambda done, total: None)
    assert engine._executor.second is not None
    assert dict(os.environ) == environment
    for method in ("spawn", "forkserver"):
        process = multiprocessing.get_context(method).Process(target=child, args=(engine,))
        process.start()
        process.join()
        assert process.exitcode == 0, method
    if os.fork() == 0:
        os._exit(0)
    os.wait()
"""


def rows(seed: int, count: int, longest: int = 40) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(5, 70) for _ in range(rng.randint(1, longest))] for _ in range(count)]


@pytest.fixture(scope="module")
def two(engine: Embedder) -> Embedder:
    """Load with two threads on any machine."""
    return Embedder(engine.bundle, threads=2)


@pytest.fixture
def side_by_side(two: Embedder, monkeypatch: pytest.MonkeyPatch) -> Embedder:
    """Load an engine that computes batches side by side from the first."""
    monkeypatch.setattr(workers, "TOKENS_BEFORE_SECOND", 1)
    fresh = Embedder(two.bundle, threads=2)
    fresh.embed(rows(0, 200))
    assert fresh._executor.second is not None
    return fresh


def test_eight_threads_equal_one(two: Embedder) -> None:
    work = [rows(seed, 9) for seed in range(40)]
    expected = [two.embed(batch) for batch in work]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for results, reference in zip(pool.map(two.embed, work), expected, strict=True):
                np.testing.assert_array_equal(results, reference)


WORK: dict[str, Callable[[Any], Any]] = {
    "classify": lambda engine: [item.scores.tolist() for item in engine.classify(rows(1, 300))],
    "rerank": lambda engine: engine.rerank("the cat", ["dog " * (i % 9) for i in range(300)]),
    "multiple-choice": lambda engine: engine.choose_many([("the", ["cat", "dog " * (i % 9)]) for i in range(150)]),
    "fill-mask": lambda engine: engine.fill(["[MASK] cat" + " dog" * (i % 9) for i in range(300)]),
}


@pytest.mark.parametrize("task", WORK)
def test_engines_of_all_tasks_are_shared(
    task_bundle: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    monkeypatch.setattr(workers, "TOKENS_BEFORE_SECOND", 1)
    engine: Any = type(edgebert_runtime.load(task_bundle(task)))(Bundle.open(task_bundle(task)), threads=2)
    expected = WORK[task](engine)
    assert engine._executor.second is not None
    with ThreadPoolExecutor(8) as pool:
        for results in pool.map(WORK[task], [engine] * 8):
            assert results == expected


def test_side_by_side_equals_one_after_the_other(two: Embedder, side_by_side: Embedder) -> None:
    many = rows(1, 700)
    np.testing.assert_allclose(side_by_side.embed(many), np.concatenate([two.embed([row]) for row in many]), atol=1e-5)
    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(side_by_side.embed, [many] * 4):
            np.testing.assert_array_equal(results, side_by_side.embed(many))


def test_side_by_side_fails_as_one_and_goes_on(side_by_side: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert side_by_side._executor.second is not None
    session = side_by_side._executor.second[0]
    expected, run = side_by_side.embed(rows(2, 200)), session.inner.run
    runs = 0

    def broken(names: Any, feeds: Any) -> Any:
        nonlocal runs
        runs += 1
        time.sleep(0.1)  # far longer than the other thread needs to see the first failure
        return [np.full_like(run(names, feeds)[0], np.nan)]

    with monkeypatch.context() as patch:
        patch.setattr(session.inner, "run", broken)
        with pytest.raises(EdgebertError, match="NaN or infinity for text"):
            side_by_side.embed([[5] * 40] * 200, max_batch_tokens=80)
    assert runs < 100  # of 200 batches
    np.testing.assert_array_equal(side_by_side.embed(rows(2, 200)), expected)


def test_opens_a_second_session_only_where_it_pays(two: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Embedder(two.bundle, threads=2)
    for _ in range(3):
        small.embed(rows(3, 20))
    assert small._executor.second is None  # one batch at a time
    alone = Embedder(two.bundle, threads=1)
    alone.embed(rows(3, 900))
    assert alone._executor.second is None
    monkeypatch.setattr(workers, "MAX_SECOND_BYTES", 1000)
    large = Embedder(two.bundle, threads=2)
    large.embed(rows(3, 900))
    assert large._executor.second is None


def test_repeats_are_equal_bit_for_bit(two: Embedder) -> None:
    text = ["the cat sat on a mat"]
    expected = two.embed(text)
    for repeat in range(50):
        two.embed(rows(repeat, 1 + repeat % 5))
        np.testing.assert_array_equal(two.embed(text), expected)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


def test_memory_stays_flat_over_many_shapes(two: Embedder) -> None:
    rng = random.Random(4)
    for run in range(2200):
        two.embed([[5] * rng.randint(1, 40)] * rng.randint(1, 12))
        if run == 200:
            before = resident()
    assert resident() < 1.1 * before


def test_nothing_is_printed_and_processes_start(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(CLEAN)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(script), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
