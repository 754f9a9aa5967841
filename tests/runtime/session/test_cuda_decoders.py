"""Decoders on CUDA: those that would compute with stale inputs are refused before a session is opened."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

import edgebert_runtime
from edgebert_runtime import Bundle, Generator
from edgebert_runtime.errors import DeviceError
from edgebert_runtime.session import session
from edgebert_runtime.session.session import CUDA, Session

REFUSAL = (
    "is a decoder that writes its KV cache in place, which gives wrong text on cuda; use device='cpu'; on cuda run "
    "encoders, or a decoder exported with target='portable', which is slow there"
)
CALLS: dict[str, Callable[[Any], Any]] = {
    "generate": lambda engine: engine.generate([[5, 6]], max_new_tokens=3)[0].tokens,
    "translate": lambda engine: engine.translate([[5, 6]], max_new_tokens=3)[0].tokens,
}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Let onnxruntime offer CUDA; return the files that were opened there."""
    files: list[Path] = []

    def open_on_cuda(file: Path, index: int, threads: int | None) -> Session:
        files.append(file)
        return Session(None, f"cuda:{index}", 1)

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CUDA, "CPUExecutionProvider"])
    monkeypatch.setattr(session, "open_on_cuda", open_on_cuda)
    return files


@pytest.mark.parametrize("form", ["cpu", "int8", "int4", "channel"])
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_decoder_is_refused_in_every_scheme(
    decoder_bundle: Callable[[str], Path], form: str, device: str, opened: list[Path]
) -> None:
    decoder = decoder_bundle(form)
    with pytest.raises(DeviceError) as caught:
        edgebert_runtime.load(decoder, device=device)
    assert str(caught.value) == f"{decoder} {REFUSAL}"
    assert not opened


@pytest.mark.parametrize("task", CALLS)
def test_auto_takes_the_cpu_and_says_why(
    task: str, task_bundle: Callable[[str], Path], opened: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    folder = task_bundle(task)
    with pytest.raises(DeviceError, match="writes its KV cache in place"):
        edgebert_runtime.load(folder, device="cuda")
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="edgebert"):
        engine = edgebert_runtime.load(folder, device="auto")
    assert not opened
    assert engine.device == "cpu"
    assert engine.fallback == f"{folder} {REFUSAL}"
    assert [record.getMessage() for record in caplog.records] == [f"running on the CPU: {engine.fallback}"]
    assert CALLS[task](engine) == CALLS[task](edgebert_runtime.load(folder))


def test_a_session_of_ones_own_on_cuda_is_refused_too(task_bundle: Callable[[str], Path]) -> None:
    bundle = Bundle.open(task_bundle("generate"))
    with pytest.raises(DeviceError, match="writes its KV cache in place"):
        Generator(bundle, session=Session(None, "cuda:0", 1))


def test_encoders_and_portable_decoders_go_to_the_gpu(
    task_bundle: Callable[[str], Path], decoder_bundle: Callable[[str], Path], opened: list[Path]
) -> None:
    for folder in (task_bundle("embed"), task_bundle("classify"), decoder_bundle("portable")):
        assert edgebert_runtime.load(folder, device="cuda").device == "cuda:0"
        assert opened.pop() == folder / "model.onnx"
