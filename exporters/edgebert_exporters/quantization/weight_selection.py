"""Select the weights to quantize, with a reason for each that is skipped."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from edgebert_exporters.quantization.embeddings import MIN_EMBEDDING_BLOCK, embedding_block
from edgebert_exporters.quantization.lstm import Lstm, lstms
from edgebert_exporters.quantization.schemes import FLOAT16, INT8_PER_CHANNEL, WeightFormat
from edgebert_exporters.quantization.weight_discovery import Weight, weights
from edgebert_runtime.errors import QuantizationError

# Smaller embeddings and heads gain nothing that anyone would notice, and every error of a head is in the result.
MIN_EMBEDDING_ROWS = 4096
MIN_HEAD_OUTPUTS = 64
EXCLUDED = "excluded by the user"
# Why mixed precision skips a weight.
OVER_MAX_LOSS = "in float32, so that the total loss stays within mixed_precision"
# The ends of the names of position embeddings.
POSITIONS = ("position_embedding.weight", "sinusoids")


@dataclass
class Plan:
    """The weights of a graph to quantize, and the reasons for those ``skipped``.

    ``eligible`` counts all products by constant matrices.
    """

    linears: list[Weight] = field(default_factory=list)
    embeddings: list[Weight] = field(default_factory=list)
    lstms: list[Lstm] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    eligible: int = 0

    @property
    def weights(self) -> list[Weight]:
        """Return all matrices to quantize."""
        return [*self.linears, *self.embeddings]

    @property
    def quantized(self) -> int:
        """Return the number of products to quantize."""
        return sum(len(weight.linears) for weight in self.weights) + 2 * len(self.lstms)

    def only(self, names: Collection[str]) -> Plan:
        """Return the plan for the weights of these names; mixed precision skips the others."""
        linears, embeddings = ([w for w in group if w.name in names] for group in (self.linears, self.embeddings))
        skipped = {weight.name: OVER_MAX_LOSS for weight in self.weights if weight.name not in names}
        skipped |= {name: OVER_MAX_LOSS for lstm in self.lstms for name in lstm.names}
        return Plan(linears, embeddings, [], self.skipped | skipped, self.eligible)

    @classmethod
    def merged(cls, plans: Collection[Plan]) -> Plan:
        """Return the plan of several graphs; an embedding that they share appears once."""
        # An embedding counts by its products, which are in one graph only: that one comes last, and stays.
        embeddings = sorted((w for plan in plans for w in plan.embeddings), key=lambda weight: bool(weight.linears))
        return cls(
            linears=[weight for plan in plans for weight in plan.linears],
            embeddings=list({weight.name: weight for weight in embeddings}.values()),
            lstms=[lstm for plan in plans for lstm in plan.lstms],
            skipped={name: reason for plan in plans for name, reason in plan.skipped.items()},
            eligible=sum(plan.eligible for plan in plans),
        )

    def coverage(self) -> dict[str, Any]:
        """Return the part of the report about the weights."""
        return {
            "quantized": self.quantized,
            "eligible": self.eligible,
            "embeddings": [weight.name for weight in self.embeddings],
            "skipped": self.skipped,
        }


def make_plans(
    models: Mapping[str, ir.Model], exclude: Sequence[str], generative: bool, weight_format: WeightFormat
) -> dict[str, Plan]:
    """Select the weights of the graphs of a bundle, by graph name.

    A ``generative`` model multiplies by its token embedding for every token, so one of any size is quantized; position
    embeddings are not. An embedding that is quantized in one graph is quantized in all of them.

    Raises:
        QuantizationError: if no weight is left, or a pattern of ``exclude`` matches no weight.
    """
    by_graph = {graph: weights(model) for graph, model in models.items()}
    lstms_by_graph = {graph: lstms(model) for graph, model in models.items()}
    check_patterns(exclude, by_graph, lstms_by_graph)
    tied = {name for group in by_graph.values() for name, weight in group.items() if weight.linears}
    plans = {}
    for graph, group in by_graph.items():
        plan = plans[graph] = Plan()
        plan.eligible = sum(len(weight.linears) for weight in group.values()) + 2 * len(lstms_by_graph[graph])
        for lstm in lstms_by_graph[graph]:
            if any(matches(name, exclude) for name in lstm.names):
                plan.skipped |= dict.fromkeys(lstm.names, EXCLUDED)
            elif weight_format in (INT8_PER_CHANNEL, FLOAT16):
                plan.lstms.append(lstm)
            else:
                plan.skipped |= dict.fromkeys(lstm.names, "an LSTM, for which int8 is the scheme")
        for name, weight in group.items():
            if matches(name, exclude):
                plan.skipped[name] = EXCLUDED
            elif weight_format != FLOAT16 and (reason := reason_to_skip(weight, generative, name in tied)):
                plan.skipped[name] = reason
            else:
                (plan.embeddings if weight.lookups else plan.linears).append(weight)
    if not any(plan.quantized for plan in plans.values()):
        eligible = sum(plan.eligible for plan in plans.values())
        raise QuantizationError(f"nothing to quantize: {eligible} matrix products with weights, all left out")
    return plans


def check_patterns(
    exclude: Sequence[str], by_graph: Mapping[str, Mapping[str, Weight]], lstms_by_graph: Mapping[str, Sequence[Lstm]]
) -> None:
    """Refuse patterns that match no weight."""
    names = sorted({name for group in by_graph.values() for name in group})
    names += sorted(name for group in lstms_by_graph.values() for lstm in group for name in lstm.names)
    for pattern in exclude:
        if not fnmatch.filter(names, pattern):
            raise QuantizationError(f"matches none of the weights {', '.join(names)}", option="exclude", value=pattern)


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Tell whether a name matches a pattern."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def reason_to_skip(weight: Weight, generative: bool, tied: bool) -> str:
    """Return the reason to leave a weight in float32, empty if there is none.

    A ``tied`` weight is an embedding that a layer multiplies by.
    """
    if weight.lookups:
        rows, dim = weight.lookups[0].weight.shape
        if generative and weight.name.endswith(POSITIONS):
            return "a position embedding"
        if rows < (MIN_HEAD_OUTPUTS if generative and tied else MIN_EMBEDDING_ROWS):
            return f"an embedding of only {rows} rows"
        if embedding_block(dim) is None:
            return (
                f"an embedding with rows of {dim} numbers, which no block of {MIN_EMBEDDING_BLOCK} or a larger power "
                "of two divides"
            )
        return ""
    outputs = weight.linears[0].weight.shape[1]
    if weight.name.startswith("head.") and outputs < MIN_HEAD_OUTPUTS:
        return f"a layer of the head, only {outputs} wide"
    return ""
