"""What the report of a quantization says of size and speed, and what it is held against."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.inference.sample_texts import sample_rows
from edgebert_exporters.progress import silent
from edgebert_exporters.reports.labelled_examples import read_examples
from edgebert_exporters.reports.report import bytes_by_kind, complete_report, sizes, weight_kind
from edgebert_exporters.reports.thresholds import Gates, advice, slowdown
from edgebert_runtime.errors import QuantizationError

FIDELITY = {"cosine_mean": 0.995}


def speeds(*speedups: float) -> list[dict[str, Any]]:
    return [{"shape": f"{place} x 16", "speedup": speedup} for place, speedup in enumerate(speedups, start=1)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bert.embeddings.token_embedding.weight.int8", "embeddings"),
        ("bert.embeddings.norm.bias", "embeddings"),
        ("gpt2.position_embedding.weight", "embeddings"),
        ("target_token_embedding.weight", "embeddings"),
        ("encoder.embeddings.sinusoids", "embeddings"),
        ("bert.layers.0.qkv.weight.scale", "layers"),
        ("decoder.layers.1.cross_attention_output.bias", "layers"),
        ("head.out.weight", "head"),
        ("gpt2.norm.weight", "other"),
        ("val_3", "other"),
        ("", "other"),
    ],
)
def test_weights_are_told_apart_by_their_names(name: str, kind: str) -> None:
    assert weight_kind(name) == kind


def tensor(name: str, *numbers: float) -> ir.Value:
    return ir.Value(name=name, const_value=ir.tensor(list(numbers), dtype=ir.DataType.FLOAT, name=name))


def test_weights_that_are_the_same_count_once() -> None:
    contents = [
        [tensor("token_embedding.weight", 1, 2, 3), tensor("layers.0.a.weight", 4, 5), tensor("x", 6)],
        [tensor("head.copy.weight", 1, 2, 3), tensor("head.weight", 7)],
    ]
    models = [ir.Model(ir.Graph([], [], nodes=[], initializers=values), ir_version=10) for values in contents]
    assert bytes_by_kind(models) == {"embeddings": 12, "layers": 8, "head": 4, "other": 4}


@pytest.mark.parametrize("task", ["classify", "generate", "translate", "fill-mask"])
def test_kinds_add_up_to_all_weights(task: str, task_bundle: Callable[[str], Path]) -> None:
    opened = OpenedBundle.open(task_bundle(task))
    figures = bytes_by_kind(opened.graphs.values())
    assert sum(figures.values()) == opened.manifest.weights.bytes
    assert figures["layers"] > figures["other"]
    assert (figures["head"] > 0) == (task in ("classify", "fill-mask"))


def test_a_report_has_every_part(
    task_bundle: Callable[[str], Path],
    decoder_bundle: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "the cat sat"}\n{"text": "sun"}\n')
    source, exported = OpenedBundle.open(task_bundle("generate")), OpenedBundle.open(decoder_bundle("int8"))
    samples, steps = source.samples(sample_rows(source.bundle, None)[1::2]), list[str]()
    examples = read_examples(tmp_path / "a.jsonl", source.manifest)
    about = {"scheme": "int8", "granularity": "block"}
    figures = complete_report(about, source, exported, samples, examples, lambda step, done, total: steps.append(step))
    parts = {"bytes", "kinds", "fidelity", "batch_invariance", "speed", "advice", "evaluation"}
    assert figures.keys() == about.keys() | parts
    assert figures["bytes"] == {"before": source.manifest.weights.bytes, "after": exported.manifest.weights.bytes}
    assert set(figures["fidelity"]) >= {"bits_per_byte_before", "bits_per_byte_after", "flip_rate", "cosines"}
    before, after = (figures["fidelity"][f"perplexity_{side}"] for side in ("before", "after"))
    bits = [figures["fidelity"][f"bits_per_byte_{side}"] for side in ("before", "after")]
    assert math.log(after) / math.log(before) == pytest.approx(bits[1] / bits[0])
    assert figures["batch_invariance"].keys() == {"rows", "identical", "max_difference", "cosine_min"}
    assert figures["evaluation"]["examples"] == 2
    assert list(dict.fromkeys(steps)) == ["measure fidelity", "measure speed", "measure quality"]
    assert json.loads(json.dumps(figures, allow_nan=False)).keys() == figures.keys()
    plain = complete_report({}, source, exported, samples, None, silent)
    assert plain.keys() == parts - {"evaluation"}


def test_kinds_of_both_sides(fp32_bundle: Path, int8_bundle: Path) -> None:
    source, exported = OpenedBundle.open(fp32_bundle), OpenedBundle.open(int8_bundle)
    figures = sizes(source, exported)
    for side, bundle in (("before", source), ("after", exported)):
        assert sum(sides[side] for sides in figures["kinds"].values()) == bundle.manifest.weights.bytes
    layers = figures["kinds"]["layers"]
    assert layers["after"] < 0.4 * layers["before"]


def test_time_is_the_median_of_the_shapes() -> None:
    assert slowdown({"speed": speeds(2, 0.5, 4)}) == 0.5
    assert slowdown({"speed": speeds(0.5)}) == 2


def test_gates_name_figure_value_and_limit() -> None:
    report = {"fidelity": FIDELITY, "speed": speeds(0.8, 0.5, 4), "granularity": "block"}
    Gates(0.995, 1.25).check(report)
    Gates(0).check(report)
    with pytest.raises(QuantizationError, match=r"has a mean cosine of 0\.9950 to float32, less than 0\.996; leave"):
        Gates(0.996, 1.25).check(report)
    with pytest.raises(
        QuantizationError, match=r"takes 1\.25 times the time of float32, more than 1\.2; try the granularity channel"
    ):
        Gates(0.995, 1.2).check(report)
    with pytest.raises(QuantizationError, match=r"has a mean cosine of 0\.99996 to float32, less than 1\.0; leave"):
        Gates(1.0).check(report | {"fidelity": {"cosine_mean": 0.99996}})
    with pytest.raises(QuantizationError, match=r"takes 2\.0004 times the time of float32, more than 2; try"):
        Gates(0, 2).check(report | {"speed": speeds(1 / 2.0004)})
    with pytest.raises(QuantizationError, match="has a mean cosine of nan"):
        Gates(0).check(report | {"fidelity": {"cosine_mean": math.nan}})


def test_a_limit_missed_on_unreadable_texts_asks_for_others() -> None:
    report = {"fidelity": FIDELITY, "speed": speeds(2), "unknown_tokens": 0.4}
    with pytest.raises(
        QuantizationError,
        match=r"but 40% of the tokens of the sample texts are unknown .*; give calibration texts .*, or min_fidelity=0",
    ):
        Gates(0.996).check(report)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ((1.5,), "min_fidelity=1.5 is not between 0 and 1"),
        ((math.nan,), "min_fidelity=nan is not"),
        ((0.9, 0), "max_slowdown=0 is not a number above 0"),
        ((0.9, -1), "max_slowdown=-1 is not"),
        ((0.9, math.nan), "max_slowdown=nan is not"),
        ((0.9, math.inf), "max_slowdown=inf is not"),
    ],
)
def test_limits_that_say_nothing_are_refused(limits: tuple[float, ...], message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        Gates(*limits)


@pytest.mark.parametrize(
    ("report", "text"),
    [
        ({"speed": speeds(2, 3)}, ""),
        ({"speed": speeds(1, 1)}, ""),
        (
            {"speed": speeds(2, 0.9, 3), "granularity": "block"},
            "slower than float32 at 2 x 16; try the granularity channel, which serves batches and long prompts, "
            "or keep float32",
        ),
        (
            {"speed": speeds(0.5, 0.8, 3), "granularity": "channel"},
            "slower than float32 on this machine, 1.25 times its time in the median; try the granularity block, which "
            "serves one text at a time, or keep float32",
        ),
        (
            {"speed": speeds(2, 0.9), "granularity": None},
            "slower than float32 at 2 x 16; exclude some layers, or keep float32",
        ),
    ],
)
def test_what_is_slower_is_said_with_advice(report: dict[str, Any], text: str) -> None:
    assert advice(report) == text
