"""Limits of fidelity and speed for a quantized bundle, and advice where it is slow."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgebert_exporters.fidelity.comparison import headline_metric
from edgebert_exporters.fidelity.figures import told_apart
from edgebert_exporters.inference.sample_texts import MAX_UNKNOWN
from edgebert_runtime.errors import QuantizationError

# The remedy where a granularity is slow.
OTHER_GRANULARITY = {
    "block": "try the granularity channel, which serves batches and long prompts",
    "channel": "try the granularity block, which serves one text at a time",
}
LEAVE_OUT = "exclude some layers"


@dataclass(frozen=True)
class Gates:
    """The least fidelity to float32, and the most time of a call in that of float32; None is any.

    Raises:
        QuantizationError: for a limit out of range.
    """

    min_fidelity: float
    max_slowdown: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.min_fidelity <= 1:
            raise QuantizationError("is not between 0 and 1", option="min_fidelity", value=self.min_fidelity)
        if self.max_slowdown is not None and not 0 < self.max_slowdown < math.inf:
            raise QuantizationError("is not a number above 0", option="max_slowdown", value=self.max_slowdown)

    def check(self, report: Mapping[str, Any]) -> None:
        """Compare a report with the limits.

        Raises:
            QuantizationError: naming the figure, its value and the limit that it misses.
        """
        figure, value = headline_metric(report["fidelity"])
        if not value >= self.min_fidelity:
            text = told_apart(value, self.min_fidelity)
            message = f"the quantized model has a {figure} of {text} to float32, less than {self.min_fidelity}"
            share = report.get("unknown_tokens", 0)
            if share > MAX_UNKNOWN:
                raise QuantizationError(
                    f"{message}, but {share:.0%} of the tokens of the sample texts are unknown to the model",
                    hint="give {calibration} texts of the kind that it reads, or {min_fidelity} for no limit",
                    options={"calibration": ..., "min_fidelity": 0},
                )
            raise QuantizationError(
                message,
                hint="leave layers out with {exclude}, give {calibration} texts like yours, or lower {min_fidelity}",
                options={"exclude": ..., "calibration": ..., "min_fidelity": ...},
            )
        taken = slowdown(report)
        if self.max_slowdown is not None and not taken <= self.max_slowdown:
            text = told_apart(taken, self.max_slowdown, digits=2)
            raise QuantizationError(
                f"the quantized model takes {text} times the time of float32, more than {self.max_slowdown}",
                hint=f"{remedy(report)}, or raise {{max_slowdown}}",
                options={"max_slowdown": ...},
            )


def slowdown(report: Mapping[str, Any]) -> float:
    """Return the median time in that of float32."""
    return float(statistics.median(1 / row["speedup"] for row in report["speed"]))


def advice(report: Mapping[str, Any]) -> str:
    """Return where a quantized model is slow, and a remedy."""
    slower = [row for row in report["speed"] if row["speedup"] < 1]
    if not slower:
        return ""
    if report.get("scheme") == "fp16":
        return "float16 is for GPUs: a CPU turns every number into float32 first"
    where = f"at {', '.join(row['shape'] for row in slower)}"
    if (taken := slowdown(report)) > 1:
        where = f"on this machine, {taken:.2f} times its time in the median"
    return f"slower than float32 {where}; {remedy(report)}, or keep float32"


def remedy(report: Mapping[str, Any]) -> str:
    """Return a remedy for a slow model."""
    if report.get("scheme") == "int4":
        return "try the scheme int8, which is faster for many rows"
    return OTHER_GRANULARITY.get(report.get("granularity", ""), LEAVE_OUT)
