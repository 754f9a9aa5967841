"""Sample texts that a model cannot read give no figures as if they meant something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tokenizers import Tokenizer, models, pre_tokenizers

from edgebert.cli import main
from edgebert_exporters import export_checkpoint, quantize_bundle
from edgebert_exporters.inference.sample_texts import MAX_UNKNOWN, unknown_share
from edgebert_runtime import Bundle
from edgebert_runtime.errors import QuantizationError
from tests.support.sharing import Once
from tests.support.tiny import SPECIALS, write_checkpoint

RESIDUES = "L A G V S E R T I D P K Q N F Y M H W C X B U Z O".split()
LETTERS = list("ابتثجحخدذرزسشصضطظعغفقكلمنهوي")
PROTEINS = ["M K T A Y I A K Q R", "G S H M L E D P V", "A A L V W C N F", "T I P E Q R K D"] * 3
WORDS = ["سلام عليكم", "كتاب جديد", "بيت كبير", "ولد صغير"] * 3


@pytest.fixture(scope="module", params=["proteins", "arabic"])
def case(request: pytest.FixtureRequest, once: Once) -> tuple[Path, list[str]]:
    """Return a bundle that reads no English, and texts that it reads."""
    tokens = RESIDUES if request.param == "proteins" else [*LETTERS, *(f"##{letter}" for letter in LETTERS)]

    def make(folder: Path) -> None:
        source = write_checkpoint(folder / "source", vocab_size=len(SPECIALS) + len(tokens))
        (source / "vocab.txt").write_text("\n".join([*SPECIALS, *tokens]) + "\n", encoding="utf-8")
        settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
        (source / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
        export_checkpoint(source, folder / "bundle")

    return once(f"unreadable-{request.param}", make) / "bundle", PROTEINS if request.param == "proteins" else WORDS


def test_unknown_tokens_are_counted(case: tuple[Path, list[str]], fp32_bundle: Path) -> None:
    folder, texts = case
    assert unknown_share(Bundle.open(folder), None) > 0.3
    assert unknown_share(Bundle.open(folder), texts) == 0
    assert unknown_share(Bundle.open(fp32_bundle), None) < MAX_UNKNOWN


def test_a_fidelity_on_unreadable_texts_is_refused_and_not_printed(
    case: tuple[Path, list[str]], tmp_path: Path
) -> None:
    folder, texts = case
    with pytest.raises(
        QuantizationError, match=r"\d+% of the tokens of the sample texts are unknown .*give calibration"
    ):
        quantize_bundle(folder, tmp_path / "int8", min_fidelity=0.5)
    result = CliRunner().invoke(main, ["quantize", str(folder), str(tmp_path / "int8"), "--json"])
    assert result.exit_code == 0, result.output
    printed = CliRunner().invoke(main, ["info", str(tmp_path / "int8")]).output
    assert "unknown to the model; give texts of its own kind with --calibration" in " ".join(printed.split())
    assert "cosine" not in printed.partition("report")[2].partition("batches")[0]
    quantized = quantize_bundle(folder, tmp_path / "own", calibration=texts, min_fidelity=0.5)
    assert quantized.manifest.report["unknown_tokens"] == 0
    assert "cosine" in CliRunner().invoke(main, ["info", str(tmp_path / "own")]).output


def test_a_text_that_is_refused_is_unknown_as_a_whole(fp32_bundle: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    bundle = Bundle(tmp_path, Bundle.open(fp32_bundle).manifest)
    assert unknown_share(bundle, ["ab", "zz"]) == 0.5
