"""Whatever is wrong with a model file of SentencePiece is named, and nothing wrong with it does harm."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from edgebert.checkpoints.folder import CheckpointFolder
from edgebert.checkpoints.tokenizers.sentencepiece_bpe import find_merges
from edgebert.checkpoints.tokenizers.sentencepiece_model import BYTES_OF_TEXT, SentencePieces, read_sentencepieces
from edgebert_runtime.errors import EdgebertError, TokenizerError
from tests.checkpoints.tokenizers.spm_models import SPECIALS, equal, field, model_file, piece, processor, train
from tests.checkpoints.tokenizers.test_sentencepiece_conversion import load, write

SOUND = model_file()
AGAIN = "download it again"
BYTES = b"".join(piece(name, 0.0, 6) for name in BYTES_OF_TEXT)
DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", r"has no pieces"),
    "cut": (SOUND[:-3], r"is not a whole model file of SentencePiece"),
    "web page": (b"<!DOCTYPE html><p>404</p>", r"is a web page and not the file itself"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\n", r"is a Git LFS pointer .*git lfs pull"),
    "text": (b"hello, world", r"not a whole model file"),
    "huge length": (SPECIALS + b"\x0a\xff\xff\xff\xff\x0f", r"not a whole model file"),
    "endless number": (SPECIALS + b"\x0a" + b"\xff" * 11, r"not a whole model file"),
    "score of another type": (SPECIALS + field(1, field(1, "a") + field(2, 1)), r"wire type 0 where the schema has 5"),
    "piece of another type": (SPECIALS + field(1, 7), r"wire type 0 where the schema has 2"),
    "not UTF-8": (SPECIALS + piece(b"\xff"), r"no UTF-8"),
    "twice": (model_file(piece("a")), r"has pieces twice: 'a'"),
    "no unknown": (piece("a"), r"has 0 pieces for unknown text, one is needed"),
    "two unknown": (model_file(piece("<u>", 0.0, 2)), r"has 2 pieces for unknown text"),
    "no pieces": (SPECIALS, r"has no pieces"),
    "no text": (model_file(piece("")), r"has pieces that cannot be: ''"),
    "zero": (model_file(piece("x\0")), r"has pieces that cannot be: 'x\\x00'"),
    "not a number": (model_file(piece("x", float("nan"))), r"has scores that are no numbers: 'x': nan"),
    "endless": (model_file(piece("x", float("-inf"))), r"has scores that are no numbers"),
    "unknown type": (model_file(piece("x", -1.0, 9)), r"of the unknown types 9"),
    "unknown algorithm": (model_file(kind=7), r"unknown model_type 7"),
    "bytes missing": (model_file(trainer=field(35, 1)), r"has pieces for 0 bytes, byte_fallback=true"),
    "bytes unused": (model_file(BYTES), r"has pieces for 256 bytes, byte_fallback=false"),
    "no byte": (model_file(piece("<0xZZ>", 0.0, 6)), r"has pieces for 1 bytes"),
    "map": (model_file(normalizer=field(2, b"\1\2\3\4\5\6")), r"character map of 6 bytes is damaged"),
}
UNFIT: dict[str, tuple[bytes, str]] = {
    "words": (model_file(kind=3), "pieces are whole words"),
    "spaces": (model_file(normalizer=field(5, 0)), "escape_whitespaces is false"),
    "suffix": (model_file(trainer=field(24, 1)), "treat_whitespace_as_suffix is true"),
    "decoding": (model_file() + field(5, field(2, b"x")), "texts are normalized after decoding"),
    "scores": (model_file(piece("x", 0.5)), "scores are above 0"),
    "symbols": (model_file(piece("x", 0.0, 4), kind=2), "there are symbols beside merges"),
    "unused": (model_file(piece("x", 0.0, 5), kind=2), "there are unused pieces beside merges"),
    "characters": (model_file(piece("xy"), kind=2), "pieces hold characters that are none"),
    "space in a piece": (model_file(piece("x y")), "'x y' has a space"),
    "no character": (model_file(piece("\ufdd0")), "has a code point that is no character"),
    "control": (model_file(piece("[CLS]", 0.0, 3)), r"a text could give '\[CLS\]'"),
    "space in a symbol": (model_file(piece("x\u2581", 0.0, 4)), "has a space"),
    "same score": (
        model_file(piece("ab", -5.0), piece("ba", -5.0), kind=2),
        "merged have the same score: 'ab' and 'ba'",
    ),
    "long": (model_file(piece("a" * 9000), kind=2), "pieces are too long to be merged"),
}


@pytest.mark.parametrize("fault", DAMAGED)
def test_damage_is_named(tmp_path: Path, fault: str) -> None:
    data, message = DAMAGED[fault]
    with pytest.raises(TokenizerError, match=rf"^source\.spm.*{message}") as caught:
        load(write(tmp_path, data))
    assert "\n" not in str(caught.value)
    assert AGAIN in str(caught.value)


@pytest.mark.parametrize("fault", UNFIT)
def test_what_cannot_be_exact_is_refused(tmp_path: Path, fault: str) -> None:
    data, message = UNFIT[fault]
    with pytest.raises(TokenizerError, match=rf"^source\.spm: .*{message}.*; save the tokenizer as tokenizer\.json$"):
        load(write(tmp_path, data))


def test_symbol_that_the_map_changes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rules.tsv").write_text("61\t62\n")
    data = train(normalization_rule_tsv=str(tmp_path / "rules.tsv"), user_defined_symbols="cat")
    with pytest.raises(TokenizerError, match=r"its character map makes 'cbt' of the symbol 'cat'"):
        load(write(tmp_path, data))


def test_file_has_a_limit(tmp_path: Path) -> None:
    with (tmp_path / "source.spm").open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(EdgebertError, match=r"source\.spm has 67108865 bytes, at most 67108864 are read"):
        read_sentencepieces(CheckpointFolder.open(tmp_path), "source.spm")


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_damaged_bytes_are_an_error_of_ours_or_harmless(tmp_path: Path, kind: str) -> None:
    rng = random.Random(2)
    data = train(kind, vocab_size=120, normalization_rule_name="identity")
    refused = 0
    for number in range(300):
        damaged = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 20])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            tokenizer = load(write(tmp_path, bytes(damaged[: rng.choice([len(damaged), number * 7])])))
            actual = tokenizer.encode("the cat ☃ привет").ids
        except EdgebertError:
            refused += 1
            continue
        assert max(actual) < tokenizer.get_vocab_size()
    assert 50 < refused < 300


def test_models_by_hand_are_followed(tmp_path: Path) -> None:
    for extra, kind in (
        ([piece("ab", -1.0), piece("unused", -0.5, 5), piece("bb", -0.25, 5)], 1),
        ([piece("xy", -1.0), piece("ayb", -2.5)], 1),  # x and y are no pieces themselves
        ([piece("aa", -1.0), piece("aaa", -2.0), piece("ba", -3.0), piece("bba", -9.0), piece("aab", -4.0)], 2),
        ([piece("<", -5.0), piece("</", -6.0), piece("<0x41>", -1.0), piece("0x41", -2.0)], 1),
    ):
        data = model_file(*extra, kind=kind)
        ours, theirs = load(write(tmp_path, data)), processor(data)
        rng = random.Random(1)
        for _ in range(2000):
            text = "".join(rng.choices([*"aaabbb xy<", "</s>", "<0x41>", "unused"], k=rng.randrange(12)))
            assert equal(theirs, ours.encode(text, add_special_tokens=False).ids, theirs.encode(text)), text


def test_merges_are_those_that_happen() -> None:
    # Of "abc", "bc" is merged first, so "ab" + "c" never is; "cd" cannot be made of what "bcd" is made of.
    scores = {"a": -9.0, "b": -9.0, "c": -9.0, "d": -9.0, "bc": -1.0, "ab": -2.0, "abc": -3.0, "bcd": -4.0, "dd": -5.0}
    assert find_merges(scores) == {
        "bc": ("b", "c"),
        "ab": ("a", "b"),
        "abc": ("a", "bc"),
        "bcd": ("bc", "d"),
        "dd": ("d", "d"),
    }
    assert find_merges({"a": 0.0, "b": 0.0, "ab": -1.0, "xyz": -2.0}) == {"ab": ("a", "b")}


def test_sound_file_is_read(tmp_path: Path) -> None:
    model = write(tmp_path, model_file(BYTES, trainer=field(35, 1), normalizer=field(3, 0)))
    assert isinstance(model, SentencePieces)
    assert (model.algorithm, model.byte_fallback, model.add_dummy_prefix) == ("unigram", True, False)
    assert len(model.pieces) == 3 + 3 + 256
    assert load(model).encode("é", add_special_tokens=False).tokens == ["<0xC3>", "<0xA9>"]
