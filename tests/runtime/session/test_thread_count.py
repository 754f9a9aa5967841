"""Threads follow CPU affinity and control groups."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgebert_runtime.session.thread_count import available_threads
from tests.support.patience import PATIENCE


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)), raising=False)


def write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


def threads(tmp_path: Path, membership: str) -> int:
    (tmp_path / "membership").write_text(membership)
    return available_threads(tmp_path / "cgroup", tmp_path / "membership")


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("max 100000", 8),
        ("200000 100000", 2),
        ("250000 100000", 3),
        ("1000 100000", 1),
        ("9900000 100000", 8),
        ("", 8),
        ("nonsense", 8),
        ("0 100000", 8),
        ("100000 0", 8),
    ],
)
def test_version_2(tmp_path: Path, quota: str, expected: int) -> None:
    write(tmp_path / "cgroup", {"cpu.max": quota})
    assert threads(tmp_path, "0::/\n") == expected


def test_version_2_the_smallest_of_all_groups_above(tmp_path: Path) -> None:
    groups = {"cpu.max": "max 100000", "pods/cpu.max": "300000 100000", "pods/one/cpu.max": "500000 100000"}
    write(tmp_path / "cgroup", groups)
    assert threads(tmp_path, "0::/pods/one\n") == 3
    assert threads(tmp_path, "0::/elsewhere\n") == 8


def test_a_path_of_the_host_seen_from_inside_a_container(tmp_path: Path) -> None:
    write(tmp_path / "cgroup", {"cpu.max": "150000 100000"})
    assert threads(tmp_path, "0::/../../kubepods/pod1\n") == 2


@pytest.mark.parametrize(("quota", "expected"), [("-1", 8), ("150000", 2), ("400000", 4)])
@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
def test_version_1(tmp_path: Path, quota: str, expected: int, mount: str) -> None:
    write(tmp_path / "cgroup" / mount, {"cpu.cfs_quota_us": quota, "cpu.cfs_period_us": "100000"})
    lines = "11:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/docker/x\n"
    assert threads(tmp_path, lines) == expected


def test_nothing_to_read(tmp_path: Path) -> None:
    assert available_threads(tmp_path, tmp_path / "none") == 8


def test_systems_without_affinity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_threads(tmp_path, tmp_path / "none") == 1


def test_a_process_bound_to_one_cpu_uses_one_thread(folder: Path) -> None:
    code = (
        "import os, sys, edgebert_runtime\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "engine = edgebert_runtime.load(sys.argv[1])\n"
        "assert engine.threads == 1\n"
        "assert engine.embed(['the cat']).any()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
