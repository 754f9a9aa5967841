"""The tokenizer of a bundle gives the ids that the files of its checkpoint ask for, or there is no bundle."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer, normalizers

from edgebert.checkpoints.folder import CheckpointFolder
from edgebert.checkpoints.tokenizers.text_reference import FileReference, PlainReference
from edgebert.checkpoints.tokenizers.tokenizer_json import read_tokenizer
from edgebert_exporters import export_checkpoint, verify_bundle
from edgebert_exporters.verification.tokenizer_parity import check_texts
from edgebert_runtime import Bundle
from edgebert_runtime.errors import ParityError
from edgebert_runtime.inputs.tokenizer import ModelTokenizer
from tests.support.tiny import write_checkpoint
from tests.support.tiny_tokenizers import unigram, vocabulary

CLASSES = {"bert": "BertTokenizer", "roberta": "RobertaTokenizer", "gpt2": "GPT2Tokenizer"}
AGAINST = {"bert": "vocab.txt", **dict.fromkeys(("roberta", "gpt2"), "vocab.json and merges.txt")}
# Ways to declare a token of one's own; {} is none.
SETTINGS: list[dict[str, Any]] = [
    {},
    {"extra_special_tokens": ["<|user|>"]},
    {"added_tokens_decoder": {"SIZE": {"content": "new-word", "lstrip": True, "rstrip": True, "normalized": False}}},
    {"added_tokens_decoder": {"SIZE": {"content": "Word", "single_word": True, "normalized": True}}},
    {"add_prefix_space": True, "do_lower_case": False},
    {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False},
]
DIFFERS = r"the tokenizer differs from vocab\.\w+.*: ['\"].* has the ids \[.*, should have"
Change = Callable[[dict[str, Any]], object]


def folder_of(tmp_path: Path, name: str, settings: dict[str, Any]) -> tuple[Path, int]:
    """Write a checkpoint with a row of embeddings to spare; return it with the number of rows."""
    size = len(vocabulary(name))
    task = "generate" if name == "gpt2" else "embed"
    folder = write_checkpoint(tmp_path / name, model_type=name, task=task, vocab_size=size + 1)
    for file in ("vocab.txt", "vocab.json"):
        if (folder / file).exists():
            text = (folder / file).read_text(encoding="utf-8")
            tokens = text.replace("[unused0]\n", "") if file == "vocab.txt" else json.loads(text)
            tokens = tokens if isinstance(tokens, str) else {token: id for token, id in tokens.items() if id < size}
            (folder / file).write_text(tokens if isinstance(tokens, str) else json.dumps(tokens), encoding="utf-8")
    text = json.dumps({"tokenizer_class": CLASSES[name], **settings}).replace('"SIZE"', f'"{size}"')
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
    return folder, size + 1


def loaded(tmp_path: Path, text: str, size: int) -> ModelTokenizer:
    """Return a tokenizer as engines load it."""
    (tmp_path / "built.json").write_text(text, encoding="utf-8")
    return ModelTokenizer.load(tmp_path / "built.json", size)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: ",".join(settings) or "none")
@pytest.mark.parametrize("name", CLASSES)
def test_plain_tokenizers_give_what_transformers_gives(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    folder, size = folder_of(tmp_path, name, settings)
    file = read_tokenizer(CheckpointFolder.open(folder), size, plain=name == "gpt2")
    assert isinstance(file.reference, PlainReference)
    assert file.reference.against == AGAINST[name]
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    texts = list(file.reference.texts())
    for text in texts:
        assert file.reference.ids(text, True) == theirs.encode(text, add_special_tokens=False), text
        plain = theirs.encode(text, add_special_tokens=False, split_special_tokens=True)
        assert file.reference.ids(text, False) == plain, text
    assert check_texts(loaded(tmp_path, file.text, size), file.reference) == len(texts) > 200


def replace(path: str, value: Any) -> Change:
    """Return a change of one place of a tokenizer.json."""

    def change(data: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        for key in parents:
            data = data[key]
        data[last] = value

    return change


def swap(first: str, second: str) -> Change:
    """Return a change that gives two tokens each other's id."""

    def change(data: dict[str, Any]) -> None:
        vocab = data["model"]["vocab"]
        vocab[first], vocab[second] = vocab[second], vocab[first]

    return change


def flag(token: str, name: str, value: bool) -> Change:
    """Return a change of a flag of an added token."""

    def change(data: dict[str, Any]) -> None:
        (entry,) = (entry for entry in data["added_tokens"] if entry["content"] == token)
        entry[name] = value

    return change


def without(token: str) -> Change:
    """Return a change that drops an added token."""

    def change(data: dict[str, Any]) -> None:
        data["added_tokens"] = [entry for entry in data["added_tokens"] if entry["content"] != token]

    return change


MUTANTS: list[tuple[str, Change]] = [
    ("bert", replace("normalizer.lowercase", False)),
    ("bert", replace("normalizer.strip_accents", False)),
    ("bert", replace("normalizer.handle_chinese_chars", False)),
    ("bert", replace("normalizer.clean_text", False)),
    ("bert", replace("pre_tokenizer", {"type": "WhitespaceSplit"})),
    ("bert", replace("model.max_input_chars_per_word", 200)),
    ("bert", swap("cat", "dog")),
    ("bert", swap("##s", "##t")),
    ("bert", without("[MASK]")),
    ("bert", flag("[SEP]", "special", False)),
    ("bert", flag("[SEP]", "single_word", True)),
    ("roberta", replace("pre_tokenizer.add_prefix_space", True)),
    ("roberta", replace("pre_tokenizer", {"type": "Metaspace", "replacement": "Ġ", "prepend_scheme": "never"})),
    ("roberta", replace("model.merges", [])),
    ("roberta", swap("Ġthe", "Ġc")),
    ("roberta", flag("<mask>", "rstrip", True)),
    ("roberta", without("</s>")),
    ("gpt2", without("<|endoftext|>")),
    ("gpt2", replace("normalizer", {"type": "Lowercase"})),
]


@pytest.mark.parametrize(("name", "change"), MUTANTS, ids=range(len(MUTANTS)))
def test_a_tokenizer_that_differs_is_no_bundle(name: str, change: Change, tmp_path: Path) -> None:
    folder, size = folder_of(tmp_path, name, {})
    file = read_tokenizer(CheckpointFolder.open(folder), size, plain=name == "gpt2")
    assert file.reference is not None
    data = json.loads(file.text)
    change(data)
    with pytest.raises(ParityError, match=DIFFERS):
        check_texts(loaded(tmp_path, json.dumps(data), size), file.reference)


def test_a_changed_file_is_compared_as_it_stands(tmp_path: Path) -> None:
    theirs = unigram(vocabulary("xlm-roberta"), "xlm-roberta")
    size = theirs.get_vocab_size() + 1
    theirs.enable_truncation(8)
    theirs.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"model_type": "xlm-roberta"}')
    folder = CheckpointFolder.open(tmp_path)
    assert read_tokenizer(folder, size).reference is None
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"extra_special_tokens": ["<|user|>"]}))
    file = read_tokenizer(folder, size)
    assert isinstance(file.reference, FileReference)
    assert check_texts(loaded(tmp_path, file.text, size), file.reference) > 200
    for change in (without("<|user|>"), replace("pre_tokenizer", None), flag("<mask>", "lstrip", False)):
        data = json.loads(file.text)
        change(data)
        with pytest.raises(ParityError, match=r"differs from tokenizer\.json"):
            check_texts(loaded(tmp_path, json.dumps(data), size), file.reference)
    lowercase = read_tokenizer(folder, size, lowercase=True)
    assert lowercase.reference is not None
    check_texts(loaded(tmp_path, lowercase.text, size), lowercase.reference)
    with pytest.raises(ParityError):
        check_texts(loaded(tmp_path, file.text, size), lowercase.reference)


def test_spelling_rules_of_other_files_are_followed(tmp_path: Path) -> None:
    folder, size = folder_of(tmp_path, "bert", {})
    built = read_tokenizer(CheckpointFolder.open(folder), size)
    (folder / "tokenizer.json").write_text(built.text, encoding="utf-8")
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    file = read_tokenizer(CheckpointFolder.open(folder), size)
    assert isinstance(file.reference, PlainReference)
    assert check_texts(loaded(tmp_path, file.text, size), file.reference) > 200
    with pytest.raises(ParityError, match=r"tokenizer\.json"):
        check_texts(loaded(tmp_path, built.text, size), file.reference)


def test_export_and_verify_compare_texts(checkpoint: Path, fp32_bundle: Path, tmp_path: Path) -> None:
    expected = Bundle.open(fp32_bundle).manifest.verification["tokenizer"]
    assert expected["against"] == "vocab.txt"
    assert expected["texts"] > 200
    assert verify_bundle(fp32_bundle, checkpoint)["reference"]["tokenizer"] == expected
    changed = shutil.copytree(checkpoint, tmp_path / "changed")
    lines = (changed / "vocab.txt").read_text(encoding="utf-8").replace("\nthe\ncat\n", "\ncat\nthe\n")
    (changed / "vocab.txt").write_text(lines, encoding="utf-8")
    with pytest.raises(ParityError, match=r"the tokenizer differs from vocab\.txt"):
        verify_bundle(fp32_bundle, changed)


def test_a_wrong_tokenizer_stops_the_export(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgebert.checkpoints.tokenizers.tokenizer_json.add_tokens", spoil)
    with pytest.raises(ParityError, match=r"the tokenizer differs from vocab\.txt"):
        export_checkpoint(checkpoint, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def spoil(tokenizer: Tokenizer, *_: object) -> None:
    """Give a tokenizer other spelling rules."""
    tokenizer.normalizer = normalizers.Lowercase()


def test_pieces_are_compared_with_sentencepiece(translator_bundle: Callable[..., Path]) -> None:
    assert "tokenizer" not in Bundle.open(translator_bundle("cpu")).manifest.verification  # a tokenizer.json as it is
