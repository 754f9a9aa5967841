"""Exact 8-bit products are asked for where the CPU's own would saturate, and only there: they cost a factor of 3."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebert_runtime.session.cpu_features import int8_products_saturate

INFO = "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu sse2 {} rdtscp\nbugs\t\t:\n\nprocessor\t: 1\n"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("avx2", True), ("avx2 avx512f avx512bw", True), ("avx2 avx_vnni", False), ("avx512f avx512_vnni", False)],
)
@pytest.mark.parametrize("machine", ["x86_64", "AMD64"])
def test_x86(tmp_path: Path, flags: str, expected: bool, machine: str) -> None:
    (tmp_path / "cpuinfo").write_text(INFO.format(flags))
    assert int8_products_saturate(tmp_path / "cpuinfo", machine) is expected


def test_x86_that_does_not_say(tmp_path: Path) -> None:
    assert int8_products_saturate(tmp_path / "none", "x86_64")
    (tmp_path / "cpuinfo").write_text("")
    assert int8_products_saturate(tmp_path / "cpuinfo", "x86_64")


@pytest.mark.parametrize("machine", ["aarch64", "arm64", "riscv64", "ppc64le"])
def test_others_do_not(tmp_path: Path, machine: str) -> None:
    assert not int8_products_saturate(tmp_path / "none", machine)
