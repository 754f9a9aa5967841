"""Bundles side by side, against sizes of the system and fidelity computed with NumPy from the engines' results."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebert_exporters import compare, compare_bundles
from edgebert_exporters.compare import difference, unique_names
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.inference.sample_texts import sample_texts
from edgebert_runtime import Bundle, Embedder
from edgebert_runtime.errors import EdgebertError, InputError
from edgebert_runtime.fresh_process import memory_bytes, start_seconds

TEXTS = [
    f"the cat sat on {rest}"
    for rest in "a mat, the farm, a ship, the moon, and ran, a dog, rain, mail, school".split(", ")
]


@pytest.fixture(scope="module")
def steps() -> list[str]:
    return []


@pytest.fixture(scope="module")
def result(
    fp32_bundle: Path, int8_bundle: Path, task_bundle: Callable[[str], Path], steps: list[str]
) -> dict[str, Any]:
    """Return a comparison of a float32 bundle with its int8 form and with a bundle of another task."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "STARTS", 1)
        bundles = [fp32_bundle, int8_bundle, task_bundle("classify")]
        return compare_bundles(bundles, seconds=0.01, threads=1, progress=lambda step, *_: steps.append(step))


def test_sizes_are_those_of_the_folders(result: dict[str, Any], fp32_bundle: Path, int8_bundle: Path) -> None:
    sizes = [sum(file.stat().st_size for file in folder.iterdir()) for folder in (fp32_bundle, int8_bundle)]
    assert [row["bytes_on_disk"] for row in result["bundles"][:2]] == sizes
    assert [row["weights"]["scheme"] for row in result["bundles"]] == ["fp32", "int8", "fp32"]


def test_fidelity_is_that_of_the_vectors(result: dict[str, Any], fp32_bundle: Path, int8_bundle: Path) -> None:
    texts = sample_texts()[1::2]
    old, new = (Embedder.load(folder).embed(texts).astype(np.float64) for folder in (fp32_bundle, int8_bundle))
    cosines = (old * new).sum(1) / np.linalg.norm(old, axis=1) / np.linalg.norm(new, axis=1)
    fidelity = result["bundles"][1]["fidelity"]
    assert fidelity["texts"] == len(texts) == result["conditions"]["texts"]["count"]
    assert fidelity["cosine_mean"] == pytest.approx(cosines.mean(), abs=1e-6)
    assert fidelity["cosine_min"] == pytest.approx(cosines.min(), abs=1e-6)
    assert fidelity["cosine_mean"] == Bundle.open(int8_bundle).manifest.report["fidelity"]["cosine_mean"]


def test_figures_without_a_meaning_are_left_out(result: dict[str, Any]) -> None:
    base, _, stranger = result["bundles"]
    assert result["baseline"] == base["name"]
    assert not {"speed", "fidelity"} & stranger.keys()
    assert "fidelity" not in base
    reasons = {entry["figures"]: entry["reason"] for entry in result["left_out"]}
    assert {entry["bundle"] for entry in result["left_out"]} == {stranger["name"]}
    assert reasons == {
        "speed": "its task is classify, not embed, whose workloads are others",
        "fidelity": "its task is classify, not embed",
    }


def test_speed_is_measured_in_turns_at_the_same_workloads(result: dict[str, Any]) -> None:
    base, quantized = (row["speed"] for row in result["bundles"][:2])
    names = ["1 text of 16 tokens", "1 text of 40 tokens", "256 texts of 24 tokens on average"]
    assert [entry["workload"] for entry in base] == [entry["workload"] for entry in quantized] == names
    for entry in (*base, *quantized):
        times = entry["milliseconds"]
        assert 0 < times["least"] <= times["median"] <= times["most"]
        assert entry["turns"] >= 3
    assert {entry["speedup"] for entry in base} == {1.0}


def test_start_and_memory_are_those_of_processes_of_their_own(result: dict[str, Any], steps: list[str]) -> None:
    for row in result["bundles"]:
        assert row["start_seconds"]["least"] == row["start_seconds"]["most"] > 0
        memory = row["memory_bytes"]
        assert 0 < memory["mapped"] < memory["peak"]
        assert 20e6 < memory["libraries"] <= memory["peak"]
    assert list(dict.fromkeys(steps)) == ["measure start and memory", "measure speed", "measure fidelity"]
    assert result["conditions"]["threads"] == 1


def test_a_process_that_fails_says_why(tmp_path: Path) -> None:
    for measure in (start_seconds, memory_bytes):
        with pytest.raises(EdgebertError, match=r"none cannot be measured in a process of its own: .*does not exist"):
            measure(tmp_path / "none")


def changed(bundle: Path, **fields: Any) -> OpenedBundle:
    """Return a bundle with another manifest."""
    opened = Bundle.open(bundle, verify="size")
    return OpenedBundle(dataclasses.replace(opened, manifest=dataclasses.replace(opened.manifest, **fields)))


def test_only_bundles_of_one_model_are_compared(
    fp32_bundle: Path, int8_bundle: Path, portable_bundle: Path, tmp_path: Path
) -> None:
    base = OpenedBundle.open(fp32_bundle)
    assert difference(base, OpenedBundle.open(int8_bundle), TEXTS) == ""
    assert difference(base, OpenedBundle.open(portable_bundle), TEXTS) == ""
    config, settings = base.manifest.config, base.manifest.settings
    deeper = changed(int8_bundle, config=config | {"num_hidden_layers": 3})
    assert difference(base, deeper, TEXTS) == "it is another model: num_hidden_layers is 3, not 2"
    first = changed(int8_bundle, settings=settings | {"pooling": "cls"})
    assert difference(base, first, TEXTS) == "its pooling is 'cls', not 'mean'"
    (tmp_path / "tokenizer.json").write_bytes(
        (fp32_bundle / "tokenizer.json").read_bytes().replace(b'"cat"', b'"caaat"')
    )
    moved = dataclasses.replace(base, bundle=dataclasses.replace(base.bundle, path=tmp_path))
    assert difference(base, moved, TEXTS) == "its tokenizer gives other ids"


@pytest.mark.parametrize("task", ["generate", "embed"])
def test_targets_of_one_model_agree(task: str, task_bundle: Callable[..., Path]) -> None:
    sides = [OpenedBundle.open(task_bundle(task, target)) for target in ("cpu", "portable")]
    rows: list[dict[str, Any]] = [{"name": "a"}, {"name": "b"}]
    left_out: list[dict[str, str]] = []
    compare.measure_fidelity(sides, rows, TEXTS, left_out, lambda *_: None)
    assert left_out == []
    assert rows[1]["fidelity"]["cosine_min"] > 0.99999


def test_no_fidelity_on_texts_that_the_model_cannot_read(fp32_bundle: Path) -> None:
    sides = [OpenedBundle.open(fp32_bundle)] * 2
    rows: list[dict[str, Any]] = [{"name": "a"}, {"name": "b"}]
    left_out: list[dict[str, str]] = []
    compare.measure_fidelity(sides, rows, ["ΑΒΓ ΔΕΖ"] * 9, left_out, lambda *_: None)
    reason = "100% of the tokens of the texts are unknown to the model"
    assert left_out == [{"bundle": "b", "figures": "fidelity", "reason": reason}]
    assert rows[1] == {"name": "b"}


def test_names_tell_bundles_apart(fp32_bundle: Path, int8_bundle: Path) -> None:
    first, second = OpenedBundle.open(fp32_bundle), OpenedBundle.open(int8_bundle)
    names = [fp32_bundle.name, int8_bundle.name]
    assert unique_names([fp32_bundle, int8_bundle], [first, second]) == names
    assert unique_names([fp32_bundle] * 2, [first, first]) == [f"{fp32_bundle} (1)", f"{fp32_bundle} (2)"]


def test_one_bundle_is_nothing_to_compare(fp32_bundle: Path) -> None:
    with pytest.raises(InputError, match="bundles has fewer than two folders; give two bundles or more"):
        compare_bundles([fp32_bundle])


def test_comparing_needs_no_pytorch(fp32_bundle: Path, int8_bundle: Path) -> None:
    program = (
        "import sys; sys.modules.update(torch=None, onnx=None, onnx_ir=None, safetensors=None)\n"
        "from edgebert_exporters import compare, compare_bundles\n"
        "from edgebert_exporters.reports.comparison import comparison_page\n"
        "compare.STARTS = 1\n"
        "print(len(comparison_page(compare_bundles(sys.argv[1:], seconds=0.01))))"
    )
    command = [sys.executable, "-c", program, str(fp32_bundle), str(int8_bundle)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5000
