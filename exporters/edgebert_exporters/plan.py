"""Decide what of a graph is quantized, and say why the rest is not."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from edgebert_exporters.int8 import LEAST_BLOCK, table_block
from edgebert_exporters.linears import Weight, weights
from edgebert_runtime.errors import QuantizationError

# Smaller tables and heads gain nothing that anyone would notice, and heads have every error of theirs in the result.
MIN_TABLE_ROWS = 4096
MIN_HEAD_OUTPUTS = 64
# How the name of the table of positions ends.
POSITIONS = "position.weight"


@dataclass
class Plan:
    """What will be quantized, and why the rest will not; ``eligible`` counts products by a constant matrix."""

    linears: list[Weight] = field(default_factory=list)
    tables: list[Weight] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    eligible: int = 0

    @property
    def quantized(self) -> int:
        """Return how many of the eligible products will be quantized."""
        return sum(len(weight.linears) for weight in (*self.linears, *self.tables))

    def coverage(self) -> dict[str, Any]:
        """Return the part of the report about what was quantized."""
        return {
            "quantized": self.quantized,
            "eligible": self.eligible,
            "tables": [weight.name for weight in self.tables],
            "kept": self.kept,
        }


def make_plan(model: ir.Model, exclude: Sequence[str], decoder: bool = False) -> Plan:
    """Decide what to quantize.

    A decoder multiplies by its table for every token, so one of any size is worth it; where a table of positions is
    only looked up in, it stays as it is.

    Raises:
        QuantizationError: if nothing is left, or a pattern of ``exclude`` matches no weight.
    """
    found = weights(model)
    plan = Plan(eligible=sum(len(weight.linears) for weight in found.values()))
    for pattern in exclude:
        if not fnmatch.filter(found, pattern):
            raise QuantizationError(f"--exclude {pattern!r} matches none of the weights {', '.join(sorted(found))}")
    for name, weight in found.items():
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in exclude):
            plan.kept[name] = "excluded by the user"
        elif reason := unsuitable(weight, decoder):
            plan.kept[name] = reason
        else:
            (plan.tables if weight.tables else plan.linears).append(weight)
    if not plan.quantized:
        raise QuantizationError(f"nothing to quantize: {plan.eligible} matrix products with weights, all left out")
    return plan


def unsuitable(weight: Weight, decoder: bool) -> str:
    """Say why a weight stays in float32; nothing if it need not."""
    if weight.tables:
        rows, dim = weight.tables[0].weight.shape
        if decoder and weight.name.endswith(POSITIONS):
            return "a table of positions"
        if rows < (MIN_HEAD_OUTPUTS if decoder and weight.linears else MIN_TABLE_ROWS):
            return f"a table of only {rows} rows"
        if table_block(dim) is None:
            return (
                f"a table with rows of {dim} numbers, which no block of {LEAST_BLOCK} or a larger power of two divides"
            )
        return ""
    outputs = weight.linears[0].weight.shape[1]
    if weight.name.startswith("head.") and outputs < MIN_HEAD_OUTPUTS:
        return f"a layer of the head, only {outputs} wide"
    return ""
