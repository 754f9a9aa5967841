"""The command that quantizes: its options, its report, and what it refuses."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from edgebert_exporters.fidelity.figures import Figure
from edgebert_runtime import Bundle
from tests.cli.watching import watch


def test_quantize_reports(run: Any, fp32_bundle: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("a b c\n\nd e f g\nx y\nz\n" * 4)
    options = ["--calibration", texts, "--exclude", "*.0.ffn_down.weight", "--min-fidelity", "0.5"]
    result = run("quantize", fp32_bundle, tmp_path / "q", *options)
    assert (result.exit_code, result.stderr) == (0, "")
    for part in ("int8", "report", "cosine to float32", "1 x 16", "skipped (float32)", "ffn_down", "excluded"):
        assert part in result.stdout
    again = run("quantize", fp32_bundle, tmp_path / "q", *options, "--force", "--json")
    manifest = json.loads(again.stdout)
    assert manifest["weights"]["scheme"] == "int8"
    conditions = manifest["report"]["conditions"]
    assert conditions["texts"] == {"origin": "texts.txt", "calibration": 8, "test": 8}
    expected = {"scheme": "int8", "exclude": ["*.0.ffn_down.weight"], "min_fidelity": 0.5}
    assert conditions["options"] == expected


def test_quantize_hands_its_options_on(run: Any, fp32_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = watch(monkeypatch, "quantize_bundle", fp32_bundle)
    assert run("quantize", "b", "q").exit_code == 0
    plain = {"args": (Path("b"), Path("q")), "scheme": "int8", "exclude": ()}
    assert passed == plain, "what was not given is left to the library"
    options = (
        "--scheme int4 --block-size 64 --granularity channel --exclude a --exclude b --min-fidelity 0 --force "
        "--asymmetric --algorithm gptq --calibration-method entropy --mixed-precision 0.5% "
        "--max-slowdown 1.5 --eval e.jsonl"
    )
    assert run("quantize", "b", "q", *options.split()).exit_code == 0
    assert passed == plain | {
        **{
            "scheme": "int4",
            "block_size": 64,
            "granularity": "channel",
            "exclude": ("a", "b"),
            "min_fidelity": 0,
            "force": True,
        },
        **{"asymmetric": True, "algorithm": "gptq", "calibration_method": "entropy", "mixed_precision": 0.005},
        **{"max_slowdown": 1.5, "eval": Path("e.jsonl")},
    }


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--mixed-precision", "much", "'much' is neither a percentage, such as 0.5%, nor a number."),
        ("--mixed-precision", "0.5.5%", "is neither a percentage"),
        ("--mixed-precision", "100%", "'100%' is not between 0% and 100%."),
        ("--mixed-precision", "nan", "'nan' is not between"),
        ("--max-slowdown", "0", "0.0 is not in the range x>0"),
        ("--min-fidelity", "1.5", "1.5 is not in the range 0<=x<=1"),
    ],
)
def test_limits_that_say_nothing_are_wrong_usage(run: Any, option: str, value: str, message: str) -> None:
    result = run("quantize", "b", "q", option, value)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_the_largest_loss_is_a_share(run: Any, fp32_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = watch(monkeypatch, "quantize_bundle", fp32_bundle)
    for text, share in (("0.5%", 0.005), (" 2 % ", 0.02), ("0.01", 0.01)):
        assert run("quantize", "b", "q", "--mixed-precision", text).exit_code == 0
        assert passed["mixed_precision"] == pytest.approx(share)


def test_sensitivity_is_measured_and_nothing_written(run: Any, fp32_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("the cat sat\nsun and moon\n" * 5)
    options = ["--sensitivity", "--calibration", tmp_path / "texts.txt", "--exclude", "*.0.*", "--exclude", "*embed*"]
    rows = json.loads(run("quantize", fp32_bundle, *options, "--json").stdout)
    names = ["attention_output", "ffn_down", "ffn_up", "qkv"]
    assert sorted(row["weight"] for row in rows) == [f"bert.layers.1.{name}.weight" for name in names]
    assert all(row["int4"] > 0 for row in rows)
    result = run("quantize", fp32_bundle, *options)
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split()[0] for line in result.stdout.splitlines()] == [row["weight"] for row in rows]
    assert [file.name for file in tmp_path.iterdir()] == ["texts.txt"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("b", "Missing argument 'OUT'."),
        ("b q --sensitivity", "--sensitivity writes nothing, leave out OUT."),
        ("b --sensitivity --block-size 64 --html a.html", "leave out --block-size, --html."),
        ("b --sensitivity --scheme int4", "leave out --scheme."),
    ],
)
def test_quantize_writes_a_bundle_or_measures(run: Any, args: str, message: str) -> None:
    result = run("quantize", *args.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_quantize_writes_a_page(run: Any, int8_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch(monkeypatch, "quantize_bundle", int8_bundle)
    plain = run("quantize", "b", "q").stdout
    result = run("quantize", "b", "q", "--html", tmp_path / "report.html")
    assert (result.exit_code, result.stderr, result.stdout) == (0, "", plain)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    figures = Bundle.open(int8_bundle).manifest.report["fidelity"]
    assert f"cosine to float32 {Figure(figures['cosine_mean']):.4f} on average" in text


def test_a_page_without_a_folder_is_refused_before_any_work(
    run: Any, fp32_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = watch(monkeypatch, "quantize_bundle", fp32_bundle)
    result = run("quantize", "b", "q", "--html", tmp_path / "none" / "report.html")
    assert (result.exit_code, result.stdout, passed) == (1, "", {})
    assert result.stderr.endswith(f"the folder {tmp_path / 'none'} does not exist; create it first\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--scheme int4 --granularity channel", "--granularity channel is not for --scheme int4; leave it out"),
        ("--granularity channel --block-size 64", "--block-size 64 is not for --granularity channel"),
        ("--calibration-method mse", "--calibration-method mse is not for --scheme int8"),
        ("--max-slowdown inf", "--max-slowdown inf is not a number above 0"),
    ],
)
def test_quantize_names_options_as_the_user_does(
    run: Any, fp32_bundle: Path, tmp_path: Path, options: str, message: str
) -> None:
    result = run("quantize", fp32_bundle, tmp_path / "q", *options.split())
    assert (result.exit_code, result.stdout, list(tmp_path.iterdir())) == (2, "", [])
    assert message in result.stderr


def test_quantize_names_the_file_of_examples_that_is_not_there(run: Any, fp32_bundle: Path, tmp_path: Path) -> None:
    result = run("quantize", fp32_bundle, tmp_path / "q", "--eval", "none.jsonl")
    assert (result.exit_code, result.stdout, list(tmp_path.iterdir())) == (1, "", [])
    assert result.stderr.startswith("edgebert: error: cannot read none.jsonl: No such file")


@pytest.mark.parametrize("content", [None, b"", b"\n\n", b"a\n\xff\n"])
def test_calibration_texts_must_be_there(run: Any, fp32_bundle: Path, tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "texts.txt").write_bytes(content)
    result = run("quantize", fp32_bundle, tmp_path / "q", "--calibration", tmp_path / "texts.txt")
    assert (result.exit_code, result.stdout) == (1, "")
    assert str(tmp_path / "texts.txt") in result.stderr
    assert "--encoding-errors" not in result.stderr
    assert not (tmp_path / "q").exists()


def test_quantize_below_the_threshold_fails_and_leaves_nothing(run: Any, fp32_bundle: Path, tmp_path: Path) -> None:
    result = run("quantize", fp32_bundle, tmp_path / "q", "--min-fidelity", "1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "--min-fidelity" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_quantize_slower_than_allowed_fails_and_leaves_nothing(run: Any, fp32_bundle: Path, tmp_path: Path) -> None:
    result = run("quantize", fp32_bundle, tmp_path / "q", "--max-slowdown", "0.001", "--html", tmp_path / "a.html")
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.search(r"takes \d+\.\d\d times the time of float32, more than 0\.001; .* --max-slowdown\n", result.stderr)
    assert list(tmp_path.iterdir()) == []


def test_quantize_judges_labelled_examples(run: Any, fp32_bundle: Path, tmp_path: Path) -> None:
    rows = [{"text": text, "label": label} for text, label in (("a cat", "x"), ("the cat", "x"), ("rain", "y"))]
    (tmp_path / "e.jsonl").write_text("\n".join(map(json.dumps, rows)))
    options = ["--eval", tmp_path / "e.jsonl", "--html", tmp_path / "a.html"]
    result = run("quantize", fp32_bundle, tmp_path / "q", *options)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "\non 3 examples of e.jsonl, with intervals of 95 %\n  accuracy  " in result.stdout
    (line,) = [line.split(maxsplit=1)[1] for line in result.stdout.splitlines() if line.startswith("  accuracy")]
    assert f'<tr><th scope="row">accuracy</th><td>{html.escape(line)}</td></tr>' in (tmp_path / "a.html").read_text()
    for part in ("rows are the same alone and in a batch", "  layers", "  embeddings"):
        assert part in result.stdout
    (tmp_path / "e.jsonl").write_text('{"text": "a"}\n')
    wrong = run("quantize", fp32_bundle, tmp_path / "q2", *options)
    assert wrong.stderr.startswith(
        f"edgebert: error: line 1 of {tmp_path / 'e.jsonl'}: the fields are text; embed takes"
    )
