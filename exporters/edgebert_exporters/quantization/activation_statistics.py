"""The statistics of the activations of one graph that its weight formats need."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgebert_exporters.quantization.activation_ranges import Histogram, Range
from edgebert_exporters.quantization.calibration import AbsMaxObserver, CompositeObserver, Observer
from edgebert_exporters.quantization.gptq import HessianAccumulator
from edgebert_exporters.quantization.schemes import WeightFormat
from edgebert_exporters.quantization.static_qdq import static_factor
from edgebert_exporters.quantization.weight_discovery import Floats, Linear
from edgebert_exporters.quantization.weight_selection import Plan


@dataclass(frozen=True)
class ActivationStatistics:
    """Observers of the inputs of linear layers.

    ``peaks`` and ``hessians`` are by input name. ``histograms`` are by weight name, since layers with the same input
    may divide it by different factors; ``inputs`` are the input names of each weight.
    """

    peaks: dict[str, AbsMaxObserver] = field(default_factory=dict)
    hessians: dict[str, HessianAccumulator] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)
    inputs: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def for_formats(cls, plan: Plan, formats: Collection[WeightFormat]) -> ActivationStatistics:
        """Return new observers for formats of a plan, without histograms."""
        dims = {linear.input_name: len(linear.weight) for weight in plan.weights for linear in weight.linears}
        per_channel = any(format.bits == 8 and not format.block for format in formats)
        gptq = any(format.algorithm == "gptq" for format in formats)
        return cls(
            {name: AbsMaxObserver() for name in dims if per_channel},
            {name: HessianAccumulator(dim) for name, dim in dims.items() if gptq},
        )

    def observers(self) -> dict[str, Observer]:
        """Return all observers, by input name."""
        by_input: dict[str, list[Observer]] = {}
        groups: tuple[Mapping[str, Observer], ...] = (self.peaks, self.hessians)
        for group in groups:
            for name, observer in group.items():
                by_input.setdefault(name, []).append(observer)
        for weight, histogram in self.histograms.items():
            for name in self.inputs[weight]:
                by_input.setdefault(name, []).append(histogram)
        return {name: CompositeObserver(observers) for name, observers in by_input.items()}

    def channel_peaks(self) -> dict[str, Floats]:
        """Return the largest magnitudes (in,) of the channels of each input."""
        return {name: observer.channels for name, observer in self.peaks.items()}

    def hessian(self, linears: Sequence[Linear]) -> HessianAccumulator:
        """Return the sum of the hessians of layers that share a weight."""
        parts = [self.hessians[linear.input_name] for linear in linears]
        hessian = HessianAccumulator(len(parts[0].total))
        hessian.total = np.sum([part.total for part in parts], axis=0)
        hessian.count = sum(part.count for part in parts)
        return hessian

    def input_range(self, weight: str, method: str) -> Range:
        """Return the range of the inputs of a weight by a calibration method."""
        return self.histograms[weight].range_by(method)


def histogram_observers(plan: Plan, peaks: Mapping[str, Floats]) -> ActivationStatistics:
    """Return new histograms of the inputs of each weight of a plan.

    Inputs are divided by :func:`static_factor` first.
    """
    statistics = ActivationStatistics()
    for weight in plan.weights:
        if weight.linears:
            factor = None if weight.lookups else static_factor(weight.linears, peaks)
            statistics.histograms[weight.name] = Histogram(factor)
            statistics.inputs[weight.name] = list(dict.fromkeys(linear.input_name for linear in weight.linears))
    return statistics
