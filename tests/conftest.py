"""Fixtures that several packages' tests share: tiny checkpoints and the bundles made from them."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from torch.onnx._internal.exporter._registration import ONNXRegistry

from edgebert_exporters import export_checkpoint, quantize_bundle
from edgebert_exporters.reports import report
from tests.support.sharing import Once, shared_folders
from tests.support.tiny import write_checkpoint

LABELS = {
    "classify": ("negative", "neutral", "positive"),
    "tag": ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"),
}
# The quantized forms of models that write text, by the options that make them.
FORMS: dict[str, dict[str, str]] = {
    "int8": {"granularity": "block"},
    "int4": {"scheme": "int4"},
    "channel": {"granularity": "channel"},
}


# A shell that starts the tests in the background lets them, and every process that they start, ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the files of the longest tests, so that no process is left alone with one at the end."""
    longest = {Path(item.fspath) for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: Path(item.fspath) not in longest)


@pytest.fixture(scope="session", autouse=True)
def collect_no_libraries() -> None:
    """Exempt the objects of the imported libraries from garbage collection, a tenth of the time of an export."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def measure_speed_once() -> Iterator[None]:
    """Time each workload of a quantization once instead of seven times: no test is about speed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "TURNS", 1)
        yield


@pytest.fixture(scope="session", autouse=True)
def build_operator_tables_once() -> Iterator[None]:
    """Keep the table of operators that torch.onnx builds anew in each export, which takes a fifth of its time."""
    build = cache(ONNXRegistry.from_torchlib)

    def copy(opset_version: int) -> ONNXRegistry:
        table, registry = build(opset_version), ONNXRegistry()
        registry._opset_version = table.opset_version
        registry.functions = {target: list(functions) for target, functions in table.functions.items()}
        return registry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(copy))
        yield


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Return a function that makes a folder once for all processes of a test run."""
    return shared_folders(tmp_path_factory)


@pytest.fixture(scope="session")
def checkpoint(once: Once) -> Path:
    """Return the folder of a tiny checkpoint, to be read only."""
    return once("checkpoint", write_checkpoint)


@pytest.fixture(scope="session")
def fp32_bundle(checkpoint: Path, once: Once) -> Path:
    """Return a float32 bundle for the target cpu, to be read only."""
    return once("fp32", lambda folder: export_checkpoint(checkpoint, folder))


@pytest.fixture(scope="session")
def portable_bundle(checkpoint: Path, once: Once) -> Path:
    """Return a bundle for the target portable, to be read only."""
    return once("portable", lambda folder: export_checkpoint(checkpoint, folder, target="portable"))


@pytest.fixture(scope="session")
def int8_bundle(fp32_bundle: Path, once: Once) -> Path:
    """Return the int8 form of the float32 bundle, to be read only."""
    return once("int8", lambda folder: quantize_bundle(fp32_bundle, folder))


@pytest.fixture(scope="session")
def task_checkpoint(checkpoint: Path, once: Once) -> Callable[[str], Path]:
    """Return a function from a task to the folder of a tiny checkpoint for it, to be read only."""

    @cache
    def make(task: str) -> Path:
        if task == "embed":
            return checkpoint
        model_type = {"generate": "gpt2", "translate": "marian"}.get(task, "bert")
        options: dict[str, Any] = {"task": task, "model_type": model_type, "labels": LABELS.get(task)}
        return once(f"checkpoint-{task}", lambda folder: write_checkpoint(folder, **options))

    return make


@pytest.fixture(scope="session")
def task_bundle(
    fp32_bundle: Path, portable_bundle: Path, task_checkpoint: Callable[[str], Path], once: Once
) -> Callable[..., Path]:
    """Return a function from a task and a target, cpu if none, to a float32 bundle, to be read only."""

    @cache
    def make(task: str, target: str = "cpu") -> Path:
        if task == "embed":
            return fp32_bundle if target == "cpu" else portable_bundle
        source = task_checkpoint(task)
        return once(f"{task}-{target}", lambda folder: export_checkpoint(source, folder, task=task, target=target))

    return make


@pytest.fixture(scope="session")
def decoder_bundle(task_bundle: Callable[..., Path], once: Once) -> Callable[[str], Path]:
    """Return a function from cpu, portable, int8, int4 or channel to a bundle that generates, to be read only.

    The first two are float32 bundles for these targets, the others quantized forms of the one for cpu.
    """

    @cache
    def make(form: str) -> Path:
        if form not in FORMS:
            return task_bundle("generate", form)
        exact, options = task_bundle("generate"), FORMS[form]
        return once(f"generate-{form}", lambda folder: quantize_bundle(exact, folder, **options))  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def translator_checkpoint(task_checkpoint: Callable[[str], Path], once: Once) -> Callable[..., Path]:
    """Return a function from a model type, marian if none, to the folder of a tiny checkpoint that translates."""

    @cache
    def make(model_type: str = "marian") -> Path:
        if model_type == "marian":
            return task_checkpoint("translate")
        options: dict[str, Any] = {"task": "translate", "model_type": model_type}
        return once(f"checkpoint-translate-{model_type}", lambda folder: write_checkpoint(folder, **options))

    return make


@pytest.fixture(scope="session")
def translator_bundle(
    task_bundle: Callable[..., Path], translator_checkpoint: Callable[..., Path], once: Once
) -> Callable[..., Path]:
    """Return a function from a form, as for ``decoder_bundle``, and a model type to a bundle that translates."""

    @cache
    def make(form: str, model_type: str = "marian") -> Path:
        name = f"translate-{form}-{model_type}"
        if form in FORMS:
            exact, options = make("cpu", model_type), FORMS[form]
            return once(name, lambda folder: quantize_bundle(exact, folder, **options))  # type: ignore[arg-type]
        if model_type == "marian":
            return task_bundle("translate", form)
        source = translator_checkpoint(model_type)
        return once(name, lambda folder: export_checkpoint(source, folder, target=form))

    return make
