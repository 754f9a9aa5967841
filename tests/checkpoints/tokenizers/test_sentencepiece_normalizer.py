"""Normalizers rendered from the character maps of SentencePiece give the same text."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tokenizers import normalizers

from edgebert.checkpoints.tokenizers.sentencepiece_model import parse_model
from edgebert.checkpoints.tokenizers.sentencepiece_normalizer import decode, render
from edgebert_runtime.errors import TokenizerError
from tests.checkpoints.tokenizers.spm_models import processor, train

PLAIN = {"add_dummy_prefix": False, "remove_extra_whitespaces": False}


RULES = [
    *(("ab", "X"), ("abc", "Yy"), ("c", "dd"), ("e\u0301", "\u00e9"), ("cat", ""), ("ba", "b a"), ("\u0301", "'")),
    *(("aa", "a"), ("z", " "), ("A", "a"), ("\u0340", "!"), ("\u1161", "ab")),
]


def character_map(data: bytes) -> bytes:
    """Return the character map of a model file."""
    return parse_model("rules.spm", data).character_map


class Pair:
    """What SentencePiece and our normalizers make of a text."""

    def __init__(self, rules: str, **options: Any) -> None:
        data = train(normalization_rule_name=rules, **PLAIN, **options)
        self.map = character_map(data)
        self.rules = decode(self.map)
        self.ours: Callable[[str], str] = normalizers.Sequence(list(render(self.map, ""))).normalize_str
        self.processor = processor(data)
        first, later = ({key[place] for key in self.rules.sequences} for place in (0, -1))
        some = list(self.rules.sequences)[:: 1 + len(self.rules.sequences) // 2000]
        # Characters and sequences that the map treats differently.
        self.known = [part for part in (sorted(self.rules.single), sorted(first), sorted(later), some) if part]
        self.texts = st.lists(
            st.one_of(*map(st.sampled_from, self.known), st.characters(codec="utf-8")), max_size=12
        ).map("".join)

    def theirs(self, text: str) -> str:
        """Return what SentencePiece makes of a text; what it has for a space is one again."""
        built: str = self.processor.normalize(text)
        return built.replace("\u2581", " ")

    def check(self, text: str) -> None:
        text = text.replace("\u2581", " ")
        assert self.ours(text) == self.theirs(text)


@pytest.fixture(scope="module", params=["nmt_nfkc", "nfkc"])
def pair(request: pytest.FixtureRequest) -> Pair:
    """Return a map that SentencePiece has."""
    return Pair(request.param)


def written(folder: Path, rules: Sequence[tuple[str, str]]) -> str:
    """Write rules of a user as the trainer reads them."""
    lines = ["\t".join(" ".join(f"{ord(letter):X}" for letter in part) for part in rule) for rule in rules]
    (folder / "rules.tsv").write_text("\n".join([*lines, ""]))
    return str(folder / "rules.tsv")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Return a map of a few rules of a user, among them some that begin alike."""
    return Pair("identity", normalization_rule_tsv=written(tmp_path_factory.mktemp("rules"), RULES))


def test_every_character_becomes_what_it_becomes_there(pair: Pair) -> None:
    codes = [*range(1, 0xD800), *range(0xE000, 0x20000), *range(0x2F800, 0x2FA20), *range(0xE0000, 0xE0200)]
    for start in range(0, len(codes), 5000):
        pair.check(" x ".join(map(chr, codes[start : start + 5000])))
    assert len(pair.rules.single) > 4000
    assert len(pair.rules.sequences) > 200_000


def test_sequences_of_what_the_map_knows_are_put_together_alike(pair: Pair) -> None:
    rng = random.Random(3)
    for _ in range(4000):
        chosen = [rng.choice(rng.choice(pair.known)) for _ in range(rng.randrange(1, 9))]
        pair.check("".join(chosen) + rng.choice(["", " ", "a", "\u0323", "\r\n", "\ufdd0", "\ufdd01", "\u200d"]))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_sequence_is_put_together_alike(pair: Pair, data: st.DataObject) -> None:
    pair.check(data.draw(pair.texts))


@settings(max_examples=100, deadline=None)
@given(text=st.one_of(st.text("abcetz\u0301\u0340A ", max_size=12), st.text(max_size=6)))
def test_rules_of_the_user_are_followed(own: Pair, text: str) -> None:
    own.check(text)


def test_map_does_something(pair: Pair) -> None:
    assert pair.ours("ｶﾞ ﬁ e\u0301 \u1112\u1161\u11ab \u00bd") == "ガ fi é 한 1⁄2"
    assert pair.ours("e\u0302\u0323 ｅ\u0301") == "ê\u0323 é"  # NFKC would reorder the marks of the first


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([(f"a{chr(0x100 + i)}", "b") for i in range(99)], "of 99 sequences 99 are not those of Unicode"),
        ([("a", "b  c")], "it puts 'b  c'"),
        ([("a", "\ufdd0")], r"it puts '\\ufdd0'"),
        ([("1a", "b")], "it replaces '1'"),
    ],
)
def test_what_cannot_be_followed_is_refused(tmp_path: Path, rules: list[tuple[str, str]], message: str) -> None:
    data = train(normalization_rule_tsv=written(tmp_path, rules))
    with pytest.raises(
        TokenizerError, match=rf"followed exactly \({message}.*\); save the tokenizer as tokenizer.json"
    ):
        render(character_map(data))


def test_damaged_maps_are_refused_or_harmless(own: Pair) -> None:
    rng = random.Random(4)
    data = own.map
    for start in (b"", b"\0", data[:4], data[:1000], struct.pack("<I", 1 << 31) + data[4:], data[:-1] + b"x"):
        with pytest.raises(TokenizerError, match=r"damaged.*download it again"):
            decode(start)
    refused = 0
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(rng.choice([1, 20, 200])):
            damaged[rng.randrange(4, len(damaged))] = rng.randrange(256)
        try:
            steps = render.__wrapped__(bytes(damaged))  # none of these is to be remembered
            normalizers.Sequence(list(steps)).normalize_str("abcatz e\u0301")
        except TokenizerError as error:
            refused += len(str(error)) > 20
    assert 100 < refused < 300
