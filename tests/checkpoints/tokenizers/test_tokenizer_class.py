"""The class of a tokenizer, and whether texts are put in lower case: as transformers reads them, or said."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer

from edgebert.checkpoints.folder import CheckpointFolder
from edgebert.checkpoints.tokenizers.tokenizer_json import TokenizerFile, read_tokenizer
from edgebert_runtime.errors import TokenizerError

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, *"harbor Harbor ships cafe café frozen frözen Frözen 中 中the the ##中 ##the".split()]
TEXT = "Harbor ships Frözen 中the中 café"


def write(folder: Path, **files: Any) -> CheckpointFolder:
    """Write files, whose names have __ for a dot, and open the folder."""
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return CheckpointFolder.open(folder)


def ids(file: TokenizerFile, text: str = TEXT) -> list[int]:
    """Return the ids that a tokenizer gives."""
    result: list[int] = Tokenizer.from_str(file.text).encode(text).ids
    return result


@pytest.mark.parametrize("saved_lower", [True, False])
@pytest.mark.parametrize("class_in", ["tokenizer_config.json", "config.json", "neither"])
@pytest.mark.parametrize("model_type", ["bert", "distilbert", "electra"])
def test_a_ready_tokenizer_follows_its_settings(
    model_type: str, class_in: str, saved_lower: bool, tmp_path: Path
) -> None:
    vocabulary = {word: id for id, word in enumerate(WORDS)}
    saved = transformers.BertTokenizer(vocab=vocabulary, do_lower_case=saved_lower).backend_tokenizer.to_str()
    name = {"tokenizer_class": "BertTokenizer"}
    for lower, accents, chinese in itertools.product((True, False), ({}, True, False), ({}, False)):
        settings = {"do_lower_case": lower, **(name if class_in == "tokenizer_config.json" else {})}
        settings |= {"strip_accents": accents} if accents != {} else {}
        settings |= {"tokenize_chinese_chars": chinese} if chinese != {} else {}
        config = {"model_type": model_type, **(name if class_in == "config.json" else {})}
        folder = write(tmp_path, tokenizer__json=saved, tokenizer_config__json=settings, config__json=config)
        assert ids(read_tokenizer(folder, None)) == transformers.AutoTokenizer.from_pretrained(tmp_path)(TEXT).input_ids


def test_a_cased_tokenizer_without_settings_stays_cased_and_says_so(tmp_path: Path) -> None:
    vocabulary = {word: id for id, word in enumerate(WORDS)}
    saved = transformers.BertTokenizer(vocab=vocabulary, do_lower_case=False).backend_tokenizer.to_str()
    file = read_tokenizer(write(tmp_path, tokenizer__json=saved, config__json={"model_type": "bert"}), None)
    assert ids(file) == Tokenizer.from_str(saved).encode(TEXT).ids
    assert file.notes == (
        "tokenizer_config.json does not say do_lower_case: transformers 5 takes true, this bundle false, as "
        "tokenizer.json has it",
    )


@pytest.mark.parametrize("words", [list("ACDEFGHIKLMNPQRSTVWY"), ["Paris", "Berlin", "the", "of", "A"]])
def test_a_vocabulary_with_upper_case_is_not_put_in_lower_case(words: list[str], tmp_path: Path) -> None:
    file = read_tokenizer(write(tmp_path, vocab__txt="\n".join([*SPECIAL, *words])), None)
    assert ids(file, " ".join(words))[1:-1] == list(range(5, 5 + len(words)))
    assert any("this bundle false, as vocab.txt has words in upper case" in note for note in file.notes)


def test_a_vocabulary_in_lower_case_is_read_as_transformers_reads_it(tmp_path: Path) -> None:
    words = ["[unused0]", "<S>", "paris", "berlin", "the"]
    folder = write(tmp_path, vocab__txt="\n".join([*SPECIAL, *words]) + "\n", config__json={"model_type": "bert"})
    file = read_tokenizer(folder, None)
    assert ids(file, "Paris THE") == transformers.AutoTokenizer.from_pretrained(tmp_path)("Paris THE").input_ids
    assert file.notes == ()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config__json": {"tokenizer_class": "BertJapaneseTokenizer"}}, "config.json: 'BertJapaneseTokenizer' cannot"),
        (
            {"tokenizer_config__json": {"word_tokenizer_type": "mecab"}},
            "tokenizer_config.json: word_tokenizer_type='mecab' splits texts in a way that cannot be built",
        ),
        (
            {"tokenizer_config__json": {"subword_tokenizer_type": "character"}},
            "tokenizer_config.json: subword_tokenizer_type='character' splits texts",
        ),
    ],
)
def test_a_tokenizer_of_another_kind_is_refused(files: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = write(tmp_path, vocab__txt="\n".join(WORDS), **files)
    with pytest.raises(TokenizerError) as error:
        read_tokenizer(folder, None)
    assert message in str(error.value)
