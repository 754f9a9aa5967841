"""Models of SentencePiece, trained in a moment, and texts to try them on."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import hypothesis.strategies as st
import sentencepiece

LATIN = "the cat sat on a mat naïve café crème Ünïcode Straße hello world translate translation 2024 3.14 https://x.y"
LATIN += " ! ? ... < > a aa fra deu Ångström"
CYRILLIC = "Москва привет мир как дела я и в на он она кот сидел Ёж"
CHINESE = "北京 東京 日本語 大学 日 本 語 中文 こんにちは ガラス 한국어 안녕"
OTHERS = "السلام عليكم مرحبا नमस्ते दुनिया हिन्दी ήλιος 😀 🚀 👩🏽 שלום"
WORDS = f"{LATIN} {CYRILLIC} {CHINESE} {OTHERS}".split()
# White space, controls, marks, what normalization changes, what looks like a token, and what Unicode keeps free.
ODD = [
    *" \t\n\r\u3000\xa0\u200b\u2028\u2581\u2581<>12",
    *"e\u0301\u0302\u0323\u0338か\u3099\uff76\uff9e\u1100\u1161\u11a8",
]
ODD += [*"क\u093c\u200d\u0e33\x00\x01\x7f½ﬁ㌔ℵ☃\u0344\ufdd0\ufdd1\ue000\ufffd\U0001f9ff\U00016d67\U00016d63"]
ODD += ["  ", " \u2581", "\u2581 ", "<0x41>", "<s>", "</s>", "<unk>", "....", "aaaaa", "\ufdd01", "\r\n"]

letters = st.sampled_from(sorted({*"".join(WORDS)}))
texts = st.lists(
    st.one_of(st.sampled_from(WORDS), st.sampled_from(ODD), letters, st.characters(codec="utf-8")),
    max_size=12,
).flatmap(lambda parts: st.sampled_from(["", " "]).map(lambda space: space.join(parts)))


def lines(words: Sequence[str] = WORDS, count: int = 300, seed: int = 5) -> list[str]:
    """Return texts of some words."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(words, k=rng.randrange(1, 12))) for _ in range(count)]


def odd_lines(count: int, words: Sequence[str] = WORDS, seed: int = 6) -> list[str]:
    """Return texts of words and of what makes trouble, and of much of one thing."""
    rng = random.Random(seed)
    built = [
        "",
        " ",
        "\u2581",
        " \u2581 ",
        "\n",
        "\x01",
        "\x01 ",
        "a",
        "\u0301",
        "\u0301" * 9,
        "e\u0301\u0323" * 5,
        "\ufdd0",
    ]
    parts = [*words, *ODD, *ODD, " ", " "]
    while len(built) < count:
        built.append("".join(rng.choices(parts, k=rng.randrange(1, 9))))
        built.append(rng.choice(parts) * rng.randrange(1, 9) + rng.choice(parts))
        built.append("".join(rng.choices([*"".join(words), *ODD], k=rng.randrange(1, 14))))
    return built


@cache
def train(kind: str = "unigram", words: str = "", vocab_size: int = 320, **options: Any) -> bytes:
    """Return the model file of a model trained on a few hundred lines of ``words``, those of all scripts by default."""
    built = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines(words.split() or WORDS)),
        model_writer=built,
        model_type=kind,
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
        **{"character_coverage": 0.98, **options},
    )
    return built.getvalue()


def processor(data: bytes) -> sentencepiece.SentencePieceProcessor:
    """Return what SentencePiece makes of a model file."""
    return sentencepiece.SentencePieceProcessor(model_proto=data)


def equal(reference: sentencepiece.SentencePieceProcessor, ours: list[int], theirs: list[int]) -> bool:
    """Say whether two ways to take a text apart are one, or as good as each other.

    SentencePiece adds scores in 32 bits, so that which of two ways is the better may be a matter of rounding.
    """
    if ours == theirs:
        return True
    scores = [sum(map(reference.get_score, ids)) for ids in (ours, theirs)]
    rounding = 2**-22 * (len(theirs) + len(ours)) * max(1.0, *map(abs, scores))
    same = reference.decode(ours) == reference.decode(theirs)
    return same and abs(scores[0] - scores[1]) <= rounding


def field(number: int, value: int | float | str | bytes) -> bytes:
    """Return a field of a protobuf message: a whole number, four bytes, or a length and so many bytes."""
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    """Return a whole number in groups of seven bits."""
    built = bytearray()
    while value > 0x7F:
        built.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*built, value])


def piece(text: str | bytes, score: float = -1.0, kind: int = 1) -> bytes:
    """Return a piece of a model file."""
    return field(1, field(1, text) + field(2, score) + field(3, kind))


SPECIALS = piece("<unk>", 0.0, 2) + piece("<s>", 0.0, 3) + piece("</s>", 0.0, 3)


def model_file(*pieces: bytes, kind: int = 1, trainer: bytes = b"", normalizer: bytes = b"") -> bytes:
    """Return a model file by hand, of special tokens, ``a``, ``b``, the space, and ``pieces``."""
    real = SPECIALS + piece("a", -2.0) + piece("b", -3.0) + piece("\u2581", -4.0)
    return real + b"".join(pieces) + field(2, field(3, kind) + trainer) + field(3, normalizer)
