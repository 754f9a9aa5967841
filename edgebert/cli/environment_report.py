"""The state of this machine, for ``edgebert doctor``: packages, devices and CPU."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgebert import __version__
from edgebert.cli.errors import describe, one_line

PACKAGES = ("numpy", "tokenizers", "click", "onnxruntime", "onnxruntime-gpu")
EXPORT_PACKAGES = ("torch", "onnx", "onnxscript", "onnx-ir", "safetensors", "sentencepiece", "protobuf")
# Each of these installs the module onnxruntime over that of the others.
BUILDS = (
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-directml",
    "onnxruntime-openvino",
    "onnxruntime-qnn",
    "onnxruntime-rocm",
    "onnxruntime-training",
)
KNOWN_BAD = {"safetensors": ("0.8.0rc0",)}
# Features of a CPU that multiplies and adds bytes in one instruction.
INT8_DOT_PRODUCTS = ("AVX-VNNI", "AVX512-VNNI", "dot product")

# y = -x for one float: the smallest model that shows whether a device computes.
NEGATION = bytes.fromhex(
    "080812003a320a0b0a017812017922034e65671201675a0f0a0178120a0a08080112040a020801"
    "620f0a0179120a0a08080112040a02080142040a001011"
)


@dataclass
class Diagnosis:
    """Facts and faults: ``broken`` stops edgebert from working, ``advice`` does not."""

    facts: dict[str, Any] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)


def diagnose() -> Diagnosis:
    """Examine packages, devices and CPU."""
    diagnosis = Diagnosis()
    versions = {"edgebert": __version__} | {name: version(name) for name in (*PACKAGES, *EXPORT_PACKAGES)}
    python = f"{platform.python_version()} ({platform.python_implementation()})"
    diagnosis.facts["system"] = {"python": python, "platform": platform.platform()}
    diagnosis.facts["packages"] = versions
    diagnosis.broken += [*wrong_versions(versions), *broken_imports(versions), *rival_builds()]
    if missing := [name for name in EXPORT_PACKAGES if versions[name] is None]:
        diagnosis.advice.append(f'to export and quantize, install {", ".join(missing)}: pip install "edgebert[export]"')
    diagnosis.facts["onnxruntime"] = {"providers": available_providers(), "devices": devices(diagnosis)}
    diagnosis.facts["cpu"] = cpu(diagnosis)
    return diagnosis


def version(distribution: str) -> str | None:
    """Return the installed version, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def wrong_versions(versions: dict[str, str | None]) -> Iterator[str]:
    """Yield a message for each package that is too old or faulty."""
    lowest = floors()
    for name, installed in versions.items():
        if installed is None:
            continue
        floor, extra = lowest.get(name, ("0", None))
        target = f"edgebert[{extra}]" if extra else "edgebert"
        if release(installed) < release(floor):
            yield f'{name} {installed} is older than {floor}; run: pip install -U "{target}"'
        if installed in KNOWN_BAD.get(name, ()):
            yield f'{name} {installed} is a faulty release; run: pip install -U "{name}!={installed}"'


def floors() -> dict[str, tuple[str, str | None]]:
    """Return the minimum version of each requirement and its extra, from edgebert's metadata."""
    try:
        requirements = importlib.metadata.requires("edgebert") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    pattern = re.compile(r"([\w.-]+)>=([\d.]+)(?:.*extra == ['\"](\w+)['\"])?")
    matches = filter(None, map(pattern.match, filter(applies, requirements)))
    return {match[1]: (match[2], match[3]) for match in matches}


def applies(requirement: str, python: tuple[int, ...] = sys.version_info[:2]) -> bool:
    """Return whether a requirement is for this version of Python."""
    marker = re.search(r"python_version (<|>=) ['\"]([\d.]+)['\"]", requirement)
    return marker is None or (python < release(marker[2])) == (marker[1] == "<")


def release(number: str) -> tuple[int, ...]:
    """Return the numbers of a version for comparing: ``1.28.0+cpu`` gives ``(1, 28, 0)``."""
    return tuple(int(part) for part in re.findall(r"\d+", number.partition("+")[0]))


def broken_imports(versions: dict[str, str | None]) -> Iterator[str]:
    """Import the packages of the runtime, and yield a message for each failure."""
    for module, remedy in (
        ("numpy", "pip install --force-reinstall edgebert"),
        ("tokenizers", "pip install --force-reinstall edgebert"),
        ("onnxruntime", 'pip install "edgebert[cpu]", or "edgebert[cuda]" for an NVIDIA GPU'),
    ):
        try:
            importlib.import_module(module)
        except Exception as error:  # a damaged package can raise anything
            there = versions[module] or (module == "onnxruntime" and versions["onnxruntime-gpu"])
            what = f"cannot be imported: {one_line(describe(error))}" if there else "is not installed"
            yield f"{module} {what}; run: {remedy}"


def rival_builds() -> Iterator[str]:
    """Find two builds of ONNX Runtime that overwrite each other's files."""
    installed = [name for name in BUILDS if version(name) is not None]
    if len(installed) > 1:
        extra = "cuda" if "onnxruntime-gpu" in installed else "cpu"
        yield (
            f"{' and '.join(installed)} are both installed, and overwrite each other's files; run: "
            f'pip uninstall -y {" ".join(installed)} && pip install "edgebert[{extra}]"'
        )


def devices(diagnosis: Diagnosis) -> dict[str, str]:
    """Return the state of each device."""
    states = {"cpu": probe("cpu")}
    if version("onnxruntime-gpu") is not None:
        states["cuda"] = probe("cuda")
    diagnosis.broken += [f"device {name} does not work: {state}" for name, state in states.items() if state != "works"]
    return states


def probe(device: str) -> str:
    """Run a tiny model on ``device`` as engines do; return "works", or why it does not."""
    try:
        import numpy as np

        from edgebert_runtime.session.session import open_session

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "negation.onnx")
            file.write_bytes(NEGATION)
            (result,) = open_session(file, device=device, threads=1).run(["y"], {"x": np.ones(1, np.float32)})
    except Exception as error:  # a damaged package can raise anything
        return one_line(str(error) or describe(error))
    return "works" if result.tolist() == [-1.0] else f"computes {result.tolist()} where -1.0 is right"


def available_providers() -> list[str]:
    """Return the execution providers of ONNX Runtime; edgebert uses those of CPU and CUDA."""
    try:
        from edgebert_runtime.session.session import import_onnxruntime

        return list(import_onnxruntime().get_available_providers())
    except Exception:  # broken_imports reports it
        return []


def cpu(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the processor, its instruction sets for int8, and the number of threads."""
    try:
        from edgebert_runtime.session import cpu_features
    except ImportError:  # broken_imports reports it
        return {"machine": platform.machine() or "unknown", "threads": {"of the machine": os.cpu_count()}}
    features = cpu_features.cpu_features()
    if features is not None and not any(features.get(name) for name in INT8_DOT_PRODUCTS):
        diagnosis.advice.append(
            "this CPU has no int8 dot product: measure int8 bundles with 'edgebert bench' before use"
        )
    return {
        "name": cpu_features.cpu_name(),
        "machine": platform.machine() or "unknown",
        "features": "unknown" if features is None else features,
        "threads": {"of the machine": os.cpu_count(), "for this process": usable_threads()},
    }


def usable_threads() -> int | None:
    """Return the number of threads of engines, from affinity and control group."""
    try:
        from edgebert_runtime.session.thread_count import available_threads
    except ImportError:  # broken_imports reports it
        return None
    return available_threads()
