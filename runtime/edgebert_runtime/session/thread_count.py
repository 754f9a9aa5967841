"""The number of threads that this process may keep busy."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def available_threads(cgroups: Path = CGROUPS, membership: Path = MEMBERSHIP) -> int:
    """Return the smaller of CPU affinity and control group quota (rounded up), at least 1.

    ONNX Runtime reads neither: in a container with 2 CPUs of 64 it starts 64 threads.
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [math.ceil(quota) for quota in cpu_quotas(cgroups, membership)]
    return max(1, min([cpus, *quotas]))


def cpu_quotas(cgroups: Path, membership: Path) -> Iterator[float]:
    """Yield the CPU quotas of the process's control group and its parents, versions 1 and 2."""
    for line in read(membership).splitlines():
        _, _, entry = line.partition(":")
        controllers, _, group = entry.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = cgroups / controllers if controllers and (cgroups / controllers).is_dir() else cgroups
        root = root / "cpu" if controllers and root == cgroups else root
        # Inside a container the path of the group is often that of the host, while its files lie at the root.
        parts = [part for part in group.split("/") if part and part != ".."]
        for depth in range(len(parts), -1, -1):
            quota = group_quota(root.joinpath(*parts[:depth]))
            if quota is not None:
                yield quota


def group_quota(folder: Path) -> float | None:
    """Return the quota of one control group in CPUs, None if it has none."""
    words = read(folder / "cpu.max").split() or [
        read(folder / "cpu.cfs_quota_us").strip(),
        read(folder / "cpu.cfs_period_us").strip(),
    ]
    try:
        quota, period = (float(word) for word in words)
    except ValueError:  # "max", or no such file
        return None
    return quota / period if quota > 0 and period > 0 else None


def read(file: Path) -> str:
    """Return the text of a small file of the kernel, empty if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
