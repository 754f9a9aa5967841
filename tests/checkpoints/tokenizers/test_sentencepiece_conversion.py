"""Tokenizers built from model files of SentencePiece give what SentencePiece gives."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from tokenizers import Tokenizer

from edgebert.checkpoints.folder import CheckpointFolder
from edgebert.checkpoints.tokenizers.sentencepiece_conversion import build_tokenizer
from edgebert.checkpoints.tokenizers.sentencepiece_model import CONTROL, UNKNOWN, SentencePieces, read_sentencepieces
from edgebert.checkpoints.tokenizers.vocabulary import Vocabulary
from edgebert_runtime.errors import TokenizerError
from tests.checkpoints.tokenizers.spm_models import equal, lines, odd_lines, processor, texts, train

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"{kind} {rules}{' bytes' * fallback}": (
            kind,
            {
                "normalization_rule_name": rules,
                "byte_fallback": fallback,
                "vocab_size": 600 if fallback else 320,
            },
        )
        for kind in ("unigram", "bpe")
        for rules in ("nmt_nfkc", "nfkc", "identity")
        for fallback in (False, True)
    },
    "characters": ("char", {"vocab_size": 100}),
    "characters bytes": ("char", {"vocab_size": 400, "byte_fallback": True}),
    "no prefix": ("unigram", {"add_dummy_prefix": False}),
    "spaces kept": ("unigram", {"remove_extra_whitespaces": False}),
    "spaces kept, no prefix": ("bpe", {"remove_extra_whitespaces": False, "add_dummy_prefix": False}),
    "pieces over spaces": ("unigram", {"split_by_whitespace": False}),
    "pieces over spaces, bpe": ("bpe", {"split_by_whitespace": False}),
    "symbols of the user": ("unigram", {"user_defined_symbols": "<2fr>,@@x,cat"}),
    "other control symbols": ("unigram", {"control_symbols": "<ctl>"}),
}


def write(folder: Path, data: bytes) -> SentencePieces:
    """Read a model file."""
    (folder / "source.spm").write_bytes(data)
    return read_sentencepieces(CheckpointFolder.open(folder), "source.spm")


def plain(model: SentencePieces) -> Vocabulary:
    """Return the vocabulary in which pieces have the ids of SentencePiece."""
    specials = [piece.text for piece in model.pieces if piece.kind in (CONTROL, UNKNOWN)]
    return Vocabulary([piece.text for piece in model.pieces], len(model.pieces), model.unknown, "</s>", specials)


def load(model: SentencePieces) -> Tokenizer:
    """Return a tokenizer for which a text is only text."""
    tokenizer = Tokenizer.from_str(json.dumps(build_tokenizer(model, plain(model))))
    tokenizer.encode_special_tokens = True
    return tokenizer


@pytest.fixture(scope="module", params=MODELS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Tokenizer]:
    """Return SentencePiece with a model, and our tokenizer for it."""
    kind, options = MODELS[request.param]
    data = train(kind, **options)
    return processor(data), load(write(tmp_path_factory.mktemp("spm"), data))


def assert_equal(pair: tuple[Any, Tokenizer], text: str) -> None:
    theirs, ours = pair
    expected, actual = theirs.encode(text), ours.encode(text, add_special_tokens=False).ids
    assert equal(theirs, actual, expected), (text, theirs.id_to_piece(expected), theirs.id_to_piece(actual))
    real = [index for index in expected if index != theirs.unk_id()]
    assert ours.decode(expected, skip_special_tokens=True) == theirs.decode(real).strip()


def test_ids_and_texts_are_those_of_sentencepiece(pair: tuple[Any, Tokenizer]) -> None:
    for text in odd_lines(300):
        assert_equal(pair, text)
    theirs, ours = pair
    for text in lines(count=150, seed=8):
        assert ours.encode(text, add_special_tokens=False).ids == theirs.encode(text)


@settings(max_examples=30, deadline=None)
@given(text=texts)
def test_any_text_gives_the_same(pair: tuple[Any, Tokenizer], text: str) -> None:
    assert_equal(pair, text)


@pytest.fixture(scope="module")
def spaced(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Return our tokenizer of an ordinary model."""
    return load(write(tmp_path_factory.mktemp("spm"), train(normalization_rule_name="nmt_nfkc")))


def test_no_text_gives_a_special_token(pair: tuple[Any, Tokenizer]) -> None:
    theirs, ours = pair
    hidden = {i for i in range(theirs.vocab_size()) if theirs.is_control(i)}
    for text in ("</s>", "<s> a </s>", "a</s>b", "<ctl>", "<pad>", "<unk>", "<unknown pieces>", "<\ufdd00\ufdd0>"):
        assert hidden.isdisjoint(ours.encode(text, add_special_tokens=False).ids)
    assert ours.encode("the cat").ids[-1] == theirs.eos_id()
    assert ours.encode("the cat", "sat").ids == [*theirs.encode("the cat"), *theirs.encode("sat"), theirs.eos_id()]


@pytest.mark.parametrize("part", [" ", "a", "<", "\u0301", "e\u0301", "☃", "\n", "\u2581", " a", "\ufdd0", "が", "हि"])
def test_time_grows_with_the_length_of_a_text(spaced: Tokenizer, part: str) -> None:
    def seconds(count: int) -> float:
        start = time.process_time()
        spaced.encode(f"a{part * count}a", add_special_tokens=False)
        return time.process_time() - start

    seconds(10)
    assert seconds(40_000) < 20  # of CPU time; in the square of the length it would be minutes


def test_a_tokenizer_that_differs_from_sentencepiece_is_refused(tmp_path: Path) -> None:
    model = write(tmp_path, train())
    longest = max(range(len(model.pieces)), key=lambda index: len(model.pieces[index].text))
    model.pieces[longest] = model.pieces[longest]._replace(text="quick")  # which the file does not have
    with pytest.raises(
        TokenizerError, match=r"^source\.spm: .* differs from SentencePiece: 'The quick .*, should have"
    ):
        build_tokenizer(model, plain(model))


def test_the_library_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write(tmp_path, train())
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(
        TokenizerError, match=r"^source\.spm .* without sentencepiece; pip install \"edgebert\[export\]\"$"
    ):
        build_tokenizer(model, plain(model))
