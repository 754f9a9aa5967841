"""Pieces of text join to the whole text, and end at no place that a later token could change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, trainers

from edgebert_runtime.generation import Hypothesis, TextStream, read_text
from edgebert_runtime.generation.text_streamer import first_of, longest_partial_stop

TEXT = "the cat sat on the mat, and the dog isn't barking at 12:30! naïve café 日本語 漢字 a😃é漢 👩‍👩‍👧 don't stop."


def trained(model: Any, pre: Any, decoder: Any, trainer: Any) -> tokenizers.Tokenizer:
    """Return a tokenizer that has seen one line."""
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre, decoder
    tokenizer.train_from_iterator([TEXT] * 3, trainer)
    return tokenizer


ALPHABET = pre_tokenizers.ByteLevel.alphabet()
QUIET: dict[str, Any] = {"show_progress": False}
TOKENIZERS = {
    "byte-level": trained(
        models.BPE(),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
        trainers.BpeTrainer(vocab_size=300, initial_alphabet=ALPHABET, **QUIET),
    ),
    "wordpiece": trained(
        models.WordPiece(unk_token="[UNK]"),
        pre_tokenizers.BertPreTokenizer(),
        decoders.WordPiece(cleanup=True),
        trainers.WordPieceTrainer(vocab_size=120, special_tokens=["[UNK]"], **QUIET),
    ),
    "unigram": trained(
        models.Unigram(),
        pre_tokenizers.Metaspace(),
        decoders.Metaspace(),
        trainers.UnigramTrainer(vocab_size=120, special_tokens=["<unk>"], unk_token="<unk>", **QUIET),
    ),
}
Decode = Callable[[Sequence[int]], str]


def decoder_of(name: str) -> Decode:
    """Return what turns ids into text."""
    inner = TOKENIZERS[name]
    return lambda ids: str(inner.decode(list(ids), skip_special_tokens=True))


def pieces_of(decode: Decode, ids: Sequence[int], stop: Sequence[str] = ()) -> tuple[list[str], TextStream]:
    """Return the pieces of a stream until it stops, the last of them at its end, and the stream."""
    text = TextStream(decode, stop)
    pieces = []
    for token in ids:
        pieces.append(text.feed(token))
        if text.stopped:
            break
    return [*pieces, text.finish()], text


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_pieces_join_to_the_whole_text(name: str, data: st.DataObject) -> None:
    size = TOKENIZERS[name].get_vocab_size()
    ids = data.draw(st.lists(st.integers(0, size - 1), max_size=200))
    decode = decoder_of(name)
    pieces, text = pieces_of(decode, ids)
    assert "".join(pieces) == decode(ids)
    assert not any(piece.endswith("\ufffd") for piece in pieces[:-1])
    assert not text.stopped


@pytest.mark.parametrize("name", TOKENIZERS)
def test_long_texts_join_without_decoding_all_of_them_each_time(name: str) -> None:
    sizes = []
    inner = decoder_of(name)

    def decode(ids: Sequence[int]) -> str:
        sizes.append(len(ids))
        return inner(ids)

    ids = TOKENIZERS[name].encode(TEXT * 20).ids
    pieces, _ = pieces_of(decode, ids)
    assert len(ids) > 500
    assert "".join(pieces) == inner(ids)
    assert max(sizes) < 128


@pytest.mark.parametrize("name", TOKENIZERS)
def test_long_nonsense_joins_too(name: str) -> None:
    decode, size = decoder_of(name), TOKENIZERS[name].get_vocab_size()
    for seed in range(40):
        ids = np.random.default_rng(seed).integers(0, size, 150).tolist()
        assert "".join(pieces_of(decode, ids)[0]) == decode(ids)


def test_what_is_longest_partial_stop_is_not_forgotten() -> None:
    text = "b" + "a" * 98 + "b" * 30
    pieces, _ = pieces_of(lambda ids: "".join(text[i] for i in ids), range(len(text)), ["a" * 99])
    assert "".join(pieces) == text
    assert pieces[:100] == ["b", *[""] * 98, "a" * 98 + "b"]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_streaming_may_begin_anywhere(name: str) -> None:
    ids = TOKENIZERS[name].encode(TEXT).ids
    decode = decoder_of(name)
    for start in range(len(ids)):
        text = TextStream(decode)
        first = "".join(text.feed(token) for token in ids[:start])
        fork = text.fork()
        remainder = "".join(fork.feed(token) for token in ids[start:]) + fork.finish()
        assert first + remainder == decode(ids)
        assert first + text.finish() == decode(ids[:start])


def test_characters_of_several_tokens_come_whole() -> None:
    bytes_only = tokenizers.Tokenizer(models.BPE({char: i for i, char in enumerate(sorted(ALPHABET))}, []))
    bytes_only.pre_tokenizer, bytes_only.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    ids = bytes_only.encode("a😃é漢").ids
    assert len(ids) == 1 + 4 + 2 + 3
    pieces, _ = pieces_of(bytes_only.decode, ids)
    assert pieces == ["a", "", "", "", "😃", "", "é", "", "", "漢", ""]
    cut, _ = pieces_of(bytes_only.decode, ids[:3])
    assert cut == ["a", "", "", "\ufffd"]
    assert "".join(cut) == bytes_only.decode(ids[:3])


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.text("ab", max_size=3), max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_text_ends_before_the_first_stop_string(tokens: list[str], stop: list[str]) -> None:
    def decode(ids: Sequence[int]) -> str:
        return "".join(tokens[i] for i in ids)

    pieces, text = pieces_of(decode, range(len(tokens)), stop)
    whole = "".join(tokens)
    stop_step = next((n for n in range(len(tokens) + 1) if any(s in "".join(tokens[:n]) for s in stop)), None)
    assert text.stopped == (stop_step is not None)
    if stop_step is None:
        assert "".join(pieces) == whole
    else:
        assert len(pieces) == stop_step + 1
        before = "".join(tokens[:stop_step])
        assert "".join(pieces) == before[: min(before.find(s) for s in stop if s in before)]


def test_what_could_become_a_stop_string_is_held_back() -> None:
    words = ["ab", "c<", "/", "s", "x", "</", "s>"]
    pieces, text = pieces_of(lambda ids: "".join(words[i] for i in ids), range(7), ["</s>"])
    assert pieces == ["ab", "c", "", "", "</sx", "", "", ""]
    assert text.stopped


def test_the_longest_beginning_is_held_back() -> None:
    assert longest_partial_stop("xabab", ["ababc", "bc"]) == 4
    assert longest_partial_stop("xab", ["ab"]) == 0
    assert first_of("xabxcd", ["cd", "ab"]) == 1
    assert first_of("xab", ["q"]) is None


def test_the_text_of_a_hypothesis_leaves_out_what_ended_it() -> None:
    def decode(ids: Sequence[int]) -> str:
        return "".join("abcdef"[i] for i in ids)

    assert read_text(Hypothesis((0, 1, 5), (0.0,) * 3, 0.0, "stop"), decode) == "ab"
    assert read_text(Hypothesis((0, 1, 5), (0.0,) * 3, 0.0, "length"), decode) == "abf"
    assert read_text(Hypothesis((0, 1, 2, 3), (0.0,) * 4, 0.0, "stop_string"), decode, ["cd", "d"]) == "ab"
