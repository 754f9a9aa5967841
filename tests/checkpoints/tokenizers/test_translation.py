"""Tokenizers of BART and mBART, those that are ready, and the languages that a model can be told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import given, settings
from tokenizers import Tokenizer
from transformers.models.mbart.tokenization_mbart import FAIRSEQ_LANGUAGE_CODES as MBART_CODES
from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES as MBART50_CODES

from edgebert.checkpoints.folder import CheckpointFolder
from edgebert.checkpoints.tokenizers.translation import TranslationTokenizers, read_tokenizers
from edgebert_runtime.errors import TokenizerError
from tests.checkpoints.tokenizers.marian_folders import LANGUAGES, read, size, write_folder
from tests.checkpoints.tokenizers.spm_models import equal, lines, model_file, odd_lines, piece, processor, texts, train
from tests.support.tiny_tokenizers import vocabulary, write_tokenizer

PIECES = train(normalization_rule_name="nmt_nfkc")
COUNT = 1 + processor(PIECES).vocab_size()  # with the padding that fairseq puts among the first


def read_folder(
    folder: Path, model_type: str, *sizes: int | None, first: Sequence[int | None] = ()
) -> TranslationTokenizers:
    size, target = (*sizes, None)[:2]
    assert size is not None
    return read_tokenizers(CheckpointFolder.open(folder), model_type, size, target, first)


def mbart(folder: Path, size: int, data: bytes = PIECES, **config: Any) -> TranslationTokenizers:
    """Read the files of an mBART."""
    (folder / "sentencepiece.bpe.model").write_bytes(data)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return read_folder(folder, "mbart", size)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> TranslationTokenizers:
    """Return what is read of an mBART-50."""
    return mbart(tmp_path_factory.mktemp("mbart50"), COUNT + 53)


def assert_offset(actual: TranslationTokenizers, text: str) -> None:
    """Compare the ids of a text with those of SentencePiece, which fairseq moves by one."""
    reference, tokenizer = processor(PIECES), Tokenizer.from_str(actual.source.text)
    tokenizer.encode_special_tokens = True
    *ids, end = tokenizer.encode(text).ids
    pieces = [0 if index == 3 else index - 1 for index in ids]
    assert equal(reference, pieces, reference.encode(text))
    assert end == 2
    real = [index for index in pieces if index]
    assert tokenizer.decode([*ids, end], skip_special_tokens=True) == reference.decode(real).strip()


def test_ids_of_mbart_are_those_of_fairseq(many: TranslationTokenizers) -> None:
    for text in [*lines(count=40), *odd_lines(60), "en_XX <mask> <pad> </s>"]:
        assert_offset(many, text)


@settings(max_examples=25, deadline=None)
@given(text=texts)
def test_any_text_gives_the_ids_of_fairseq(many: TranslationTokenizers, text: str) -> None:
    assert_offset(many, text)


def test_tokens_of_mbart_are_those_of_transformers(many: TranslationTokenizers, tmp_path: Path) -> None:
    pieces = [(processor(PIECES).id_to_piece(i), -1.0) for i in range(COUNT - 1)]
    theirs = transformers.MBart50Tokenizer(vocab=pieces)
    assert many.languages == theirs.lang_code_to_id == {code: COUNT + i for i, code in enumerate(MBART50_CODES)}
    ours = Tokenizer.from_str(many.source.text)
    for token in ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "▁the"):
        assert ours.token_to_id(token) == theirs.convert_tokens_to_ids(token)
    few = mbart(tmp_path, COUNT + 26)
    assert few.languages == {code: COUNT + i for i, code in enumerate(MBART_CODES)}
    assert Tokenizer.from_str(few.source.text).token_to_id("<mask>") == COUNT + 25
    assert (few.target, many.target) == (None, None)


@pytest.mark.parametrize(
    ("rows", "config", "style"),
    [
        (26, {}, "bart25"),
        (53, {}, "bart50"),
        (99, {"tokenizer_class": "MBart50Tokenizer"}, "bart50"),
        (99, {"tokenizer_class": "MBartTokenizer"}, "bart25"),
    ],
)
def test_languages_are_told_by_class_and_size(tmp_path: Path, rows: int, config: dict[str, Any], style: str) -> None:
    config |= {"src_lang": "de_DE", "tgt_lang": "xx_XX", "model_max_length": 99}
    actual = mbart(tmp_path, COUNT + rows, **config)
    assert (actual.language_style, actual.source_language, actual.target_language) == (style, "de_DE", "")
    assert actual.source.model_max_length == 99


@pytest.mark.parametrize(
    ("rows", "data", "config", "message"),
    [
        (60, PIECES, {}, rf"makes {COUNT + 26} or {COUNT + 53} tokens, the model has {COUNT + 60} \(vocab_size\)"),
        (30, PIECES, {"tokenizer_class": "MBart50Tokenizer"}, rf"makes {COUNT + 53} tokens, .* has {COUNT + 30}"),
        (53, PIECES, {"tokenizer_class": "BarthezTokenizer"}, "'BarthezTokenizer' cannot be built from sentencepiece"),
        (53, piece("<unk>", 0.0, 2) + piece("a"), {}, "should begin with <unk>, <s> and </s>"),
        (-COUNT + 6 + 26 + 2, model_file(piece("<pad>", 0.0, 3)), {}, "special tokens of mBART: '<pad>'"),
        (-COUNT + 6 + 26 + 2, model_file(piece("en_XX")), {}, "special tokens of mBART: 'en_XX'"),
    ],
)  # fmt: skip
def test_files_of_mbart_that_do_not_fit_are_refused(
    tmp_path: Path, rows: int, data: bytes, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(TokenizerError, match=message):
        mbart(tmp_path, COUNT + rows, data, **config)


def test_ready_tokenizer_of_mbart_puts_no_language_around_a_text(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, "mbart", 0)
    ready = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert ready.encode("cat").tokens[0] == "en_XX"
    actual = read_folder(tmp_path, "mbart", 400, first=(400, ready.token_to_id("ro_RO")))
    built = Tokenizer.from_str(actual.source.text)
    assert built.encode("cat").tokens == [*ready.encode("cat", add_special_tokens=False).tokens, "</s>"]
    assert actual.languages == {code: ready.token_to_id(code) for code in ("de_DE", "en_XX", "ro_RO")}
    assert (actual.language_style, actual.source_language, actual.target_language) == ("bart25", "", "ro_RO")


def test_bart_is_read_as_transformers_reads_it(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, "bart", 0)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BartTokenizer"}')
    actual = read_folder(tmp_path, "bart", len(vocabulary("bart")))
    theirs = transformers.BartTokenizer.from_pretrained(tmp_path)
    ours = Tokenizer.from_str(actual.source.text)
    for text in [*lines(count=50), *odd_lines(100)]:
        if not {"<s>", "</s>", "<unk>", "<mask>", "<pad>"} & {*text.split()}:
            assert ours.encode(text).ids == theirs(text)["input_ids"]
    assert (actual.languages, actual.language_style, actual.target) == ({}, "", None)


def test_ready_tokenizers_are_taken_as_they_are(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, "seq2seq", 0)
    source, target = (tmp_path / f"{side}_tokenizer.json" for side in ("source", "target"))
    actual = read_folder(tmp_path, "seq2seq", 300, 200)
    assert actual.target is not None
    for file, built in ((source, actual.source), (target, actual.target)):
        assert json.loads(built.text)["model"] == json.loads(file.read_text())["model"]
    source.rename(tmp_path / "tokenizer.json")
    assert read_folder(tmp_path, "seq2seq", 300, 200) == actual
    with pytest.raises(TokenizerError, match=r"^target_tokenizer\.json: ids beyond the 7 of the model"):
        read_folder(tmp_path, "seq2seq", 300, 7)
    target.unlink()
    assert read_folder(tmp_path, "seq2seq", 300, 200).target is None
    with pytest.raises(TokenizerError, match=r"^tokenizer\.json: ids beyond the 7 of the model"):
        read_folder(tmp_path, "seq2seq", 300, 7)


@pytest.mark.parametrize("dropped", [0.0, 0.2])
def test_ready_tokenizer_of_marian_goes_before_its_pieces(tmp_path: Path, dropped: float) -> None:
    folder = write_folder(tmp_path, languages=LANGUAGES, dropped=dropped)
    built = read(folder)
    (folder / "tokenizer.json").write_text(built.source.text, encoding="utf-8")
    (folder / "source.spm").unlink()
    actual = read(folder)
    assert (actual.source.text, actual.target) == (built.source.text, None)
    assert (actual.languages, actual.language_style) == (built.languages, "token")
    if dropped:
        with pytest.raises(TokenizerError, match=rf"^tokenizer\.json: ids beyond the {size(folder) + 1} of the model"):
            read_folder(folder, "marian", size(folder) + 1)


def test_nothing_to_read_is_named(tmp_path: Path) -> None:
    for model_type in ("bart", "mbart"):
        with pytest.raises(TokenizerError, match=r"tokenizer\.json and vocab\.txt are missing"):
            read_folder(tmp_path, model_type, 9)
