"""Fixtures that several packages' tests share: tiny checkpoints and the bundles made from them."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from edgebert_exporters import export_checkpoint, quantize_bundle
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


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a tiny checkpoint, to be read only."""
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture(scope="session")
def fp32_bundle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a float32 bundle for the target cpu, to be read only."""
    return export_checkpoint(checkpoint, tmp_path_factory.mktemp("bundles") / "fp32").path


@pytest.fixture(scope="session")
def portable_bundle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle for the target portable, to be read only."""
    return export_checkpoint(checkpoint, tmp_path_factory.mktemp("bundles") / "portable", target="portable").path


@pytest.fixture(scope="session")
def int8_bundle(fp32_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the int8 form of the float32 bundle, to be read only."""
    return quantize_bundle(fp32_bundle, tmp_path_factory.mktemp("bundles") / "int8").path


@pytest.fixture(scope="session")
def task_checkpoint(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function from a task to the folder of a tiny checkpoint for it, to be read only."""

    @cache
    def make(task: str) -> Path:
        if task == "embed":
            return checkpoint
        model_type = {"generate": "gpt2", "translate": "marian"}.get(task, "bert")
        folder = tmp_path_factory.mktemp("tasks") / task
        return write_checkpoint(folder, task=task, model_type=model_type, labels=LABELS.get(task))

    return make


@pytest.fixture(scope="session")
def task_bundle(
    fp32_bundle: Path, task_checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Return a function from a task to a float32 bundle for the target cpu, to be read only."""

    @cache
    def make(task: str) -> Path:
        if task == "embed":
            return fp32_bundle
        return export_checkpoint(task_checkpoint(task), tmp_path_factory.mktemp("bundles") / task, task=task).path

    return make


@pytest.fixture(scope="session")
def decoder_bundle(
    task_bundle: Callable[[str], Path], task_checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Return a function from cpu, portable, int8, int4 or channel to a bundle that generates, to be read only.

    The first two are float32 bundles for these targets, the others quantized forms of the one for cpu.
    """

    @cache
    def make(form: str) -> Path:
        folder = tmp_path_factory.mktemp("decoders") / form
        if form == "cpu":
            return task_bundle("generate")
        if form == "portable":
            return export_checkpoint(task_checkpoint("generate"), folder, target="portable").path
        return quantize_bundle(task_bundle("generate"), folder, **FORMS[form]).path  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def translator_checkpoint(
    task_checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Return a function from a model type, marian if none, to the folder of a tiny checkpoint that translates."""

    def make(model_type: str = "marian") -> Path:
        return task_checkpoint("translate") if model_type == "marian" else other(model_type)

    @cache
    def other(model_type: str) -> Path:
        return write_checkpoint(tmp_path_factory.mktemp("tasks") / model_type, task="translate", model_type=model_type)

    return make


@pytest.fixture(scope="session")
def translator_bundle(
    task_bundle: Callable[[str], Path],
    translator_checkpoint: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., Path]:
    """Return a function from a form, as for ``decoder_bundle``, and a model type to a bundle that translates."""

    def make(form: str, model_type: str = "marian") -> Path:
        return made(form, model_type)

    @cache
    def made(form: str, model_type: str) -> Path:
        folder = tmp_path_factory.mktemp("translators") / form
        if form in FORMS:
            return quantize_bundle(made("cpu", model_type), folder, **FORMS[form]).path  # type: ignore[arg-type]
        if (form, model_type) == ("cpu", "marian"):
            return task_bundle("translate")
        return export_checkpoint(translator_checkpoint(model_type), folder, target=form).path

    return make
