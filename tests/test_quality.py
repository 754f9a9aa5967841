"""The figures and the table of benchmarks/quality.py on tiny models, and the document of quantization that has it."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bits_per_byte
import numpy as np
import pytest
import quality
import quality_models
import torch
import transformers
from click.testing import CliRunner
from fetch_checkpoint import SMILES
from quality_models import Measured, Model

import edgebert
from edgebert.cli import main
from edgebert_exporters.quantization.schemes import SCHEMES
from edgebert_exporters.reports.metrics import perplexity, ratio
from tests.support.documents import README, ROOT, assert_same, commands, run
from tests.support.tiny_tokenizers import VOCAB

DOCUMENT = ROOT / "docs" / "quantization.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
SEQUENCES = ("the cat sat on a mat".split(), "dog ran in the sun".split())
TEXTS = [" ".join(sequence[:length]) for sequence in SEQUENCES for length in range(1, 5)]


def ids(words: Sequence[str]) -> torch.Tensor:
    """Return the tokens (1, seq) of a text that consists of words of the vocabulary."""
    return torch.tensor([[VOCAB.index(word) for word in ("[CLS]", *words, "[SEP]")]])


@torch.no_grad()
def test_unmasking_is_that_of_pytorch_place_by_place(
    task_bundle: Callable[[str], Path], task_checkpoint: Callable[[str], Path]
) -> None:
    model = transformers.AutoModelForMaskedLM.from_pretrained(task_checkpoint("fill-mask"))
    words = sorted({word for sequence in SEQUENCES for word in sequence})
    losses, guesses = [], []
    for sequence in SEQUENCES:
        for place, word in enumerate(sequence):
            masked = ids([*sequence[:place], "[MASK]", *sequence[place + 1 :]])
            logits = model(masked).logits[0, place + 1]
            losses.append(-logits.log_softmax(0)[VOCAB.index(word)].item())
            guesses.append(max(words, key=lambda candidate: logits[VOCAB.index(candidate)].item()))
    judged = quality_models.unmask(task_bundle("fill-mask"), SEQUENCES)
    np.testing.assert_allclose(judged["loss"], [[loss, 1] for loss in losses], rtol=1e-4)
    assert [words[number] for number in judged["right"]] == [word for sequence in SEQUENCES for word in sequence]
    assert [words[number] for number in judged["found"]] == guesses
    found_perplexity = quality_models.drawn(perplexity, judged["loss"])
    assert found_perplexity.value == pytest.approx(math.exp(sum(losses) / len(losses)), rel=1e-4)


@torch.no_grad()
def test_logits_are_those_of_pytorch_in_the_order_of_the_texts(
    task_bundle: Callable[[str], Path], task_checkpoint: Callable[[str], Path]
) -> None:
    model = transformers.AutoModelForSequenceClassification.from_pretrained(task_checkpoint("classify"))
    logits = quality_models.classify(task_bundle("classify"), TEXTS)["logits"]
    np.testing.assert_allclose(logits, [model(ids(text.split())).logits[0].numpy() for text in TEXTS], atol=1e-5)


def test_vectors_are_those_of_the_engine(fp32_bundle: Path) -> None:
    judged = quality_models.embed(fp32_bundle, TEXTS)
    np.testing.assert_array_equal(judged["vectors"], edgebert.Embedder.load(fp32_bundle).embed(TEXTS))
    away = np.linalg.norm(judged["vectors"][:, None] - judged["vectors"][None], axis=2)
    np.fill_diagonal(away, np.inf)
    np.testing.assert_array_equal(judged["nearest"], away.argmin(1))  # they have length 1


def test_bits_are_those_of_the_sample(decoder_bundle: Callable[[str], Path]) -> None:
    texts = ["the cat", "é in the sun"]
    bits = quality_models.score(decoder_bundle("cpu"), texts)["bits"]
    assert bits[:, 1].tolist() == [7, 13]
    whole = bits_per_byte.bits_per_byte(edgebert.Generator.load(decoder_bundle("cpu")), "\n".join(texts))
    assert ratio(bits) == pytest.approx(whole, rel=1e-5)


def test_words_are_wrong_unless_said_in_one_of_their_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"read": "R IY D", "cat": "K AA T S", "dog": "D AO G"}

    def translate(words: list[str], num_beams: int) -> list[SimpleNamespace]:
        assert num_beams == 4
        return [SimpleNamespace(text=said[word]) for word in words]

    monkeypatch.setattr(edgebert.Translator, "load", lambda bundle: SimpleNamespace(translate=translate))
    right = {"read": ["R EH D", "R IY D"], "cat": ["K AE T"], "dog": ["D AO G"]}
    judged = quality_models.pronounce(Path("g2p"), right)
    assert judged["errors"].tolist() == [[0, 3], [2, 3], [0, 3]]
    assert quality_models.wrong(judged["errors"]) == pytest.approx(100 / 3)
    assert quality_models.phones_wrong(judged["errors"]) == pytest.approx(200 / 9)


def test_changes_are_worked_out_by_hand() -> None:
    old = np.eye(4, dtype=np.float32)
    new = np.array([[3, 4, 0, 0], [0, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, 1]], np.float32)
    changes = quality_models.alike(old, new)
    assert changes["cosine"].value == pytest.approx((0.6 + 3) / 4)
    assert changes["least cosine"] == Measured(pytest.approx(0.6))  # type: ignore[arg-type]
    flips = quality_models.flipped(
        "nearest", {"nearest": np.arange(8)}, {"nearest": np.array([0, 1, 2, 3, 4, 5, 7, 6])}
    )
    assert flips.value == 0.25
    assert flips.interval is not None
    assert 0 < flips.interval[0] < 0.25 < flips.interval[1] < 1
    # A figure that is 1 worse for every example is so with every set of them.
    before = np.array([[1.0, 1], [5, 1], [9, 1]])
    worse = quality_models.drawn(ratio, before, before + [1, 0])
    assert [worse.value, *(worse.interval or ())] == pytest.approx([1, 1, 1])


def test_calibration_and_judgement_have_nothing_in_common(tmp_path: Path) -> None:
    copies, sequences = quality_models.antibodies(tmp_path)
    assert len(copies) == quality_models.COPIES * len(sequences)
    assert not set(copies) & set(sequences)
    changed = [sum(map(str.__ne__, copy, sequences[row % 4])) / len(copy) for row, copy in enumerate(copies)]
    assert 0.07 < np.mean(changed) < quality_models.MUTATED  # some residues are replaced by themselves
    watched, judged = quality_models.reactions(tmp_path)
    assert len({*watched, *judged}) == len(watched) + len(judged) == 480
    for reaction in watched + judged:
        assert re.sub(SMILES, "", reaction) == ""
        assert reaction.count(">>") == 1
        for side in re.split(">>|[.]", reaction):
            assert side.count("(") == side.count(")")
            assert all(side.count(ring) % 2 == 0 for ring in "12")


def row(scheme: dict[str, Any], **changes: float) -> quality.Row:
    """Return a row whose report says that half of the rows are the same in batches."""
    report = {
        "fidelity": {"cosine_mean": 0.98765},
        "batch_invariance": {"rows": 16, "identical": 8, "max_difference": 2.34e-6},
        "speed": [{"speedup": 0.5}, {"speedup": 3.0}, {"speedup": 2.0}],
    }
    figures = {"WER": Measured(32.333, (31, 34))}
    return quality.Row("m", scheme, 1_234_000, report, figures, {name: Measured(v) for name, v in changes.items()})


@pytest.mark.parametrize(
    ("scheme", "changes", "expected"),
    [
        ({"scheme": "int8"}, {"cosine": 0.999, "flips": 0.01}, "keeps"),
        ({"scheme": "int8", "granularity": "block"}, {"cosine": 0.9989, "flips": 0.02}, "**misses cosine, flips**"),
        ({"scheme": "int8-static"}, {"cosine": 0.9989, "flips": 0.01}, "**misses cosine**"),
        ({"scheme": "int4"}, {"cosine": 0.9989, "flips": 0.02}, "keeps"),
        ({"scheme": "int4"}, {"WER": 1.51, "PER": 9}, "**misses WER**"),
        ({"scheme": "int4"}, {"bits per byte": -0.1}, "keeps"),
        ({"scheme": "int8"}, {"pseudo-perplexity": 1}, ""),
        ({"mixed_precision": 0.01}, {"cosine": 0.5}, ""),
    ],
)
def test_limits_are_those_of_the_scheme(scheme: dict[str, Any], changes: dict[str, float], expected: str) -> None:
    assert quality.missed(row(scheme, **changes)) == expected


def test_a_row_says_it_all() -> None:
    row_cells = quality.cells(row({"scheme": "int4", "algorithm": "rtn"}, WER=1.0, cosine=0.5))
    assert row_cells == [
        "m",
        "`int4 --algorithm rtn`",
        "1.2 MB",
        "0.9877",
        "WER 32.33 (31.00 to 34.00)",
        "WER +1.00, cosine 0.5000",
        "**misses cosine**",
        "off by 2e-06",
        "2.00 x",
    ]
    assert quality.named({"mixed_precision": 0.01}) == "--mixed-precision 1%"
    assert len(row_cells) == len(quality.HEADS)


def test_rows_of_a_document_are_replaced_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schemes = tuple({"scheme": name} for name in ("int8", "int4"))
    nothing: Any = None
    monkeypatch.setattr(quality, "MODELS", (Model("m", nothing, nothing, nothing, nothing, nothing, schemes),))
    file = tmp_path / "a.md"
    file.write_text(f"above\n{quality.BEGIN}\nold\n{quality.END}\nbelow\n", encoding="utf-8")
    rows = [row({"scheme": "int4"}, WER=1), row({}), row({"scheme": "int8"}, WER=2)]
    for last in (1, 2, 3):
        quality.write(file, rows[last - 1 : last])
    expected = quality.tables(map(quality.cells, (rows[1], rows[2], rows[0])))
    assert file.read_text(encoding="utf-8") == f"above\n{quality.BEGIN}\n{expected}{quality.END}\nbelow\n"
    better = row({"scheme": "int8"}, WER=0.2)
    quality.write(file, [better])
    expected = quality.tables(map(quality.cells, (rows[1], better, rows[0])))
    assert expected in file.read_text(encoding="utf-8")
    file.write_text(f"nothing\n{quality.BEGIN}\n", encoding="utf-8")
    with pytest.raises(RuntimeError, match="has no place between"):
        quality.write(file, rows)


def test_the_whole_command(
    task_checkpoint: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    schemes = ({"scheme": "int8"}, {"scheme": "int4", "algorithm": "rtn"})
    (real,) = (model for model in quality_models.MODELS if model.judge is quality_models.unmask)
    tiny = Model(
        "tiny",
        lambda folder: task_checkpoint("fill-mask"),
        lambda folder: (TEXTS, SEQUENCES),
        real.judge,
        real.figures,
        real.changes,
        schemes,
    )
    monkeypatch.setattr(quality, "MODELS", (tiny,))
    document = tmp_path / "document.md"
    document.write_text(f"{quality.BEGIN}\n{quality.END}\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["quality.py", str(tmp_path / "made"), "--write", str(document)])
    quality.main()
    printed = capsys.readouterr().out.rstrip()
    assert document.read_text(encoding="utf-8") == f"{quality.BEGIN}\n{printed}\n{quality.END}\n"
    lines = [line.split(" | ") for line in printed.splitlines() if line.startswith("| tiny")]
    assert [line[1] for line in lines] == ["float32", "`int8`", "`int4 --algorithm rtn`"]
    sizes = [float(line[2].split()[0]) for line in lines]
    assert sizes[0] >= sizes[1] >= sizes[2]
    exact, small, smaller = lines
    judged = quality_models.unmask(tmp_path / "made" / "tiny.fp32", SEQUENCES)
    assert f"pseudo-perplexity {math.exp(judged['loss'][:, 0].mean()):.3f} (" in exact[4]
    assert all(re.search(r"pseudo-perplexity [+-]\d+\.\d{3} \(.*\), flips", line[5]) for line in (small, smaller))


@pytest.fixture(scope="module")
def folder(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder as after the first command, which the README's test runs; a tiny encoder stands for MiniLM."""
    folder = tmp_path_factory.mktemp("quantization")
    (folder / "samples").symlink_to(ROOT / "samples")
    (folder / "minilm").symlink_to(checkpoint)
    return folder


@pytest.mark.slow
def test_every_command_of_the_document_prints_what_it_shows(folder: Path) -> None:
    options: set[str] = set()
    (fetched, _), *shown = commands(TEXT)
    assert fetched in {command for command, _ in commands(README.read_text(encoding="utf-8"))}
    for command, written in shown:
        printed = run(command, folder)
        if written:
            assert_same(without_note(printed), without_note(written), command)
        options.update(re.findall(r"--[a-z][a-z-]+", command))
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert options > {
        "--scheme",
        "--granularity",
        "--block-size",
        "--asymmetric",
        "--eval",
        "--mixed-precision",
        "--sensitivity",
    }


def without_note(lines: Sequence[str]) -> list[str]:
    """Leave out what a report says of speed if there is something to say, which depends on the machine."""
    return [line for line in lines if not line.startswith("  note ")]


def test_every_option_named_in_the_document_exists() -> None:
    text = "".join(CliRunner().invoke(main, [name, "--help"]).output for name in ("export", "quantize", "compare"))
    for option in set(re.findall(r"--[a-z][a-z-]+", TEXT)) - {"--write"}:
        assert option in text, option


def test_the_document_has_every_scheme_and_the_latest_tables() -> None:
    start, _, after = TEXT.partition(quality.BEGIN)
    tables = after.partition(quality.END)[0]
    limits, figures = tables.strip().split("\n\n")
    assert limits == quality.tables([]).split("\n\n")[0].strip()
    rows = [line.split(" | ")[:2] for line in figures.splitlines()[2:]]
    expected = [
        [f"| {model.name}", quality.label(options)]
        for model in quality_models.MODELS
        for options in ({}, *model.schemes)
    ]
    assert rows == expected
    for scheme in SCHEMES:
        assert f"| `{scheme}` |" in start
