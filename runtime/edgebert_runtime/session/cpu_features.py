"""The CPU: its name, and the features that decide how int8 weights are multiplied."""

from __future__ import annotations

import platform
import re
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
VNNI = {"avx512_vnni", "avx_vnni"}
# Names of the instruction sets for int8, by the flags of Linux.
X86_FEATURES = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx_vnni": "AVX-VNNI",
    "avx512_vnni": "AVX512-VNNI",
    "amx_int8": "AMX-INT8",
}
ARM_FEATURES = {"asimddp": "dot product", "i8mm": "int8 matrix products", "sve": "SVE"}


def int8_products_saturate(cpuinfo: Path = CPUINFO, machine: str | None = None) -> bool:
    """Say whether sums of int8 products can saturate on this CPU, and so be silently wrong.

    They can on x86-64 without VNNI, which adds two products of bytes in 16 bits. If the system does not tell the
    features of the CPU, the answer is yes.
    """
    if (machine or platform.machine()).lower() not in ("x86_64", "amd64"):
        return False
    return VNNI.isdisjoint(cpu_flags(cpuinfo) or ())


def cpu_flags(cpuinfo: Path = CPUINFO) -> set[str] | None:
    """Return the instruction sets that Linux lists, or None where it lists none."""
    flags = entry("flags|Features", cpuinfo)
    return None if flags is None else set(flags.split())


def cpu_features(cpuinfo: Path = CPUINFO) -> dict[str, bool] | None:
    """Return whether the CPU has each instruction set for int8, None where that is not known."""
    flags = cpu_flags(cpuinfo)
    if flags is None:
        return None
    names = ARM_FEATURES if "asimd" in flags else X86_FEATURES
    return {label: flag in flags for flag, label in names.items()}


def cpu_name(cpuinfo: Path = CPUINFO) -> str:
    """Return the name of the CPU, or that of its architecture."""
    return entry("model name", cpuinfo) or platform.processor() or platform.machine() or "unknown"


def entry(name: str, cpuinfo: Path) -> str | None:
    """Return the first entry whose name matches, None without any."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(rf"^(?:{name})[ \t]*:[ \t]*(.*)$", text, re.MULTILINE)
    return match[1].strip() if match else None
