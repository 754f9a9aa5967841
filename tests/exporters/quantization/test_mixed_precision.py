"""What weights cost one by one, and which of them mixed precision lets be small."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgebert_exporters import measure_sensitivity, quantize_bundle
from edgebert_exporters.progress import silent
from edgebert_exporters.quantization.mixed_precision import (
    FormatChoice,
    sensitivity_rows,
    smallest_choices,
    within_max_loss,
)
from edgebert_exporters.quantization.schemes import FLOAT32, INT8_PER_CHANNEL, WeightFormat
from edgebert_exporters.quantization.weight_discovery import Weight
from edgebert_runtime import Bundle, Embedder
from edgebert_runtime.errors import QuantizationError
from tests.support.tiny import CONFIG

FOUR = WeightFormat(4, 32)
LINEARS = 4 * CONFIG["num_hidden_layers"]


def offers(losses: Mapping[str, tuple[float, float]]) -> list[FormatChoice]:
    """Offer each weight in 8 bits, in 4 and in float32, with the first two losses."""
    return [
        FormatChoice(name, weight_format, size, loss)
        for name, losses_of_one in losses.items()
        for weight_format, size, loss in (
            (INT8_PER_CHANNEL, 100, losses_of_one[0]),
            (FOUR, 50, losses_of_one[1]),
            (FLOAT32, 400, 0.0),
        )
    ]


def test_bits_go_where_they_save_most() -> None:
    choices = offers({"a": (0.01, 0.5), "b": (0.01, 0.03), "c": (0.2, 0.3)})
    bits = {
        allowed: [choice.format.bits for choice in smallest_choices(choices, allowed).values()]
        for allowed in (1, 0.4, 0.1, 0.015)
    }
    assert bits == {1: [4, 4, 4], 0.4: [8, 4, 4], 0.1: [8, 4, 32], 0.015: [8, 32, 32]}
    assert [choice.format for choice in smallest_choices(choices, 0.0).values()] == [FLOAT32] * 3


LOSSES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=4)


@given(LOSSES, st.floats(0, 2))
def test_the_sum_stays_within_what_is_allowed(losses: list[tuple[float, float]], allowed: float) -> None:
    """And beside the best of all assignments, no more than the largest weight is given away."""
    choices = offers({f"w{number}": losses_of_one for number, losses_of_one in enumerate(losses)})
    chosen = smallest_choices(choices, allowed)
    assert sum(choice.loss for choice in chosen.values()) <= allowed + 1e-12
    by_weight = [[choice for choice in choices if choice.weight == name] for name in chosen]
    possible = [group for group in itertools.product(*by_weight) if sum(choice.loss for choice in group) <= allowed]
    best = min(sum(choice.bytes for choice in group) for group in possible)
    assert best <= sum(choice.bytes for choice in chosen.values()) <= best + 400 * len(losses) // 2 + 400
    assert smallest_choices(list(reversed(choices)), allowed).keys() == chosen.keys()


def test_what_is_measured_of_the_whole_decides() -> None:
    """Losses that together are twice their sum are held to half of it."""
    choices = offers({name: (0.01, 0.04) for name in "abcd"})
    single = {(choice.weight, choice.format): choice.loss for choice in choices}

    def loss(formats: Mapping[str, WeightFormat]) -> float:
        return 2 * sum(single[item] for item in formats.items())

    chosen = within_max_loss(choices, 0.1, loss, silent)
    assert loss({name: choice.format for name, choice in chosen.items() if choice.format != FLOAT32}) <= 0.1
    assert {choice.format for choice in chosen.values()} <= {INT8_PER_CHANNEL, FLOAT32}
    with pytest.raises(QuantizationError, match=r"a total loss of at most 1%: the least of one weight is 1%"):
        within_max_loss(choices, 0.01, loss, silent)


def test_the_table_begins_with_what_costs_most() -> None:
    rows = sensitivity_rows(offers({"a": (0.01, 0.02), "b": (0.01, 0.5)}))
    assert rows[0] == {"weight": "b", "bytes": 400, "int8": 0.01, "int4": 0.5}
    assert [row["weight"] for row in rows] == ["b", "a"]


def test_the_bundle_loses_at_most_max_loss(fp32_bundle: Path, tmp_path: Path) -> None:
    small = 2 * sum(row["int8"] for row in measure_sensitivity(fp32_bundle))  # for all in 8 bits, but not in 4
    bundles = [
        quantize_bundle(fp32_bundle, tmp_path / str(max_loss), mixed_precision=max_loss) for max_loss in (small, 0.02)
    ]
    for max_loss, bundle in zip((small, 0.02), bundles, strict=True):
        report = bundle.manifest.report
        assert bundle.manifest.weights.scheme == "mixed"
        assert 1 - report["fidelity"]["cosine_mean"] <= max_loss == report["mixed_precision"]
        assert report["min_fidelity"] == 1 - max_loss
        assert len(report["sensitivity"]) == len(report["formats"]) == LINEARS
        float32_names = {name for name, stored in report["formats"].items() if stored == "float32"}
        assert float32_names == {n for n, why in bundle.manifest.weights.skipped.items() if "mixed_precision" in why}
        assert Embedder.load(bundle.path).embed(["the cat sat"]).shape == (1, CONFIG["hidden_size"])
    assert (
        bundles[1].manifest.weights.bytes
        < bundles[0].manifest.weights.bytes
        < Bundle.open(fp32_bundle).manifest.weights.bytes
    )
    again = quantize_bundle(fp32_bundle, tmp_path / "again", mixed_precision=0.02)
    assert again.manifest.files["model.onnx"] == bundles[1].manifest.files["model.onnx"]


@pytest.mark.parametrize("task", ["generate", "translate"])
def test_generative_models_have_mixed_precision_too(
    task: str, task_bundle: Callable[[str], Path], tmp_path: Path
) -> None:
    quantized = quantize_bundle(task_bundle(task), tmp_path / "b", mixed_precision=0.02).manifest
    assert 1 - quantized.report["fidelity"]["cosine_mean"] <= 0.02
    assert "int4" in " ".join(quantized.report["formats"].values())
    assert quantized.weights.bytes < Bundle.open(task_bundle(task)).manifest.weights.bytes / 2


def test_sensitivity_alone_writes_nothing(fp32_bundle: Path, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(fp32_bundle, tmp_path / "fp32"))
    before = sorted(tmp_path.rglob("*"))
    rows = measure_sensitivity(bundle, exclude=["*.layers.0.*"])
    assert {row["weight"].split(".")[2] for row in rows} == {str(n) for n in range(1, CONFIG["num_hidden_layers"])}
    assert all(0 <= row["int8"] < row["int4"] < 0.1 for row in rows)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mixed_precision": 0.0}, "mixed_precision=0.0 is not between 0 and 1"),
        (
            {"mixed_precision": 0.1, "scheme": "int4"},
            "mixed_precision=0.1 is for scheme='int8', from which it goes down to 4 bits; leave one of them out",
        ),
        (
            {"mixed_precision": 1e-9},
            r"nothing can be quantized with a total loss of at most 1e-07%: the least of one weight is \d",
        ),
    ],
)
def test_losses_that_make_no_sense(options: dict[str, object], message: str, fp32_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(QuantizationError, match=message):
        quantize_bundle(fp32_bundle, tmp_path / "out", **options)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_the_bytes_of_a_weight_are_those_that_are_written(fp32_bundle: Path, tmp_path: Path) -> None:
    import onnx_ir as ir

    from edgebert_exporters.quantization.mixed_precision import stored_bytes
    from edgebert_exporters.quantization.weight_discovery import weights

    by_name: dict[str, Weight] = weights(ir.load(fp32_bundle / "model.onnx"))
    weight = by_name["bert.layers.0.ffn_up.weight"]
    for options, weight_format in (({}, INT8_PER_CHANNEL), ({"scheme": "int4", "algorithm": "rtn"}, FOUR)):
        quantized = quantize_bundle(fp32_bundle, tmp_path / str(weight_format), **options)  # type: ignore[arg-type]
        initializers = ir.load(quantized.path / "model.onnx").graph.initializers
        parts = ("int8", "uint4", "scale")
        names = [f"{weight.name}.{part}" for part in parts if f"{weight.name}.{part}" in initializers]
        stored = [initializers[name].const_value for name in names]
        written = sum(tensor.nbytes for tensor in stored if tensor is not None)
        assert written == pytest.approx(stored_bytes(weight, weight_format), rel=0.01)
    assert stored_bytes(weight, FLOAT32) == 4 * np.prod(weight.linears[0].weight.shape)
