"""Tokenizers built from vocab.json and merges.txt give the ids and offsets that transformers gives."""

from __future__ import annotations

import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from edgebert.checkpoints.folder import CheckpointFolder
from edgebert.checkpoints.tokenizers.tokenizer_json import read_tokenizer
from edgebert.checkpoints.tokenizers.vocab_files import build_byte_level
from edgebert_runtime.errors import EdgebertError, TokenizerError
from tests.checkpoints.tokenizers.test_vocab_files import strings

SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
# The mask of published RoBERTas takes in the space before it, which newer transformers do only where it is written.
MASK = {"__type": "AddedToken", "content": "<mask>", "lstrip": True, "rstrip": False, "normalized": False}
SETTINGS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "class": {"tokenizer_class": "RobertaTokenizer", "trim_offsets": True},
    "prefix": {"tokenizer_class": "RobertaTokenizerFast", "add_prefix_space": True},
    "no trimming": {"trim_offsets": False},
}


def train(texts: list[str]) -> tuple[dict[str, int], list[list[str]]]:
    """Return the vocabulary and the merges that the library learns from texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], model["merges"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bytes")
    vocabulary, merges = train(strings(random.Random(8), 3000))
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges), ""]
    (folder / "merges.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.mark.parametrize("case", SETTINGS)
def test_ids_and_offsets_of_transformers(trained: Path, tmp_path: Path, case: str) -> None:
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).write_bytes((trained / name).read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"mask_token": MASK, **SETTINGS[case]}))
    ours = Tokenizer.from_str(read_tokenizer(CheckpointFolder.open(tmp_path), 900).text)
    theirs = transformers.RobertaTokenizer.from_pretrained(tmp_path)
    texts = [*strings(random.Random(9), 600), "a <mask> b", "a<mask>b", " <mask>", "<s>a</s>", "  two  spaces ", "\n"]
    texts += ["it's we'll I'm", "naïve café — Zürich", "日本語 テスト", "👩🏽‍🚀 🇩🇪!"]
    for text in texts:
        encoded = theirs(text, return_offsets_mapping=True)
        actual = ours.encode(text)
        assert (actual.ids, actual.offsets) == (encoded["input_ids"], encoded["offset_mapping"])
    texts = [text for text in texts if text]  # transformers takes an empty second text for none
    for first, second in zip(texts, reversed(texts), strict=True):
        encoded = theirs(first, second)
        actual = ours.encode(first, second)
        assert actual.ids == encoded["input_ids"]
        assert not any(actual.type_ids)


END = "<|endoftext|>"
GPT2: dict[str, dict[str, Any]] = {
    "nothing": {},
    "class": {
        "tokenizer_class": "GPT2Tokenizer",
        "bos_token": END,
        "eos_token": {**MASK, "content": END, "lstrip": False},
        "unk_token": END,
    },
    "prefix": {"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": True, "pad_token": END},
    "padding": {"pad_token": "<pad>", "eos_token": "</s>"},
}


def gpt2_files(trained: Path, folder: Path, added: dict[str, int] | None = None) -> Path:
    """Write the files of a GPT-2 into ``folder``, in whose vocabulary the end of the text comes last."""
    vocabulary = json.loads((trained / "vocab.json").read_text(encoding="utf-8"))
    (folder / "vocab.json").write_text(json.dumps({**vocabulary, END: 900}, ensure_ascii=False), encoding="utf-8")
    (folder / "merges.txt").write_bytes((trained / "merges.txt").read_bytes())
    if added:
        (folder / "added_tokens.json").write_text(json.dumps(added))
    return folder


@pytest.mark.parametrize("added", [None, {"<|user|>": 901, "<|bot|>": 902}])
@pytest.mark.parametrize("case", GPT2)
def test_ids_of_gpt2(trained: Path, tmp_path: Path, case: str, added: dict[str, int] | None) -> None:
    gpt2_files(trained, tmp_path, added)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(GPT2[case]))
    read = read_tokenizer(CheckpointFolder.open(tmp_path), 903, plain=True)
    assert read.notes == ()
    ours = Tokenizer.from_str(read.text)
    theirs = transformers.GPT2Tokenizer.from_pretrained(tmp_path)
    texts = [*strings(random.Random(12), 600), f"a{END}b", f" {END} ", "  two  spaces ", "\n\n", "it's we'll"]
    texts += ["naïve café — Zürich", "日本語 テスト", "👩🏽‍🚀 🇩🇪!", "a <|user|> b<|bot|>c", " <|bot|>"]
    for text in texts:
        encoded = theirs(text, return_offsets_mapping=True)
        actual = ours.encode(text)
        assert actual.ids == encoded["input_ids"]
        if case != "prefix":
            assert ours.decode(actual.ids, skip_special_tokens=False) == text


GPT2_FAULTS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "a token before each text": (
        {"tokenizer_config.json": '{"add_bos_token": true}'},
        ("tokenizer_config.json: add_bos_token asks", "save the tokenizer as tokenizer.json"),
    ),
    "a gap": (
        {"added_tokens.json": '{"<|a|>": 902}'},
        ("'<|a|>' has id 902, the tokenizer gives 901",),
    ),
    "no id": ({"added_tokens.json": '{"<|a|>": "x"}'}, ("added_tokens.json has ids that are none: '<|a|>': 'x'",)),
    "beyond the model": ({"added_tokens.json": '{"<|a|>": 901}'}, ("ids beyond the 901 of the model", "(901)")),
    "no padding": ({"tokenizer_config.json": '{"pad_token": "[PAD]"}'}, ("lacks '[PAD]', the pad_token",)),
    "no token": ({"tokenizer_config.json": '{"eos_token": 7}'}, ("eos_token=7 is not a token",)),
}


@pytest.mark.parametrize("fault", GPT2_FAULTS)
def test_faults_of_gpt2_are_named(trained: Path, tmp_path: Path, fault: str) -> None:
    changed, expected = GPT2_FAULTS[fault]
    for name, content in changed.items():
        (gpt2_files(trained, tmp_path) / name).write_text(content, encoding="utf-8")
    with pytest.raises(EdgebertError) as caught:
        read_tokenizer(CheckpointFolder.open(tmp_path), 901, plain=True)
    for part in expected:
        assert part in str(caught.value)


@pytest.mark.parametrize("plain", [False, True])
def test_class_goes_before_the_type_of_the_model(
    trained: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, plain: bool
) -> None:
    """A tokenizer that adds nothing is worth a remark where the model expects something, and nowhere else."""
    gpt2_files(trained, tmp_path)
    folder = CheckpointFolder.open(tmp_path)
    caplog.set_level(logging.INFO, "edgebert")
    for kind, added in ((None, 0 if plain else 2), ("GPT2Tokenizer", 0), ("RobertaTokenizer", 2)):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
        read = read_tokenizer(folder, 901, plain=plain)
        assert Tokenizer.from_str(read.text).num_special_tokens_to_add(False) == added
        assert caplog.messages == ([] if added or plain else ["vocab.json adds no special tokens to a text"])
        caplog.clear()


def test_mask_is_found(trained: Path) -> None:
    assert read_tokenizer(CheckpointFolder.open(trained), 900).mask_token == "<mask>"


def test_every_text_comes_back(trained: Path) -> None:
    """The builder without RoBERTa's special tokens: bytes in, bytes out."""
    vocabulary = json.loads((trained / "vocab.json").read_text(encoding="utf-8"))
    lines = (trained / "merges.txt").read_text(encoding="utf-8").splitlines()[1:]
    merges = [(first, second) for first, second in (line.split(" ") for line in lines)]
    tokenizer = build_byte_level(vocabulary, merges)
    for text in strings(random.Random(10), 300):
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


FAULTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "no merges": ({"merges.txt": None}, ("tokenizer.json is missing", "vocab.json and merges.txt are read together")),
    "no vocabulary": ({"vocab.json": None}, ("tokenizer.json is missing", "read together only", "save")),
    "not JSON": ({"vocab.json": "{"}, ("vocab.json is not valid JSON", "download it again")),
    "a list": ({"vocab.json": "[]"}, ("vocab.json should hold tokens and their ids, holds []",)),
    "empty": ({"vocab.json": "{}"}, ("vocab.json should hold tokens and their ids, holds {}",)),
    "ids that are none": (
        {"vocab.json": '{"a": "b", "c": -1, "d": true}'},
        ("ids that are none: 'a': 'b', 'c': -1, 'd'",),
    ),
    "special tokens": (
        {"vocab.json": '{"<s>": 0, "a": 1}'},
        ("vocab.json lacks the special tokens <pad>, </s>, <unk>",),
    ),
    "a line of one token": ({"merges.txt": "#version: 0.2\na b\nab\n"}, ("merges.txt: line 3 is 'ab' and not two",)),
    "a line of three": (
        {"merges.txt": "a b c"},
        ("merges.txt: line 1 is 'a b c' and not two tokens; save or download",),
    ),
    "other merges": ({"merges.txt": "zzz yyy"}, ("merges.txt does not fit vocab.json", "use the files")),
    "other class": (
        {"tokenizer_config.json": '{"tokenizer_class": "DebertaTokenizer"}'},
        ("tokenizer_config.json: 'DebertaTokenizer' cannot be built from vocab.json; save the tokenizer",),
    ),
    "no flag": (
        {"tokenizer_config.json": '{"add_prefix_space": 1}'},
        ("add_prefix_space=1 is neither true nor false",),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(trained: Path, tmp_path: Path, fault: str) -> None:
    changed, expected = FAULTS[fault]
    remaining = {name: (trained / name).read_text(encoding="utf-8") for name in ("vocab.json", "merges.txt")}
    for name, content in {**remaining, **changed}.items():
        if content is not None:
            (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(EdgebertError) as caught:
        read_tokenizer(CheckpointFolder.open(tmp_path), 900)
    for part in expected:
        assert part in str(caught.value)


@pytest.mark.parametrize("name", ["sentencepiece.bpe.model", "spiece.model"])
def test_sentencepiece_alone_is_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\n")
    with pytest.raises(TokenizerError, match=f"{name} alone is not read; save the tokenizer as tokenizer.json"):
        read_tokenizer(CheckpointFolder.open(tmp_path), 900)
