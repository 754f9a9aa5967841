"""What the CPU can do that decides how 8-bit weights are multiplied."""

from __future__ import annotations

import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
VNNI = {"avx512_vnni", "avx_vnni"}


def int8_products_saturate(cpuinfo: Path = CPUINFO, machine: str | None = None) -> bool:
    """Tell whether sums of products of 8-bit numbers may saturate on this CPU, and so be silently wrong.

    They do on x86-64 without VNNI: its instructions add two products of unsigned and signed bytes in 16 bits. Where
    the system does not say what the CPU has, the answer is yes.
    """
    if (machine or platform.machine()).lower() not in ("x86_64", "amd64"):
        return False
    try:
        lines = cpuinfo.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return True
    flags = next((line for line in lines if line.startswith("flags")), "")
    return VNNI.isdisjoint(flags.split())
