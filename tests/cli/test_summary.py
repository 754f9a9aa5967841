"""What is said about bundles of every task, after quantization and after verification."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edgebert.cli import summary

COMMON = {"texts": 76, "cosine_mean": 0.99987, "cosine_min": 0.9971, "alone_in_batch_cosine_min": 0.99991}
SPEED = [{"shape": "1 x 16", "before_ms": 2.0, "after_ms": 1.0, "speedup": 2.0}]


def bundle(**fields: Any) -> Any:
    return SimpleNamespace(manifest=SimpleNamespace(**fields))


@pytest.mark.parametrize(
    ("figures", "lines"),
    [
        ({"nearest_flips": 0.125}, ["neighbours  12.5% of 76 texts have another nearest text"]),
        (
            {"top1_agreement": 0.982, "kl_mean": 0.0000708},
            [
                "top result  the same in 98.2% of what 76 texts give",
                "divergence  Kullback-Leibler 7.08e-05 on average",
            ],
        ),
        ({"correlation": 0.993}, ["correlation  0.9930 between scores before and after"]),
        ({}, []),
    ],
)
def test_report_of_every_task(capsys: pytest.CaptureFixture[str], figures: dict[str, float], lines: list[str]) -> None:
    report = {"bytes": {"before": 4000, "after": 1000}, "fidelity": {**COMMON, **figures}, "speed": SPEED}
    summary.echo_report(bundle(report=report, weights=SimpleNamespace(kept={"a.weight": "excluded"})))
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert all(line in printed for line in lines)
    assert len(printed) == 6 + len(lines) + 3
    assert any("cosine to float32 0.9999 on average, 0.9971 at least" in line for line in printed)


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        ({}, []),
        ({"mask_token": "[MASK]"}, [("mask token", "[MASK]")]),
        ({"labels": ["no", "yes"], "problem": "multi_label"}, [("labels", "no, yes"), ("problem", "multi_label")]),
        ({"labels": [str(i) for i in range(7)]}, [("labels", "7 values")]),
    ],
)
def test_settings(settings: dict[str, Any], rows: list[tuple[str, str]]) -> None:
    assert summary.settings(bundle(settings=settings)) == rows


def test_verification_speaks_of_outputs_of_any_kind() -> None:
    figures: dict[str, Any] = {"files": 2, "golden_cosine": 1.0, "rows_alone": {"rows": 48, "max_error": 1e-7}}
    text = " ".join(text for _, text in summary.verified(figures))
    assert "cosine 1.0000 to the output that was stored" in text
    assert "vector" not in text
    figures["reference"] = {"batches": 23, "cosine": 0.9999}
    assert summary.verified(figures)[-1] == ("reference", "23 batches, mean cosine 0.9999 to PyTorch")
