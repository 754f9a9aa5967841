"""Errors of ONNX Runtime as one line with a remedy."""

from __future__ import annotations

import re
from pathlib import Path

from edgebert_runtime.errors import BundleError, DeviceError, EdgebertError

INSTALL = "pip install edgebert[cpu], or edgebert[cuda] for NVIDIA GPUs"
OUT_OF_MEMORY = re.compile(r"bad_alloc|out of memory|failed to allocate|allocation failed|BFCArena|OutOfMemory", re.I)
MISSING_LIBRARY = re.compile(r"(lib[\w+-]+\.so[.\d]*|[\w-]+\.dll): cannot open shared object|\"?([\w-]+64_\d+\.dll)\"?")
NO_KERNEL = re.compile(r"Could not find an implementation for (\w+)")


def one_line(error: BaseException, limit: int = 240) -> str:
    """Return the text of ``error`` without line breaks and paths of C++ sources, cut to ``limit`` characters."""
    text = re.sub(r"\s+", " ", str(error)).strip() or type(error).__name__
    text = re.sub(r"/onnxruntime_src/\S+:\d+ ", "", text)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def installed() -> list[str]:
    """Return the installed distributions that bring the module onnxruntime."""
    import importlib.metadata  # needed for errors only, and slow to import

    packages = []
    for name in ("onnxruntime", "onnxruntime-gpu"):
        try:
            packages.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return packages


def no_onnxruntime(error: ImportError) -> DeviceError:
    """Explain that the module onnxruntime cannot be imported."""
    if isinstance(error, ModuleNotFoundError) and error.name == "onnxruntime":
        return DeviceError(f"onnxruntime is not installed: {INSTALL}")
    return DeviceError(f"onnxruntime does not import ({one_line(error)}); install it again: {INSTALL}")


def explain_open(file: Path, error: Exception) -> EdgebertError:
    """Explain why a session could not be opened on the CPU."""
    text = one_line(error)
    if isinstance(error, MemoryError) or OUT_OF_MEMORY.search(text):
        return DeviceError(f"not enough memory to load {file} ({text}); free some, or use a quantized bundle")
    if match := NO_KERNEL.search(text):
        return DeviceError(
            f"this onnxruntime has no kernel for {match[1]} on this CPU",
            hint="pip install -U onnxruntime, or export with {target}",
            options={"target": "portable"},
        )
    if "escapes model directory" in text:
        return BundleError(
            f"{file} has its weights behind a link, which onnxruntime follows only inside the folder and where the "
            "model itself leads; put the file itself there"
        )
    return BundleError(f"{file} was refused by onnxruntime ({text}); export the bundle again")


def explain_run(error: Exception) -> EdgebertError:
    """Explain why a run failed."""
    text = one_line(error)
    if isinstance(error, MemoryError) or OUT_OF_MEMORY.search(text):
        return DeviceError(
            f"not enough memory for this batch ({text})",
            hint="lower {max_batch_tokens} or {max_tokens}",
            options={"max_batch_tokens": ..., "max_tokens": ...},
        )
    return EdgebertError(f"onnxruntime failed while running the model: {text}")


def explain_cuda(device: str, error: Exception | None) -> DeviceError:
    """Explain why CUDA is not available; ``error`` is the one of ONNX Runtime, if there is one."""
    packages = installed()
    if len(packages) > 1:
        return DeviceError(
            f"{device} is not available: {' and '.join(packages)} are both installed and overwrite each other; "
            "pip uninstall onnxruntime onnxruntime-gpu, then pip install edgebert[cuda]"
        )
    text = one_line(error) if error else ""
    if match := MISSING_LIBRARY.search(str(error or "")):
        library = match[1] or match[2]
        return DeviceError(
            f"{device} is not available: {library} cannot be loaded; install {provider_of(library)}, or put its folder "
            "on LD_LIBRARY_PATH"
        )
    if OUT_OF_MEMORY.search(text):
        return DeviceError(f"{device} has not enough memory ({text}); free some, or use a quantized bundle")
    if text:
        return DeviceError(f"{device} is not available: {text}; check the driver with nvidia-smi")
    if packages and not packages[0].startswith("onnxruntime-gpu"):
        return DeviceError(
            f"{device} is not available: {packages[0]} is the build for CPUs; pip uninstall onnxruntime, "
            "then pip install edgebert[cuda]"
        )
    return DeviceError(
        f"{device} is not available: onnxruntime does not offer it; check the driver with nvidia-smi, and that "
        "onnxruntime-gpu is built for the CUDA version installed"
    )


def provider_of(library: str) -> str:
    """Return the package or driver that a CUDA library comes with."""
    if "cudnn" in library:
        return "cuDNN 9 (pip install nvidia-cudnn-cu12)"
    version = re.search(r"\.so\.(\d+)|_(\d+)\.dll", library)
    major = (version[1] or version[2]) if version else ""
    if major == "1" or library == "libcuda.so":
        return "the NVIDIA driver"
    return f"CUDA {major} (pip install onnxruntime-gpu[cuda,cudnn])" if major else "CUDA"
