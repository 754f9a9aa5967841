"""Exact 8-bit products are asked for where the CPU's own would saturate, and only there: they cost a factor of 3."""

from __future__ import annotations

import json
import re
from pathlib import Path

import onnxruntime
import pytest

from edgebert_runtime.session.conditions import measurement_conditions
from edgebert_runtime.session.cpu_features import cpu_features, cpu_flags, cpu_name, int8_products_saturate
from edgebert_runtime.session.thread_count import available_threads

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


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("processor: 0\nflags\t\t: sse avx2 avx512_vnni\n", {"sse", "avx2", "avx512_vnni"}),
        ("Features\t: asimd asimddp\n", {"asimd", "asimddp"}),
        ("nothing", None),
    ],
)
def test_cpu_flags(tmp_path: Path, text: str, flags: set[str] | None) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert cpu_flags(tmp_path / "cpuinfo") == flags
    assert cpu_flags(tmp_path / "none") is None


def test_features_have_the_names_of_their_kind(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(INFO.format("avx2 avx512_vnni"))
    features = cpu_features(file)
    assert features
    assert {name for name, has in features.items() if has} == {"AVX2", "AVX512-VNNI"}
    file.write_text("Features\t: asimd asimddp\n")
    assert cpu_features(file) == {"dot product": True, "int8 matrix products": False, "SVE": False}
    assert cpu_features(tmp_path / "none") is None


def test_a_cpu_has_a_name(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(INFO.format("avx2"))
    assert cpu_name(tmp_path / "cpuinfo") == "Some CPU"
    assert cpu_name(tmp_path / "none")


def test_conditions_say_when_and_on_which_machine() -> None:
    conditions = measurement_conditions()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", conditions["date"])
    assert conditions["onnxruntime"] == onnxruntime.__version__
    assert (conditions["cpu"], conditions["threads"]) == (cpu_name(), available_threads())
    assert measurement_conditions(3)["threads"] == 3
    assert json.loads(json.dumps(conditions)) == conditions
