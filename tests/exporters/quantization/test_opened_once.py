"""Quantizing opens a bundle once, and hashes each file once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

import edgebert_exporters.bundles.bundle_files as bundle_files
import edgebert_exporters.inference.opened_bundle as opened_bundle
import edgebert_exporters.reports.report as report_module
import edgebert_runtime.bundle.reader as reader
from edgebert_exporters import quantize_bundle

TEXTS = ["the cat sat on a mat", "the moon", "sun"] * 4


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what opening a bundle costs: openings, hashed files, parsed and loaded graphs, and sessions."""
    counts: Counter[str] = Counter()

    def count(module: Any, name: str) -> None:
        function = getattr(module, name)

        def counted(*args: Any, **options: Any) -> Any:
            counts[name] += 1
            if name == "sha256":
                counts[f"{args[0].parent.name.startswith('.') or args[0].parent}/{args[0].name}"] += 1
            return function(*args, **options)

        monkeypatch.setattr(module, name, counted)

    count(reader, "opening")
    count(reader, "check_graph")
    count(reader, "sha256")
    count(bundle_files, "sha256")
    count(ir, "load")
    count(opened_bundle, "open_graphs")
    monkeypatch.setattr(report_module, "TURNS", 1)
    return counts


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("embed", {"eval": "examples.jsonl"}),
        ("embed", {"mixed_precision": 0.02}),
        ("generate", {}),
        ("translate", {"scheme": "int4"}),
    ],
)
def test_source_and_result_are_opened_once(
    task: str,
    options: dict[str, Any],
    calls: Counter[str],
    fp32_bundle: Path,
    task_bundle: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("examples.jsonl").write_text("".join(f'{{"text": "{text}", "label": "{text}"}}\n' for text in TEXTS))
    source = fp32_bundle if task == "embed" else task_bundle(task)
    calls.clear()
    quantized = quantize_bundle(source, tmp_path / "q", calibration=TEXTS, min_fidelity=0, **options)
    graphs, files = len(quantized.manifest.graphs), len(quantized.manifest.files)
    assert calls["opening"] == 2, "the source, and the result for its report"
    assert calls["open_graphs"] == 2
    assert calls["load"] == calls["check_graph"] == 2 * graphs
    assert calls["sha256"] == 2 * files, "each file of both"
    assert max(count for name, count in calls.items() if "/" in name) == 1
