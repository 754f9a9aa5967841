"""Sessions: what was asked for is what is obtained, and every refusal says why."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgebert_runtime import Embedder
from edgebert_runtime.errors import BundleError, DeviceError, EdgebertError, InputError
from edgebert_runtime.session import error_messages as device_errors
from edgebert_runtime.session import session
from edgebert_runtime.session.session import CUDA, open_session, parse_device
from tests.support.patience import PATIENCE

FEEDS = {name: np.ones((1, 3), np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}


class FakeOnnxRuntime:
    """An onnxruntime that offers CUDA, and what may go wrong with it."""

    class SessionOptions:
        def __init__(self) -> None:
            self.entries: dict[str, str] = {}

        def add_session_config_entry(self, key: str, value: str) -> None:
            self.entries[key] = value

    GraphOptimizationLevel = SimpleNamespace(ORT_ENABLE_ALL=99)

    def __init__(
        self, *, error: Exception | None = None, got: tuple[str, ...] = (CUDA,), on_cpu: str = "Shape"
    ) -> None:
        self.error, self.got, self.on_cpu = error, got, on_cpu
        self.opened: list[tuple[Any, Any]] = []

    def get_available_providers(self) -> list[str]:
        return [CUDA, "CPUExecutionProvider"]

    def preload_dlls(self) -> None:
        print("Failed to load libcudnn.so.9")  # noqa: T201  # as the real one does

    def InferenceSession(self, file: str, options: Any, *, providers: Any, **_: Any) -> Any:  # noqa: N802
        if providers != ["CPUExecutionProvider"] and self.error:
            raise self.error
        self.opened.append((options, providers))
        part = SimpleNamespace(ep_name="CPUExecutionProvider", get_nodes=lambda: [SimpleNamespace(op_type=self.on_cpu)])
        return SimpleNamespace(
            get_providers=lambda: [*self.got, "CPUExecutionProvider"],
            get_provider_graph_assignment_info=lambda: [part],
        )


def use(monkeypatch: pytest.MonkeyPatch, fake: FakeOnnxRuntime, packages: tuple[str, ...] = ()) -> FakeOnnxRuntime:
    monkeypatch.setattr(session, "import_onnxruntime", lambda: fake)
    monkeypatch.setattr(device_errors, "installed", lambda: list(packages))
    return fake


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("cpu", ("cpu", 0)),
        ("auto", ("auto", 0)),
        ("cuda", ("cuda", 0)),
        ("cuda:0", ("cuda", 0)),
        ("cuda:12", ("cuda", 12)),
    ],
)
def test_devices(device: str, expected: tuple[str, int]) -> None:
    assert parse_device(device) == expected


@pytest.mark.parametrize(
    "device", ["gpu", "CUDA", "cuda:", "cuda:-1", "cuda:x", "cpu:0", "auto:1", "", None, 0, "cuda:1\n"]
)
def test_unknown_devices_list_the_choices(folder: Path, device: Any) -> None:
    with pytest.raises(DeviceError, match="is not one of cpu, cuda, cuda:N .*, auto"):
        open_session(folder / "model.onnx", device=device)


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2", 1025])
def test_bad_thread_counts(folder: Path, threads: Any) -> None:
    with pytest.raises(InputError, match="threads="):
        open_session(folder / "model.onnx", threads=threads)


def test_cpu(folder: Path) -> None:
    opened = open_session(folder / "model.onnx", threads=1)
    assert (opened.device, opened.threads, opened.fallback) == ("cpu", 1, None)
    assert repr(opened) == "Session(device='cpu', threads=1)"
    outputs = opened.run(["sentence_embedding"], FEEDS)
    assert outputs[0].shape == (1, 32)
    np.testing.assert_array_equal(opened.run(None, FEEDS)[0], outputs[0])


@pytest.mark.parametrize("saturating", [True, False])
def test_options_reach_the_session(folder: Path, monkeypatch: pytest.MonkeyPatch, saturating: bool) -> None:
    fake = use(monkeypatch, FakeOnnxRuntime())
    monkeypatch.setattr(session, "int8_products_saturate", lambda: saturating)
    open_session(folder / "model.onnx", threads=3)
    options, providers = fake.opened[0]
    assert providers == ["CPUExecutionProvider"]
    assert (options.intra_op_num_threads, options.enable_mem_pattern, options.log_severity_level) == (3, False, 4)
    exact = {"session.x64quantprecision": "1"} if saturating else {}
    assert options.entries == {"session.intra_op.spin_duration_us": "200", **exact}


def test_cuda_as_asked(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    fake = use(monkeypatch, FakeOnnxRuntime())
    assert open_session(folder / "model.onnx", device="cuda:1").device == "cuda:1"
    (name, options), second = fake.opened[0][1]
    assert (name, second) == (CUDA, "CPUExecutionProvider")
    assert options["device_id"] == "1"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "Failed to load library libonnxruntime_providers_cuda.so with error: libcudnn.so.9: cannot open shared "
            "object file: No such file or directory",
            "libcudnn.so.9 cannot be loaded; install cuDNN 9",
        ),
        ("libcublasLt.so.12: cannot open shared object file", "libcublasLt.so.12 cannot be loaded; install CUDA 12"),
        ("libcudart.so.13: cannot open shared object file", "install CUDA 13"),
        ("libcuda.so.1: cannot open shared object file", "install the NVIDIA driver"),
        ('loading "cublasLt64_12.dll" which is missing', "cublasLt64_12.dll cannot be loaded; install CUDA 12"),
        ("CUDA failure 2: out of memory ; GPU=0", "has not enough memory"),
        ("CUDA failure 35: CUDA driver version is insufficient", "driver version is insufficient.*nvidia-smi"),
    ],
)
def test_cuda_that_fails_says_what_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    use(monkeypatch, FakeOnnxRuntime(error=RuntimeError(text)), ("onnxruntime-gpu 1.32.0",))
    with pytest.raises(DeviceError, match=message) as caught:
        open_session(folder / "model.onnx", device="cuda")
    assert "\n" not in str(caught.value)


def test_cuda_that_lands_on_the_cpu_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeOnnxRuntime(got=()), ("onnxruntime-gpu 1.32.0",))
    with pytest.raises(DeviceError, match="onnxruntime does not offer it"):
        open_session(folder / "model.onnx", device="cuda")
    use(monkeypatch, FakeOnnxRuntime(on_cpu="DynamicQuantizeMatMul"))
    with pytest.raises(DeviceError, match="DynamicQuantizeMatMul would run on the CPU; export with target='portable'"):
        open_session(folder / "model.onnx", device="cuda")


def test_two_packages_that_overwrite_each_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeOnnxRuntime(got=()), ("onnxruntime 1.32.0", "onnxruntime-gpu 1.32.0"))
    with pytest.raises(DeviceError, match="both installed and overwrite each other; pip uninstall"):
        open_session(folder / "model.onnx", device="cuda")


def test_cuda_with_the_build_for_cpus(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DeviceError, match=r"cuda:0 is not available: onnxruntime .* is the build for CPUs; pip uninst"):
        open_session(folder / "model.onnx", device="cuda")
    assert capfd.readouterr() == ("", "")


def test_auto_falls_back_and_says_so(engine: Embedder, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="edgebert"):
        fallen = Embedder(engine.bundle, device="auto")
    assert fallen.device == "cpu"
    assert fallen.fallback is not None
    assert "build for CPUs" in fallen.fallback
    assert [record.getMessage() for record in caplog.records] == [f"running on the CPU: {fallen.fallback}"]


def test_refused_models(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    content = (folder / "model.onnx").read_bytes()
    for damaged in (b"", b"\x80\x81nonsense", content[: len(content) // 2], content.replace(b"Add", b"\xff\xfe\xfd")):
        (tmp_path / "model.onnx").write_bytes(damaged)
        with pytest.raises(BundleError, match="refused by onnxruntime") as caught:
            open_session(tmp_path / "model.onnx")
        assert "\n" not in str(caught.value)
        assert "onnxruntime_src" not in str(caught.value)
    assert capfd.readouterr().out == ""


def test_failing_runs_are_edgebert_errors(folder: Path) -> None:
    opened = open_session(folder / "model.onnx")
    with pytest.raises(EdgebertError, match="onnxruntime failed while running the model"):
        opened.run(None, {**FEEDS, "input_ids": np.full((1, 3), 10_000)})
    assert opened.run(None, FEEDS)[0].shape == (1, 32)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("std::bad_alloc"), RuntimeError("Failed to allocate 8")])
def test_out_of_memory_says_what_to_lower(error: Exception) -> None:
    assert "lower max_batch_tokens" in str(device_errors.explain_run(error))
    assert isinstance(device_errors.explain_run(error), DeviceError)
    assert "not enough memory to load" in str(device_errors.explain_open(Path("m.onnx"), error))


def test_missing_kernel_advises_another_target() -> None:
    error = NotImplementedError("NOT_IMPLEMENTED : Could not find an implementation for MatMulNBits(1) node")
    assert "no kernel for MatMulNBits" in str(device_errors.explain_open(Path("m.onnx"), error))


def python(code: str, *args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_out_of_memory_leaves_the_session_usable(folder: Path) -> None:
    code = (
        "import resource, sys, pathlib, numpy as np\n"
        "from edgebert_runtime.session.session import open_session\n"
        "from edgebert_runtime.errors import DeviceError\n"
        "session = open_session(pathlib.Path(sys.argv[1]) / 'model.onnx')\n"
        "names = 'input_ids', 'attention_mask', 'token_type_ids'\n"
        "small, large = ({n: np.ones((rows, 40), np.int64) for n in names} for rows in (1, 8192))\n"
        "before = session.run(None, small)[0]\n"
        "size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (size + (16 << 20), -1))\n"  # one activation alone takes 40 MB
        "try: session.run(None, large)\n"
        "except DeviceError as error: assert 'lower max_batch_tokens' in str(error), error\n"
        "else: raise SystemExit('enough memory')\n"
        "assert (session.run(None, small)[0] == before).all()\n"
    )
    done = python(code, folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_nothing_is_sent_anywhere(folder: Path) -> None:
    code = (
        "import os, sys, numpy, edgebert_runtime as e\n"
        "before = len(os.listdir('/proc/self/task'))\n"  # numpy may have threads of its own
        "e.load(sys.argv[1], threads=2).embed(['the cat'])\n"
        "print(os.environ['ORT_DISABLE_TELEMETRY'], len(os.listdir('/proc/self/task')) - before)\n"
        "descriptors = [f'/proc/self/fd/{name}' for name in os.listdir('/proc/self/fd')]\n"
        "print([link for link in map(os.readlink, filter(os.path.exists, descriptors)) if 'socket' in link])\n"
    )
    assert python(code, folder).stdout == "1 0\n[]\n"
    chosen = "import os; os.environ['ORT_DISABLE_TELEMETRY'] = '0'\n" + code
    assert python(chosen, folder).stdout.startswith("0 ")


def test_without_onnxruntime_says_what_to_install(folder: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules['onnxruntime'] = None\n"
        "import edgebert_runtime as e\n"
        "try: e.load(sys.argv[1])\n"
        "except e.errors.DeviceError as error: print(error)\n"
    )
    assert python(code, folder).stdout.startswith("onnxruntime is not installed: pip install edgebert[cpu]")


def test_lives_with_other_users_of_onnxruntime(folder: Path) -> None:
    code = (
        "import sys, onnxruntime, edgebert_runtime as e\n"
        "if sys.argv[2] == 'pool': onnxruntime.set_global_thread_pool_sizes(2, 1)\n"
        "assert e.load(sys.argv[1]).embed(['the cat']).any()\n"
        "options = onnxruntime.SessionOptions()\n"
        "options.use_per_session_threads = sys.argv[2] == 'own'\n"
        "onnxruntime.InferenceSession(sys.argv[1] + '/model.onnx', options, providers=['CPUExecutionProvider'])\n"
    )
    for kind in ("pool", "own"):
        done = python(code, folder, kind)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_idle_sessions_burn_no_cpu(engine: Embedder) -> None:
    second = Embedder(engine.bundle, threads=2)
    for each in (engine, second):
        each.embed(["the cat"] * 20)
    start = time.process_time()
    time.sleep(2)
    assert time.process_time() - start < 0.1
