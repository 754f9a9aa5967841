"""``edgebert doctor``: what is broken on a machine, and how to repair it."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgebert.cli import environment_report as environment
from edgebert_runtime.errors import DeviceError
from edgebert_runtime.session import cpu_features, session

ONNXRUNTIME = "1.28" if sys.version_info >= (3, 11) else "1.23"
Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that makes a distribution look installed."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, version: str) -> None:
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        importlib.invalidate_caches()

    return write


@pytest.fixture
def uninstall(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that makes distributions of a name look absent, and their module fail to import."""
    real = importlib.metadata.version

    def remove(*names: str) -> None:
        def version(name: str) -> str:
            if name in names:
                raise importlib.metadata.PackageNotFoundError(name)
            return real(name)

        monkeypatch.setattr(importlib.metadata, "version", version)
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return remove


def test_a_sound_machine(run: Any) -> None:
    result = run("doctor")
    assert (result.exit_code, result.stderr) == (0, "")
    for part in (
        "python",
        "numpy",
        "onnxruntime",
        "CPUExecutionProvider",
        "devices cpu",
        "threads",
        "nothing is broken",
    ):
        assert part in result.stdout
    diagnosis = json.loads(run("doctor", "--json").stdout)
    assert diagnosis["ok"] is True
    assert diagnosis["facts"]["packages"]["numpy"] == importlib.metadata.version("numpy")
    assert diagnosis["facts"]["onnxruntime"]["devices"]["cpu"] == "works"


def test_two_builds_of_onnxruntime(run: Any, install: Install) -> None:
    install("onnxruntime-gpu", "1.30.0")
    result = run("doctor")
    assert result.exit_code == 1
    assert "onnxruntime and onnxruntime-gpu are both installed" in result.stdout
    assert 'pip uninstall -y onnxruntime onnxruntime-gpu && pip install "edgebert[cuda]"' in result.stdout
    assert "device cuda does not work" in result.stdout
    assert json.loads(run("doctor", "--json").stdout)["ok"] is False


def test_a_device_that_does_not_work(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_session(*_args: object, **_options: object) -> None:
        raise DeviceError("the accelerator\nis on fire")

    monkeypatch.setattr(session, "open_session", open_session)
    result = run("doctor")
    assert result.exit_code == 1
    assert "broken: device cpu does not work: the accelerator is on fire" in result.stdout


@pytest.mark.parametrize(
    ("name", "version", "text"),
    [
        (
            "onnxruntime",
            "1.22.0",
            f'onnxruntime 1.22.0 is older than {ONNXRUNTIME}; run: pip install -U "edgebert[cpu]"',
        ),
        ("torch", "2.9.1+cu128", 'torch 2.9.1+cu128 is older than 2.10; run: pip install -U "edgebert[export]"'),
        ("numpy", "1.25.0", 'numpy 1.25.0 is older than 1.26; run: pip install -U "edgebert"'),
        ("safetensors", "0.8.0rc0", 'safetensors 0.8.0rc0 is a faulty release; run: pip install -U "safetensors!='),
    ],
)
def test_wrong_versions(run: Any, install: Install, name: str, version: str, text: str) -> None:
    install(name, version)
    result = run("doctor")
    assert result.exit_code == 1
    assert f"broken: {text}" in result.stdout


def test_missing_onnxruntime(run: Any, uninstall: Any) -> None:
    uninstall("onnxruntime")
    result = run("doctor")
    assert result.exit_code == 1
    assert 'onnxruntime is not installed; run: pip install "edgebert[cpu]"' in result.stdout


def test_missing_export_packages_are_no_fault(run: Any, uninstall: Any) -> None:
    uninstall("torch", "onnxscript")
    result = run("doctor")
    assert result.exit_code == 0
    assert 'to export and quantize, install torch, onnxscript: pip install "edgebert[export]"' in result.stdout


def test_floors_are_those_of_the_metadata() -> None:
    floors = environment.floors()
    assert floors["numpy"][1] is None
    assert floors["onnxruntime"][1] == "cpu"
    assert {"torch", "onnx", "onnxscript", "onnx-ir", "safetensors"} < floors.keys()


@pytest.mark.parametrize(("text", "numbers"), [("1.28.0", (1, 28, 0)), ("2.13.0+cu126", (2, 13, 0)), ("3", (3,))])
def test_release(text: str, numbers: tuple[int, ...]) -> None:
    assert environment.release(text) == numbers


def test_features_are_unknown_elsewhere(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_features, "cpu_features", lambda: None)
    assert "features                  unknown" in run("doctor").stdout
    monkeypatch.setattr(cpu_features, "cpu_features", lambda: {"AVX2": True, "AVX-VNNI": False})
    result = run("doctor")
    assert result.exit_code == 0
    assert "advice: this CPU has no int8 dot product" in result.stdout


@pytest.mark.parametrize(
    ("requirement", "python", "applies"),
    [
        ("onnxruntime>=1.28; (python_version >= '3.11') and extra == 'cpu'", (3, 10), False),
        ("onnxruntime>=1.28; (python_version >= '3.11') and extra == 'cpu'", (3, 11), True),
        ('onnxruntime>=1.23; (python_version < "3.11") and extra == "cpu"', (3, 10), True),
        ('onnxruntime>=1.23; (python_version < "3.11") and extra == "cpu"', (3, 13), False),
        ("click>=8.1", (3, 10), True),
    ],
)
def test_requirements_of_other_pythons_do_not_count(requirement: str, python: tuple[int, ...], applies: bool) -> None:
    assert environment.applies(requirement, python) == applies
