"""The CPU features that decide how int8 weights are multiplied."""

from __future__ import annotations

import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
VNNI = {"avx512_vnni", "avx_vnni"}


def int8_products_saturate(cpuinfo: Path = CPUINFO, machine: str | None = None) -> bool:
    """Say whether sums of int8 products can saturate on this CPU, and so be silently wrong.

    They can on x86-64 without VNNI, which adds two products of bytes in 16 bits. If the system does not tell the
    features of the CPU, the answer is yes.
    """
    if (machine or platform.machine()).lower() not in ("x86_64", "amd64"):
        return False
    try:
        lines = cpuinfo.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return True
    flags = next((line for line in lines if line.startswith("flags")), "")
    return VNNI.isdisjoint(flags.split())
