"""Tokenizers built from vocab.txt give the ids that transformers gives."""

from __future__ import annotations

import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer

from edgebert.checkpoints.folder import CheckpointFolder
from edgebert.checkpoints.tokenizers.tokenizer_json import TokenizerFile, read_tokenizer
from edgebert_runtime.errors import TokenizerError

SCRIPTS = {
    "latin": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "accents": "áàâäãåéèêëíîïñóôöõøúüçßÁÉÑÖÜİıŁł",
    "marks": "\u0301\u0308\u0327\u0303\u20dd\u093c",
    "greek": "αβγδεζηθικλμνξοπρσςτυφχψωΑΒΓΔΣΩάέή",
    "cyrillic": "абвгдеёжзийклмнопрстуфхцчшщъыьэюяАБВГДЁЖЙ",
    "arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهويءآأ",
    "hebrew": "אבגדהוזחטיכךלמםנןסעפףצץקרשת",
    "devanagari": "अआइईउऊकखगघचछजझटठडढतथदधनपफबभमयरलवशषसहािीुू",
    "chinese": "一丁七万丈三上下不中国人大学生日本語文字\u3400\uf900",
    "kana": "あいうえおかがきぎアイウエオカガキギー",
    "hangul": "가나다라마바사아자차각한국어",
    "thai": "กขคงจฉชซญฎฏฐณดตถทธนบปผฝพฟภมยรลวศษสหฬอะาิี",
    "digits": "0123456789٠١٢२३²½Ⅷ",
    "signs": ".,;:!?'\"()[]{}<>/\\|@#$%^&*-_=+~`–—…«»„“”’•§©€£°",
    "spaces": " \t\n\r\u00a0\u2009\u3000\u2028\u0085",
    "invisible": "\u0000\u0001\u007f\u200b\u200d\ufeff\u00ad\ufffd\ufe0f\U000e0041",
    "emoji": "😀🙂👩🏽🚀❤✨🇩🇪",
}
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SETTINGS: list[dict[str, Any]] = [
    {"do_lower_case": True},
    {"do_lower_case": False},
    {"do_lower_case": True, "strip_accents": False},
    {"do_lower_case": False, "strip_accents": True},
    {"do_lower_case": True, "tokenize_chinese_chars": False, "strip_accents": None},
]


def vocabulary(rng: random.Random) -> list[str]:
    """Return special tokens, and pieces of one to four letters of most scripts, some without their letters."""
    pieces = dict.fromkeys(SPECIALS)
    for letters in SCRIPTS.values():
        real = [letter for letter in letters if not letter.isspace() and rng.random() < 0.9]
        for length in range(1, 5):
            for _ in range(len(real) * 2):
                piece = "".join(rng.choices(real, k=length)) if real else ""
                pieces |= {piece: None, f"##{piece}": None} if piece else {}
    return list(pieces)


def strings(rng: random.Random, count: int) -> list[str]:
    """Return random strings, most of one script with signs and spaces, some with special tokens inside."""
    built = ["", " ", "a" * 101, "b" * 100, "[CLS] x [SEP]", "[mask]", "[MASK]", "x[PAD]y", "##a", "[UNK]a"]
    for _ in range(count):
        script = SCRIPTS[rng.choice(list(SCRIPTS))]
        mixed = script * 3 + SCRIPTS["signs"] + SCRIPTS["spaces"] * 2 + rng.choice(list(SCRIPTS.values()))
        text = "".join(rng.choices(mixed, k=rng.randrange(1, 40)))
        built.append(text if rng.random() < 0.9 else f"{text}{rng.choice(SPECIALS)}{text[:5]}")
    return built


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the vocabulary of a small BERT."""
    write_vocabulary(tmp_path, [*SPECIALS, "a", "b", "##a", "##b", "é", "e"])
    return tmp_path


def write_vocabulary(folder: Path, tokens: list[str], end: str = "\n") -> None:
    (folder / "vocab.txt").write_bytes("".join(f"{token}{end}" for token in tokens).encode())


def read(folder: Path, vocab_size: int | None = None, lowercase: bool = False) -> TokenizerFile:
    return read_tokenizer(CheckpointFolder.open(folder), vocab_size, lowercase)


def ids(file: TokenizerFile, text: str, pair: str | None = None) -> list[int]:
    return list(Tokenizer.from_str(file.text).encode(text, pair).ids)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_ids_are_those_of_transformers(tmp_path: Path, settings: dict[str, Any]) -> None:
    rng = random.Random(5)
    tokens, texts = vocabulary(rng), strings(rng, 2500)
    write_vocabulary(tmp_path, tokens)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **settings}))
    ours = Tokenizer.from_str(read(tmp_path, len(tokens)).text)
    reference = transformers.BertTokenizer.from_pretrained(tmp_path)
    expected = reference(texts)
    actual = ours.encode_batch(texts)
    assert [encoding.ids for encoding in actual] == expected["input_ids"]
    pairs = list(zip(texts[:500], texts[500:1000], strict=True))
    expected = reference(pairs)
    actual = ours.encode_batch(pairs)
    assert [encoding.ids for encoding in actual] == expected["input_ids"]
    assert [encoding.type_ids for encoding in actual] == expected["token_type_ids"]
    real = sum(len(set(encoding.ids) - {1, 2, 3}) for encoding in actual)
    assert real > 5000  # the strings do not all come out as unknown


def test_ready_tokenizer_equals_the_built_one(tmp_path: Path) -> None:
    rng = random.Random(6)
    tokens, texts = vocabulary(rng), strings(rng, 300)
    write_vocabulary(tmp_path, tokens)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    built = Tokenizer.from_str(read(tmp_path).text)
    transformers.BertTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path)
    assert (tmp_path / "tokenizer.json").exists()
    ready = Tokenizer.from_str(read(tmp_path).text)
    assert [e.ids for e in ready.encode_batch(texts)] == [e.ids for e in built.encode_batch(texts)]


def test_lines_may_end_as_on_windows(folder: Path) -> None:
    expected = ids(read(folder), "ab é")
    tokens = (folder / "vocab.txt").read_text(encoding="utf-8").split()
    (folder / "vocab.txt").write_bytes(b"\xef\xbb\xbf" + "\r\n".join([*tokens, "", ""]).encode())
    assert ids(read(folder, len(tokens)), "ab é") == expected


def test_empty_and_odd_lines_keep_their_ids(folder: Path) -> None:
    write_vocabulary(folder, [*SPECIALS, "", "\u2028", "x\u0085", "", "a"])
    assert Tokenizer.from_str(read(folder, 10).text).token_to_id("a") == 9


def ready(folder: Path) -> dict[str, Any]:
    """Return what tokenizer.json would hold for the vocabulary of the folder."""
    data: dict[str, Any] = json.loads(read(folder).text)
    return data


def test_presets_are_removed(folder: Path) -> None:
    plain = read(folder)
    tokenizer = Tokenizer.from_str(plain.text)
    tokenizer.enable_padding(length=128)
    tokenizer.enable_truncation(4)
    tokenizer.save(str(folder / "tokenizer.json"))
    assert ids(read(folder), "a b a b a") == ids(plain, "a b a b a")


def test_spelling_rules_of_tokenizer_config_are_followed(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = ready(folder)
    data["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(data))
    assert ids(read(folder), "A") == [2, 1, 3]
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer", "do_lower_case": true}')
    with caplog.at_level(logging.INFO, "edgebert"):
        file = read(folder)
    assert ids(file, "A") == [2, 5, 3]
    assert file.notes == ()
    assert any("lowercase=False" in line and "do_lower_case" in line for line in caplog.messages)
    assert transformers.AutoTokenizer.from_pretrained(folder)("A")["input_ids"] == [2, 5, 3]


def test_lower_case_first(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert ids(read(folder), "A É") == [2, 1, 1, 3]
    assert ids(read(folder, lowercase=True), "A É") == [2, 5, 9, 3]


@pytest.mark.parametrize("value", [None, 10**30, 1e30])
def test_endless_length_is_none(folder: Path, value: Any) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": value, "max_len": 9}))
    assert read(folder).model_max_length is None


@pytest.mark.parametrize("key", ["model_max_length", "max_len"])
@pytest.mark.parametrize("value", [True, "512", 512.0, 0, -1])
def test_senseless_length_is_refused(folder: Path, key: str, value: Any) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({key: value}))
    with pytest.raises(TokenizerError, match=f"tokenizer_config.json: {key}={value!r} is not a whole number of tokens"):
        read(folder)


def test_special_tokens_may_have_other_names(folder: Path) -> None:
    write_vocabulary(folder, ["<pad>", "<unk>", "<s>", "</s>", "a"])
    names = {"pad_token": "<pad>", "unk_token": {"content": "<unk>"}, "cls_token": "<s>", "sep_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**names, "mask_token": None}))
    assert ids(read(folder, 5), "a zz", "a") == [2, 4, 1, 3, 4, 3]
