"""Mixed precision: the smallest formats whose total loss stays within a limit.

The loss of a model is 1 minus its fidelity to float32 on sample texts
(:func:`edgebert_exporters.fidelity.comparison.headline_metric`). The loss of a weight in one format is measured with
all other weights in float32. Losses are taken to add up:

1. Every weight starts in its smallest format.
2. While the sum is too large, one weight gets a larger format: the one whose loss falls most per byte added.
3. The whole model is measured. If it loses more than allowed, the sum is held to less, and 2 goes on from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edgebert_exporters.fidelity.comparison import Fidelity, headline_metric, vectors_of
from edgebert_exporters.inference.batch import Floats
from edgebert_exporters.inference.graph_runner import result_outputs
from edgebert_exporters.inference.sample_texts import Sample, to_batches
from edgebert_exporters.progress import Progress, silent
from edgebert_exporters.quantization.blockwise import DEFAULT_BLOCK
from edgebert_exporters.quantization.calibration import open_models
from edgebert_exporters.quantization.quantizer import Formats, Quantizer
from edgebert_exporters.quantization.schemes import DEFAULT_ALGORITHM, FLOAT32, Scheme, WeightFormat
from edgebert_exporters.quantization.weight_discovery import Weight
from edgebert_exporters.quantization.weight_selection import Plan
from edgebert_runtime.errors import QuantizationError
from edgebert_runtime.session.session import Runnable

# The most samples on which single weights are measured.
SAMPLES = 32
# Measurements of the whole model before the loss allowed is given up as too small.
ATTEMPTS = 8


@dataclass(frozen=True)
class FormatChoice:
    """A weight in one format.

    ``loss`` is the fidelity loss of a model with this weight alone quantized.
    """

    weight: str
    format: WeightFormat
    bytes: int
    loss: float


class LossEvaluator:
    """Measures the fidelity loss of formats on samples; float32 outputs are computed once."""

    def __init__(self, quantizer: Quantizer, samples: Sequence[Sample]) -> None:
        self.quantizer, source = quantizer, quantizer.source
        self.outputs = source.signature.outputs
        self.names = result_outputs(self.outputs)
        self.batches = to_batches(samples, source.signature.input_names)
        self.expected = [self.vectors(source.session, number) for number in range(len(self.batches))]

    def vectors(self, session: Runnable, number: int) -> list[Floats]:
        """Return the result vectors of each sample of a batch."""
        indices, batch = self.batches[number]
        outputs = session.run(self.names, batch.feeds)
        return [vectors_of(self.outputs, batch, outputs, row).copy() for row in range(len(indices))]

    def loss(self, formats: Formats) -> float:
        """Return 1 minus the fidelity of a model with ``formats``.

        All other weights are float32.
        """
        models, _ = self.quantizer.quantize(formats, silent)
        session = open_models(models, self.quantizer.source)
        fidelity = Fidelity.of(self.quantizer.source.manifest)
        for number, expected in enumerate(self.expected):
            for before, after in zip(expected, self.vectors(session, number), strict=True):
                fidelity.add(before, after)
        return max(0.0, 1 - headline_metric(fidelity.figures())[1])


def check_max_loss(max_loss: float, scheme: str) -> None:
    """Refuse a loss that is no share, and schemes without mixed precision."""
    if not 0 < max_loss < 1:
        raise QuantizationError("is not between 0 and 1", option="mixed_precision", value=max_loss)
    if scheme != "int8":
        raise QuantizationError(
            "is for {scheme}, from which it goes down to 4 bits",
            option="mixed_precision",
            value=max_loss,
            hint="leave one of them out",
            options={"scheme": "int8"},
        )


def choose_formats(
    quantizer: Quantizer,
    calibration: Sequence[Sample],
    test: Sequence[Sample],
    max_loss: float,
    progress: Progress,
) -> tuple[Formats, dict[str, Any]]:
    """Return formats with which a model loses at most ``max_loss``.

    That loss is measured on the ``test`` samples. Single weights are measured on the ``calibration`` samples. Weights
    that stay in float32 have no format.

    Returns:
        The formats by weight name, and the entries of the report.

    Raises:
        QuantizationError: if only float32 loses so little.
    """
    choices = measure_each_weight(quantizer, calibration, progress)
    chosen = within_max_loss(choices, max_loss, LossEvaluator(quantizer, test).loss, progress)
    formats = {name: choice.format for name, choice in chosen.items() if choice.format != FLOAT32}
    return formats, {
        "mixed_precision": max_loss,
        "formats": {name: str(choice.format) for name, choice in chosen.items()},
        "sensitivity": sensitivity_rows(choices),
    }


def measure_each_weight(quantizer: Quantizer, calibration: Sequence[Sample], progress: Progress) -> list[FormatChoice]:
    """Return the loss of each weight alone in each candidate format."""
    formats = candidate_formats(quantizer.scheme)
    quantizer.collect_statistics(calibration, formats, progress)
    loss = LossEvaluator(quantizer, calibration[:SAMPLES]).loss
    return measure_choices(Plan.merged(list(quantizer.plans.values())), formats, loss, progress)


def candidate_formats(scheme: Scheme) -> tuple[WeightFormat, WeightFormat]:
    """Return the formats beside float32: that of the scheme, and 4 bits."""
    return scheme.format, WeightFormat(4, DEFAULT_BLOCK[4], algorithm=DEFAULT_ALGORITHM[4])


def measure_choices(
    plan: Plan, formats: Sequence[WeightFormat], loss: Callable[[Formats], float], progress: Progress
) -> list[FormatChoice]:
    """Measure every weight of a plan in each format; embeddings have 8 bits only.

    ``loss`` is that of a model with some formats, all other weights being float32.
    """
    pairs = [(weight, weight_format) for weight in plan.linears for weight_format in formats]
    pairs += [(weight, formats[0]) for weight in plan.embeddings]
    choices = []
    for done, (weight, weight_format) in enumerate(pairs):
        progress("measure single weights", done, len(pairs))
        alone = loss({weight.name: weight_format})
        choices.append(FormatChoice(weight.name, weight_format, stored_bytes(weight, weight_format), alone))
    progress("measure single weights", len(pairs), len(pairs))
    return choices + [FormatChoice(w.name, FLOAT32, stored_bytes(w, FLOAT32), 0.0) for w in plan.weights]


def stored_bytes(weight: Weight, weight_format: WeightFormat) -> int:
    """Return the bytes of a weight in a format, scales and zero points included."""
    shape: tuple[int, int] = (weight.lookups or weight.linears)[0].weight.shape
    numbers, channels = shape[0] * shape[1], shape[0] if weight.lookups else shape[1]
    if weight_format == FLOAT32:
        return 4 * numbers
    if weight_format.block is None:
        return numbers + 4 * channels
    blocks = numbers // weight_format.block + 1
    zeros = blocks * weight_format.bits // 8 if weight_format.asymmetric else 0
    return numbers * weight_format.bits // 8 + 4 * blocks + zeros


def smallest_choices(choices: Sequence[FormatChoice], max_loss: float) -> dict[str, FormatChoice]:
    """Return small formats whose losses add up to at most ``max_loss``."""
    options: dict[str, list[FormatChoice]] = {}
    for choice in choices:
        options.setdefault(choice.weight, []).append(choice)
    chosen = {name: min(group, key=lambda choice: (choice.bytes, choice.loss)) for name, group in options.items()}
    while sum(choice.loss for choice in chosen.values()) > max_loss:
        steps = [
            ((chosen[name].loss - choice.loss) / max(choice.bytes - chosen[name].bytes, 1), name, choice)
            for name, group in options.items()
            for choice in group
            if choice.loss < chosen[name].loss
        ]
        if not steps:  # all of them are in float32, and lose nothing
            break
        _, name, choice = max(steps, key=lambda step: (step[0], step[1]))
        chosen[name] = choice
    return chosen


def within_max_loss(
    choices: Sequence[FormatChoice], max_loss: float, loss: Callable[[Formats], float], progress: Progress
) -> dict[str, FormatChoice]:
    """Return small formats with which the whole model loses at most ``max_loss``.

    ``loss`` measures the whole model.

    Raises:
        QuantizationError: if only float32 does.
    """
    allowed = max_loss
    for attempt in range(ATTEMPTS):
        progress("measure the whole", attempt, ATTEMPTS)
        chosen = smallest_choices(choices, allowed)
        formats = {name: choice.format for name, choice in chosen.items() if choice.format != FLOAT32}
        if not formats:
            break
        measured = loss(formats)
        if measured <= max_loss:
            progress("measure the whole", ATTEMPTS, ATTEMPTS)
            return chosen
        allowed *= min(0.8, max_loss / measured)
    least = min((choice.loss for choice in choices if choice.format != FLOAT32), default=0.0)
    raise QuantizationError(
        f"nothing can be quantized with a total loss of at most {100 * max_loss:.3g}%: the least of one weight is "
        f"{100 * least:.3g}%",
        hint="raise {mixed_precision}, or give {calibration} texts like yours",
        options={"mixed_precision": ..., "calibration": ...},
    )


def sensitivity_rows(choices: Sequence[FormatChoice]) -> list[dict[str, Any]]:
    """Return the losses of each weight, the largest first, with its bytes in float32."""
    rows: dict[str, dict[str, Any]] = {}
    for choice in choices:
        row = rows.setdefault(choice.weight, {"weight": choice.weight})
        row |= {"bytes": choice.bytes} if choice.format == FLOAT32 else {f"int{choice.format.bits}": choice.loss}
    return sorted(rows.values(), key=lambda row: -max(row.get("int8", 0), row.get("int4", 0)))
