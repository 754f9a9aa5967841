"""Mixed precision: measure each weight alone, then choose formats whose total loss stays within a limit.

The loss of a model is 1 minus its fidelity to float32 on sample texts
(:func:`edgebert_exporters.fidelity.agreement.decisive`). The loss of a weight in one format is measured with all other
weights in float32. Losses are taken to add up:

1. Every weight starts in its smallest format.
2. While the sum is too large, one weight gets a larger format: the one whose loss falls most per byte added.
3. The whole model is measured. If it loses more than allowed, the sum is held to less, and 2 goes on from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgebert_exporters.fidelity.agreement import Agreement, decisive, vectors_of
from edgebert_exporters.inference.batch import Floats
from edgebert_exporters.inference.graph_runner import interface, result_outputs
from edgebert_exporters.inference.sample_texts import Sample, to_batches
from edgebert_exporters.progress import Progress
from edgebert_exporters.quantization.schemes import FLOAT32, Form
from edgebert_exporters.quantization.weight_discovery import Weight
from edgebert_exporters.quantization.weight_selection import Plan
from edgebert_runtime.bundle.reader import Bundle
from edgebert_runtime.errors import QuantizationError
from edgebert_runtime.session.session import Runnable

# Single weights are measured on so many samples at most.
SAMPLES = 32
# How often the whole model is measured before the loss allowed is given up as too small.
ATTEMPTS = 8


@dataclass(frozen=True)
class Choice:
    """A weight in one form: the bytes that it takes, and the share of the agreement that it costs by itself."""

    weight: str
    form: Form
    bytes: int
    loss: float


def stored_bytes(weight: Weight, form: Form) -> int:
    """Return the bytes that a weight takes in a form, scales and zero points included."""
    shape: tuple[int, int] = (weight.tables or weight.linears)[0].weight.shape
    rows, inputs = shape
    if form == FLOAT32:
        return 4 * rows * inputs
    if form.block is None:
        return rows * inputs + 4 * (rows if weight.tables else inputs)
    count = rows * inputs // form.block + 1
    return rows * inputs * form.bits // 8 + 4 * count + (count * form.bits // 8 if form.asymmetric else 0)


class Judge:
    """Measures the loss of models on samples; what float32 gives for them is computed once."""

    def __init__(self, source: Bundle, before: Runnable, samples: Sequence[Sample]) -> None:
        self.manifest, self.graph = source.manifest, interface(source.manifest)
        self.names = result_outputs(self.graph.outputs)
        self.batches = to_batches(samples, self.graph.input_names)
        self.expected = [self.rows(before, number) for number in range(len(self.batches))]

    def rows(self, model: Runnable, number: int) -> list[Floats]:
        """Return what a model gives for each sample of a batch."""
        indices, batch = self.batches[number]
        outputs = model.run(self.names, batch.feeds)
        return [vectors_of(self.graph.outputs, batch, outputs, row).copy() for row in range(len(indices))]

    def loss(self, model: Runnable) -> float:
        """Return 1 minus the agreement of a model with float32."""
        agreement = Agreement.of(self.manifest)
        for number, expected in enumerate(self.expected):
            for old, new in zip(expected, self.rows(model, number), strict=True):
                agreement.add(old, new)
        return max(0.0, 1 - decisive(agreement.figures())[1])


def measure_choices(
    plan: Plan, forms: Sequence[Form], loss: Callable[[Mapping[str, Form]], float], progress: Progress
) -> list[Choice]:
    """Measure every weight of a plan in each of the forms; a table has 8 bits only.

    ``loss`` tells what a model loses whose weights have the forms given and are in float32 otherwise.
    """
    wanted = [(weight, form) for weight in plan.linears for form in forms]
    wanted += [(weight, forms[0]) for weight in plan.tables]
    found = []
    for done, (weight, form) in enumerate(wanted):
        progress("measure single weights", done, len(wanted))
        found.append(Choice(weight.name, form, stored_bytes(weight, form), loss({weight.name: form})))
    progress("measure single weights", len(wanted), len(wanted))
    return found + [Choice(weight.name, FLOAT32, stored_bytes(weight, FLOAT32), 0.0) for weight in plan.weights]


def choose(choices: Sequence[Choice], allowed: float) -> dict[str, Choice]:
    """Return a choice for each weight whose losses add up to no more than ``allowed``, in few bytes."""
    options: dict[str, list[Choice]] = {}
    for choice in choices:
        options.setdefault(choice.weight, []).append(choice)
    chosen = {name: min(offered, key=lambda one: (one.bytes, one.loss)) for name, offered in options.items()}
    while sum(choice.loss for choice in chosen.values()) > allowed:
        steps = [
            ((chosen[name].loss - one.loss) / max(one.bytes - chosen[name].bytes, 1), name, one)
            for name, offered in options.items()
            for one in offered
            if one.loss < chosen[name].loss
        ]
        if not steps:  # all of them are in float32, and lose nothing
            break
        _, name, one = max(steps, key=lambda step: (step[0], step[1]))
        chosen[name] = one
    return chosen


def within_max_loss(
    choices: Sequence[Choice], max_loss: float, loss: Callable[[Mapping[str, Form]], float], progress: Progress
) -> dict[str, Choice]:
    """Return a choice for each weight with which the whole model, measured by ``loss``, loses at most ``max_loss``.

    Raises:
        QuantizationError: if it does with float32 only.
    """
    allowed = max_loss
    for attempt in range(ATTEMPTS):
        progress("measure the whole", attempt, ATTEMPTS)
        chosen = choose(choices, allowed)
        forms = {name: choice.form for name, choice in chosen.items() if choice.form != FLOAT32}
        if not forms:
            break
        found = loss(forms)
        if found <= max_loss:
            progress("measure the whole", ATTEMPTS, ATTEMPTS)
            return chosen
        allowed *= min(0.8, max_loss / found)
    least = min((choice.loss for choice in choices if choice.form != FLOAT32), default=0.0)
    raise QuantizationError(
        f"nothing can be quantized with a total loss of at most {max_loss:.3%}: the least of one weight is "
        f"{least:.3%}; allow more, or give --calibration texts like yours"
    )


def table(choices: Sequence[Choice]) -> list[dict[str, Any]]:
    """Return a row for each weight, with its bytes in float32 and its loss in each form, the most expensive first."""
    rows: dict[str, dict[str, Any]] = {}
    for choice in choices:
        row = rows.setdefault(choice.weight, {"weight": choice.weight})
        row |= {"bytes": choice.bytes} if choice.form == FLOAT32 else {f"int{choice.form.bits}": choice.loss}
    return sorted(rows.values(), key=lambda row: -max(row.get("int8", 0), row.get("int4", 0)))
