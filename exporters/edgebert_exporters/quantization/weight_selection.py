"""Decide what of a graph is quantized, and say why the rest is not."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from edgebert_exporters.quantization.embeddings import LEAST_BLOCK, table_block
from edgebert_exporters.quantization.lstm import Lstm, lstms
from edgebert_exporters.quantization.schemes import COLUMNS, FLOAT16, Form
from edgebert_exporters.quantization.weight_discovery import Weight, weights
from edgebert_runtime.errors import QuantizationError

# Smaller tables and heads gain nothing that anyone would notice, and heads have every error of theirs in the result.
MIN_TABLE_ROWS = 4096
MIN_HEAD_OUTPUTS = 64
# Why a weight is left out if the user says so.
EXCLUDED = "excluded by the user"
# Why mixed precision leaves a weight in float32.
OVER_MAX_LOSS = "in float32, so that the total loss stays within mixed_precision"
# How the names of tables of positions end.
POSITIONS = ("position_embedding.weight", "sinusoids")


@dataclass
class Plan:
    """What will be quantized, and why the rest will not; ``eligible`` counts products by a constant matrix."""

    linears: list[Weight] = field(default_factory=list)
    tables: list[Weight] = field(default_factory=list)
    lstms: list[Lstm] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    eligible: int = 0

    @property
    def weights(self) -> list[Weight]:
        """Return everything that will be quantized."""
        return [*self.linears, *self.tables]

    @property
    def quantized(self) -> int:
        """Return how many of the eligible products will be quantized."""
        return sum(len(weight.linears) for weight in self.weights) + 2 * len(self.lstms)

    def only(self, names: Collection[str]) -> Plan:
        """Return the plan for the weights with these names; the others were chosen to stay as they are."""
        linears, tables = ([w for w in some if w.name in names] for some in (self.linears, self.tables))
        left = {weight.name: OVER_MAX_LOSS for weight in self.weights if weight.name not in names}
        left |= {name: OVER_MAX_LOSS for lstm in self.lstms for name in lstm.names}
        return Plan(linears, tables, [], self.skipped | left, self.eligible)

    @classmethod
    def merged(cls, plans: Collection[Plan]) -> Plan:
        """Return what is done to several graphs; a table that they share is named once."""
        # Tables count by the products with them, which only one graph has: that one comes last, and stays.
        tables = sorted((weight for plan in plans for weight in plan.tables), key=lambda weight: bool(weight.linears))
        skipped = {name: reason for plan in plans for name, reason in plan.skipped.items()}
        linears = [weight for plan in plans for weight in plan.linears]
        distinct = {weight.name: weight for weight in tables}
        lstms = [lstm for plan in plans for lstm in plan.lstms]
        return cls(linears, list(distinct.values()), lstms, skipped, sum(plan.eligible for plan in plans))

    def coverage(self) -> dict[str, Any]:
        """Return the part of the report about what was quantized."""
        return {
            "quantized": self.quantized,
            "eligible": self.eligible,
            "tables": [weight.name for weight in self.tables],
            "skipped": self.skipped,
        }


def make_plans(models: Mapping[str, ir.Model], exclude: Sequence[str], writes: bool, form: Form) -> dict[str, Plan]:
    """Decide what to quantize in the graphs of a bundle to ``form``; all of it to float16, LSTMs not to every one.

    A model that ``writes`` text multiplies by its table for every token, so one of any size is worth it; where a table
    of positions is only looked up in, it stays as it is. A table that is quantized in one graph is in all of them.

    Raises:
        QuantizationError: if nothing is left, or a pattern of ``exclude`` matches no weight.
    """
    found = {name: weights(model) for name, model in models.items()}
    found_lstms = {name: lstms(model) for name, model in models.items()}
    names = sorted({name for weights_of in found.values() for name in weights_of})
    names += sorted(name for many in found_lstms.values() for lstm in many for name in lstm.names)
    for pattern in exclude:
        if not fnmatch.filter(names, pattern):
            raise QuantizationError(f"--exclude {pattern!r} matches none of the weights {', '.join(names)}")
    products = {name for weights_of in found.values() for name, weight in weights_of.items() if weight.linears}
    plans = {}
    for graph, weights_of in found.items():
        plan = plans[graph] = Plan(eligible=sum(len(weight.linears) for weight in weights_of.values()))
        plan.eligible += 2 * len(found_lstms[graph])
        for lstm in found_lstms[graph]:
            excluded = any(fnmatch.fnmatchcase(name, pattern) for pattern in exclude for name in lstm.names)
            if form in (COLUMNS, FLOAT16) and not excluded:
                plan.lstms.append(lstm)
            else:
                plan.skipped |= dict.fromkeys(
                    lstm.names, EXCLUDED if excluded else "an LSTM, for which int8 is the scheme"
                )
        for name, weight in weights_of.items():
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in exclude):
                plan.skipped[name] = EXCLUDED
            elif form != FLOAT16 and (reason := unsuitable(weight, writes, tied=name in products)):
                plan.skipped[name] = reason
            else:
                (plan.tables if weight.tables else plan.linears).append(weight)
    if not any(plan.quantized for plan in plans.values()):
        eligible = sum(plan.eligible for plan in plans.values())
        raise QuantizationError(f"nothing to quantize: {eligible} matrix products with weights, all left out")
    return plans


def unsuitable(weight: Weight, writes: bool, tied: bool) -> str:
    """Say why a weight stays in float32; nothing if it need not. One that is ``tied`` is multiplied by somewhere."""
    if weight.tables:
        rows, dim = weight.tables[0].weight.shape
        if writes and weight.name.endswith(POSITIONS):
            return "a table of positions"
        if rows < (MIN_HEAD_OUTPUTS if writes and tied else MIN_TABLE_ROWS):
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
