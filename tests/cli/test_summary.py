"""What is said about bundles of every task, after quantization and after verification."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edgebert.cli import bundle_summary as summary
from edgebert_runtime.bundle.manifest import Limits

COMMON = {"texts": 76, "cosine_mean": 0.99987, "cosine_min": 0.9971}
BATCHES = {"rows": 16, "identical": 16, "max_difference": 0.0, "cosine_min": 1.0}
SPEED = [{"shape": "1 x 16", "before_ms": 2.0, "after_ms": 1.0, "speedup": 2.0}]


def bundle(**fields: Any) -> Any:
    return SimpleNamespace(manifest=SimpleNamespace(**fields))


@pytest.mark.parametrize(
    ("figures", "lines"),
    [
        ({"nearest_neighbor_changes": 0.125}, ["neighbors  12.5% of 76 texts have a new nearest neighbor"]),
        (
            {"top1_agreement": 0.982, "kl_mean": 0.0000708},
            [
                "top result  the same in 98.2% of the outputs of 76 texts",
                "divergence  Kullback-Leibler 7.08e-05 on average",
            ],
        ),
        (
            {"top1_agreement": 0.982, "flip_rate": 0.25},
            ["top result  the same in 98.2% of the outputs of 76 texts; all of it in 75.0% of them"],
        ),
        (
            {"perplexity_before": 17.123, "perplexity_after": 17.5, "token_agreement": 0.975},
            ["perplexity  17.12 -> 17.50", "generated   97.5% of the tokens are the same"],
        ),
        ({"bits_per_byte_before": 1.7711, "bits_per_byte_after": 1.78}, ["bits a byte  1.771 -> 1.780"]),
        ({"token_agreement": 0.5}, ["generated  50.0% of the tokens are the same"]),
        ({}, []),
    ],
)
def test_report_of_every_task(capsys: pytest.CaptureFixture[str], figures: dict[str, float], lines: list[str]) -> None:
    report = {"bytes": {"before": 4000, "after": 1000}, "fidelity": {**COMMON, **figures}, "speed": SPEED}
    report["batch_invariance"] = BATCHES
    summary.echo_report(bundle(report=report, weights=SimpleNamespace(skipped={"a.weight": "excluded"})))
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert all(line in printed for line in lines)
    assert len(printed) == 6 + len(lines) + 3
    assert any("cosine to float32 0.9999 on average, 0.9971 at least" in line for line in printed)


def test_one_number_a_text_agrees_by_its_correlation() -> None:
    rows = summary.measures({"fidelity": {**COMMON, "correlation": 0.993}, "batch_invariance": BATCHES})
    assert rows[0] == ("fidelity", "correlation with float32 0.9930")
    assert [label for label, _ in rows] == ["fidelity", "batches"]


def test_figures_are_never_rounded_to_all_or_nothing() -> None:
    fidelity = {"texts": 9, "cosine_mean": 0.999991, "cosine_min": 0.99996, "nearest_neighbor_changes": 0.0001}
    lines = dict(summary.measures({"fidelity": fidelity}))
    assert lines["fidelity"] == "cosine to float32 0.99999 on average, 0.99996 at least"
    assert lines["neighbors"].startswith("0.01% of 9 texts")
    lines = dict(summary.measures({"fidelity": {"token_agreement": 0.99996, "texts": 9, "top1_agreement": 1.0}}))
    assert lines["generated"].startswith("99.996% of")
    assert lines["top result"].startswith("the same in 100.0% of")
    slower = [{"shape": "1 x 16", "before_ms": 2.0, "after_ms": 2.0, "speedup": 0.9996}]
    assert summary.timed({"speed": slower}) == [("1 x 16", "2.00 ms -> 2.00 ms (0.9996 x)")]
    assert dict(summary.verified({"files": 2, "golden_cosine": 0.99999}))["golden"].startswith("cosine 0.99999 to")


def test_what_was_not_measured_is_left_out() -> None:
    assert summary.measures({"fidelity": {"texts": 3, "perplexity_before": 2.0}}) == []


@pytest.mark.parametrize(
    ("batches", "text"),
    [
        (
            {"rows": 16, "identical": 16, "max_difference": 0.0},
            "16 of 16 rows are the same alone and in a batch, bit for bit",
        ),
        (
            {"rows": 16, "identical": 3, "max_difference": 0.00123},
            "3 of 16 rows are the same alone and in a batch, bit for bit; off by 1.2e-03 of the largest number at most",
        ),
    ],
)
def test_batches_are_bit_for_bit_or_off(batches: dict[str, Any], text: str) -> None:
    rows = summary.measures({"fidelity": COMMON, "batch_invariance": batches})
    assert [row for row in rows if row[0] == "batches"] == [("batches", text)]


def test_sizes_are_given_by_kind() -> None:
    kinds = {"layers": {"before": 6000, "after": 1500}, "other": {"before": 9, "after": 9}}
    rows = summary.sized({"bytes": {"before": 6009, "after": 1509}, "kinds": kinds})
    assert rows == [("weights", "6.0 kB -> 1.5 kB"), ("  layers", "6.0 kB -> 1.5 kB")]


def test_what_is_slower_is_said() -> None:
    assert [label for label, _ in summary.timed({"speed": SPEED, "advice": ""})] == ["1 x 16"]
    assert summary.timed({"speed": SPEED, "advice": "slower than"})[-1] == ("note", "slower than")


def test_quality_comes_with_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    figure = {"before": 0.93456, "after": 0.9, "difference": -0.03456}
    figure |= {f"{side}_interval": [value - 0.01, value + 0.01] for side, value in figure.items()}  # type: ignore[misc]
    evaluation = {"examples": 1234, "file": "a.jsonl", "figures": {"macro_f1": figure}}
    report = {"bytes": {"before": 4, "after": 1}, "fidelity": COMMON, "speed": SPEED, "evaluation": evaluation}
    summary.echo_report(bundle(report=report, weights=SimpleNamespace(skipped={})))
    printed = capsys.readouterr().out
    assert "on 1,234 examples of a.jsonl, with intervals of 95 %\n" in printed
    line = "macro f1  0.9346 (0.9246 to 0.9446) -> 0.9 (0.89 to 0.91), difference -0.03456 (-0.04456 to -0.02456)"
    assert f"  {line}\n" in printed
    assert ("macro f1", line.removeprefix("macro f1  ")) in summary.figures_of(report)


def test_the_weights_that_cost_most_are_named() -> None:
    losses = [{"weight": f"w{i}", "bytes": 9, "int8": i * 1e-4, "int4": i * 1e-2} for i in range(20)]
    rows = summary.costs_of_weights(losses)
    assert rows[0] == ("w19", "int8 1.90e-03, int4 1.90e-01")
    assert [weight for weight, _ in rows] == [f"w{i}" for i in range(19, 13, -1)]
    assert summary.costs_of_weights([]) == []
    assert summary.costs_of_weights([{"weight": "w", "bytes": 9, "int8": 0.5}]) == [("w", "int8 5.00e-01")]


def test_much_that_was_left_is_counted() -> None:
    few = {f"w{i}": "a table" for i in range(6)}
    assert summary.skipped_weights(few) == list(few.items())
    assert summary.skipped_weights(few | {"x": "a head"}) == [("w0 and 5 more", "a table"), ("x", "a head")]


def test_a_whole_report_fits_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {kind: {"before": 10, "after": 3} for kind in ("layers", "head", "embeddings", "other")}
    fidelity = COMMON | {"top1_agreement": 0.9, "flip_rate": 0.1, "kl_mean": 0.1, "token_agreement": 0.9}
    fidelity |= {f"{name}_{side}": 2.0 for name in ("perplexity", "bits_per_byte") for side in ("before", "after")}
    report = {"bytes": {"before": 40, "after": 12}, "kinds": kinds, "fidelity": fidelity, "speed": SPEED * 3}
    report |= {"batch_invariance": {"rows": 2, "identical": 1, "max_difference": 1e-3}, "advice": "slower than float32"}
    report["sensitivity"] = [{"weight": f"w{i}", "bytes": 9, "int8": 0.1, "int4": 0.2} for i in range(99)]
    weights = SimpleNamespace(skipped={f"w{i}": "excluded" for i in range(99)})
    summary.echo_report(bundle(report=report, weights=weights))
    assert len(capsys.readouterr().out.splitlines()) <= 30


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        ({}, []),
        ({"mask_token": "[MASK]"}, [("mask token", "[MASK]")]),
        (
            {"labels": ["no", "yes"], "problem_type": "multi_label"},
            [("labels", "no, yes"), ("problem type", "multi_label")],
        ),
        ({"labels": [str(i) for i in range(7)]}, [("labels", "7 values")]),
        ({"normalize": False, "pooling": "cls"}, [("normalize", "no"), ("pooling", "cls")]),
        ({"languages": {}, "language_style": "", "source_language": "", "target_language": ""}, []),
        (
            {"languages": dict.fromkeys("abcdefgh", 3), "language_style": "token", "source_language": ""},
            [("languages", "a, b, c, d, e, f, g, h"), ("language style", "token")],
        ),
        (
            {"dim": 8, "prompts": {"web_query": "q: ", "document": ""}, "default_prompt": "web_query"},
            [
                ("dim", "8"),
                ("default prompt", "web_query"),
                ("prompt web_query", '"q: "'),
                ("prompt document", '""'),
            ],
        ),
    ],
)
def test_settings(settings: dict[str, Any], rows: list[tuple[str, str]]) -> None:
    assert summary.settings(bundle(settings=settings)) == rows


def test_both_sides_of_a_translation_are_described() -> None:
    config = {"hidden_size": 8, "encoder_layers": 6, "decoder_layers": 3, "decoder_vocab_size": 41}
    figures: dict[str, Any] = {
        "edgebert_version": "0",
        "format_version": 2,
        "weights": SimpleNamespace(cpu_requirements="any"),
    }
    marian = bundle(task="translate", limits=Limits(32000, 512, 512), config=config, **figures)
    rows = dict(summary.details(marian))
    assert (rows["vocabulary"], rows["of targets"]) == ("32,000", "41")
    assert (rows["hidden size"], rows["encoder layers"], rows["decoder layers"]) == ("8", "6", "3")
    config["decoder_vocab_size"] = None  # type: ignore[assignment]
    assert "of targets" not in dict(summary.details(marian))


def test_verification_speaks_of_outputs_of_any_kind() -> None:
    figures: dict[str, Any] = {"files": 2, "golden_cosine": 1.0}
    figures["batch_invariance"] = {"rows": 48, "max_difference": 1e-7}
    text = " ".join(text for _, text in summary.verified(figures))
    assert "cosine 1.0000 to the output that was stored" in text
    assert "vector" not in text
    figures["reference"] = {"batches": 23, "cosine": 0.9999}
    assert summary.verified(figures)[-1] == ("reference", "23 batches, mean cosine 0.9999 to PyTorch")


def parity(**outputs: float) -> dict[str, Any]:
    return {"batches": 36, "max_error": max(outputs.values()), "tolerance": 1e-4, "at": "(1, 2)", "outputs": outputs}


def test_errors_of_several_outputs_are_told_apart() -> None:
    figures = parity(start_logits=1e-6, end_logits=2.5e-6) | {"unoptimized": parity(start_logits=3e-6, end_logits=0.0)}
    assert summary.compared("cpu", figures) == [
        ("cpu", "36 batches, off by 2.5e-06 of the largest number at most (allowed 1e-04), at (1, 2)"),
        ("  start_logits", "off by 1.0e-06"),
        ("  end_logits", "off by 2.5e-06"),
        ("unoptimized", "36 batches, off by 3.0e-06 of the largest number at most (allowed 1e-04), at (1, 2)"),
        ("  start_logits", "off by 3.0e-06"),
        ("  end_logits", "off by 0.0e+00"),
    ]
    assert len(summary.compared("cpu", parity(logits=1e-6))) == 1
    assert summary.compared("cpu", {}) == []


def test_errors_of_a_cache_are_one_line() -> None:
    cache = {f"present.{layer}.key": layer * 1e-7 for layer in range(12)}
    rows = summary.compared("cpu", parity(logits=2e-6, **cache))
    assert rows[1:] == [("  logits", "off by 2.0e-06"), ("  others", "12 outputs, off by 1.1e-06 at most")]


def test_translations_are_counted() -> None:
    figures = parity(logits=1e-6, top_logprobs=2e-6) | {"translations": {"sources": 4, "num_beams": [1, 4]}}
    rows = summary.compared("cpu", figures)
    assert rows[1:] == [
        ("  logits", "off by 1.0e-06"),
        ("  top_logprobs", "off by 2.0e-06"),
        ("  translations", "those of 4 texts are the same, with num_beams 1 and 4"),
    ]


def test_verification_names_what_was_done_only() -> None:
    assert summary.verified({"files": 3}) == [("files", "3 files match the manifest")]
    rows = summary.verified({"files": 3, "reference": parity(a=1e-6, b=2e-6)})
    assert [label for label, _ in rows] == ["files", "reference", "  a", "  b"]


def test_defaults_of_generation_have_the_names_of_the_library() -> None:
    defaults = {"eos_token_id": 50256, "do_sample": True, "suppress_tokens": [1, 2]}
    rows = [("eos_token_id", "50256"), ("do_sample", "true"), ("suppress_tokens", "[1, 2]")]
    assert summary.decoding(bundle(decoding=defaults)) == rows
    assert summary.decoding(bundle(decoding={})) == []


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("generate", "1,024, those of a prompt"),
        ("embed", "1,024 a text; cut at 8"),
        ("translate", "1,024 a text, and as many"),
    ],
)
def test_how_long_a_text_can_be(task: str, text: str) -> None:
    assert text in summary.tokens(task, Limits(50257, 1024, 8))
