"""Sessions of ONNX Runtime, with the device and threads that they really got.

Only this module imports onnxruntime, and inside functions: a process that forks before it opens a session then
inherits no threads and locks of ONNX Runtime.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from edgebert_runtime.errors import DeviceError, EdgebertError, ForkError
from edgebert_runtime.inputs.validation import check_whole
from edgebert_runtime.session.cpu_features import int8_products_saturate
from edgebert_runtime.session.error_messages import explain_cuda, explain_open, explain_run, no_onnxruntime
from edgebert_runtime.session.thread_count import available_threads

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

logger = logging.getLogger("edgebert")

CUDA = "CUDAExecutionProvider"
MAX_THREADS = 1024
# Operators of the matrix products. ONNX Runtime puts shape arithmetic on the CPU by itself; one of these on the CPU
# means that the graph was exported for another device.
HEAVY = re.compile("Gemm|MatMul|Attention|LSTM")


class Runnable(Protocol):
    """A session, as engines use it."""

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """Compute the outputs called ``output_names``, all if None."""


class Session:
    """An open session: its device and threads, and the reason for a fallback to the CPU."""

    def __init__(self, inner: Any, device: str, threads: int, fallback: str | None = None) -> None:
        self.inner = inner
        self.device = device
        self.threads = threads
        self.fallback = fallback
        self.process = os.getpid()

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[np.float32]]:
        """Compute the outputs called ``output_names``, all if None.

        Raises:
            ForkError: in a process forked after the session was opened.
            DeviceError: if memory runs out; the session stays usable.
            EdgebertError: if ONNX Runtime fails otherwise.
        """
        if os.getpid() != self.process:
            raise fork_error(self.process)
        try:
            outputs: list[NDArray[np.float32]] = self.inner.run(output_names, feeds)
        except Exception as error:  # its exceptions share no base class but this
            raise explain_run(error) from error
        return outputs

    def __repr__(self) -> str:
        return f"Session(device={self.device!r}, threads={self.threads})"


class ClosedSession:
    """Stands for a session that was freed."""

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """Refuse to run.

        Raises:
            EdgebertError: always.
        """
        raise EdgebertError("this engine was closed while it ran; load the bundle again")


def fork_error(opened_in: int) -> ForkError:
    """Return the error for an engine in a child forked since: it has the session's memory, but none of its threads."""
    return ForkError(
        f"this engine was loaded in process {opened_in} and is used in its fork {os.getpid()}; load it after the "
        'fork, or start processes with the "spawn" or "forkserver" method'
    )


def parse_device(device: str) -> tuple[str, int]:
    """Split ``cpu``, ``cuda``, ``cuda:1`` or ``auto`` into its kind and index.

    Raises:
        DeviceError: if it is none of these.
    """
    match = re.fullmatch(r"(cpu|auto|cuda)|cuda:([0-9]{1,3})", device) if isinstance(device, str) else None
    if not match:
        raise DeviceError("is not one of cpu, cuda, cuda:N (N counts GPUs from 0), auto", option="device", value=device)
    return match[1] or "cuda", int(match[2] or 0)


def open_session(
    file: Path, *, device: str = "cpu", threads: int | None = None, cpu_only: DeviceError | None = None
) -> Session:
    """Open a session over the ONNX model in ``file``.

    ``threads=None`` takes as many as affinity and control group allow. ``auto`` tries CUDA, and when that fails
    logs why and runs on the CPU. ``cpu_only`` is the reason that the model does not run on CUDA, if there is one.

    Raises:
        DeviceError: if the device cannot be had, onnxruntime is not installed, or memory runs out.
        BundleError: if ONNX Runtime refuses the model.
    """
    kind, index = parse_device(device)
    if threads is not None:
        threads = check_whole("threads", threads, 1, MAX_THREADS)
    if kind == "cpu":
        return open_on_cpu(file, threads)
    try:
        if cpu_only is not None:
            raise cpu_only
        return open_on_cuda(file, index, threads)
    except DeviceError as error:
        if kind == "cuda":
            raise
        logger.warning("running on the CPU: %s", error)
        session = open_on_cpu(file, threads)
        session.fallback = str(error)
        return session


def import_onnxruntime() -> Any:
    """Import onnxruntime, with its telemetry off unless the environment says otherwise.

    Since 1.29 it reports to Microsoft over the network, from Linux and macOS too; a bundle that is run must not
    reach out. The variable counts only when it is set before onnxruntime starts.

    Raises:
        DeviceError: saying what to install, if it is not there.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
    except ImportError as error:
        raise no_onnxruntime(error) from error
    return onnxruntime


@contextlib.contextmanager
def preload_imports() -> Iterator[None]:
    """Import onnxruntime and tokenizers on another thread while the body reads and hashes files."""

    def imports() -> None:
        with contextlib.suppress(Exception):  # what is missing is said where it is needed
            import_onnxruntime()
            import tokenizers  # noqa: F401

    thread = threading.Thread(target=imports, name="edgebert-import")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def session_options(onnxruntime: Any, threads: int) -> Any:
    """Return the options of every session.

    Each session has its own threads. A pool shared between sessions is no alternative: a process that has one refuses
    every session with its own threads, those of other libraries included. Pools compete for the cores because their
    threads spin after a run. Spinning for 0.2 ms bridges the gap between two calls, and ends before it disturbs. Two
    sessions of MiniLM in turn then take 1.2 ms a text instead of 1.9. One session alone is 4 % faster than without
    spinning.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what goes wrong is raised, with the same text
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    # A memory pattern is stored for every shape: memory grows without end when lengths vary.
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.intra_op.spin_duration_us", "200")
    if int8_products_saturate():
        # Exact 8-bit products. With VNNI they are exact anyway, and this would make them three times slower.
        options.add_session_config_entry("session.x64quantprecision", "1")
    return options


def create(onnxruntime: Any, file: Path, options: Any, providers: Sequence[Any]) -> Any:
    """Create an InferenceSession that neither retries on other providers nor prints."""
    # Add and LayerNormalization apart are faster on CPUs than fused.
    arguments = {"providers": providers, "disabled_optimizers": ["SkipLayerNormFusion"], "enable_fallback": 0}
    try:
        return onnxruntime.InferenceSession(os.fspath(file), options, **arguments)
    except RuntimeError as error:
        if "global thread pool" not in str(error):
            raise
    # The application made a thread pool for the whole process, which then allows no other.
    options.use_per_session_threads = False
    options.intra_op_num_threads = options.inter_op_num_threads = 0
    return onnxruntime.InferenceSession(os.fspath(file), options, **arguments)


def open_on_cpu(file: Path, threads: int | None) -> Session:
    """Open a session on the CPU."""
    onnxruntime = import_onnxruntime()
    count = threads or available_threads()
    try:
        inner = create(onnxruntime, file, session_options(onnxruntime, count), ["CPUExecutionProvider"])
    except Exception as error:
        raise explain_open(file, error) from error
    return Session(inner, "cpu", count)


def open_on_cuda(file: Path, index: int, threads: int | None) -> Session:
    """Open a session on a GPU, and check that the matrix products run there."""
    onnxruntime = import_onnxruntime()
    if CUDA not in onnxruntime.get_available_providers():
        raise explain_cuda(f"cuda:{index}", None)
    if hasattr(onnxruntime, "preload_dlls"):  # the CUDA libraries that pip installed; prints nothing when told so
        preload(onnxruntime)
    count = threads or available_threads()
    options = session_options(onnxruntime, count)
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    # Grow the arena by what is asked for, not by doubling: lengths vary, and doubling is never given back.
    provider = (CUDA, {"device_id": str(index), "arena_extend_strategy": "kSameAsRequested"})
    try:
        inner = create(onnxruntime, file, options, [provider, "CPUExecutionProvider"])
    except Exception as error:
        raise explain_cuda(f"cuda:{index}", error) from error
    if CUDA not in inner.get_providers():
        raise explain_cuda(f"cuda:{index}", None)
    if on_cpu := compute_nodes_on_cpu(inner):
        raise DeviceError(
            f"{file} was not made for cuda: {', '.join(on_cpu)} would run on the CPU",
            hint="export with {target}, or use {device}",
            options={"target": "portable", "device": "cpu"},
        )
    return Session(inner, f"cuda:{index}", count)


def preload(onnxruntime: Any) -> None:
    """Load the CUDA libraries of pip packages; a missing one shows when the session opens."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception):
        onnxruntime.preload_dlls()


def compute_nodes_on_cpu(inner: Any) -> list[str]:
    """Return the types of compute operators that ONNX Runtime put on the CPU."""
    return sorted(
        {
            node.op_type
            for part in inner.get_provider_graph_assignment_info()
            if part.ep_name == "CPUExecutionProvider"
            for node in part.get_nodes()
            if HEAVY.search(node.op_type)
        }
    )
