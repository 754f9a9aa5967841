"""Texts, token ids and options that cannot be used are refused by name; strange ones that can be are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgebert_runtime import Embedder
from edgebert_runtime.errors import InputError
from edgebert_runtime.inputs.validation import check_text


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("the cat", r"one str was given.*embed\(\[text\]\)"),
        (b"the cat", "one bytes was given"),
        (None, "NoneType was given"),
        (7, "int was given"),
        (np.array(7), "ndarray was given"),
        ({"a": 1}, "dict was given"),
        ({"a"}, "set was given"),
        (["a", b"b"], "text 1 is bytes"),
        (["a", None], "text 1 is NoneType"),
        ([1, 2, 3], "text 0 is int.*list of their own"),
        ([float("nan")], "text 0 is float"),
        ([["a"]], r"text 0 holds 'a' \(str\) at position 0"),
        ([[[5, 6]]], r"text 0 holds \[5, 6\] \(list\)"),
        ([[5, True]], "text 0 holds True"),
        ([[5, 1.0]], "text 0 holds 1.0"),
        ([np.array([1.0, 2.0])], "array of float64"),
        ([np.array([True])], "array of bool"),
        ([np.array([[5]])], r"shape \(1, 1\)"),
        ([np.array("a")], "array of <U1"),
        ([["the", []]], "text 0 holds 'the'"),
        (["a", []], "text 1 is an empty list"),
        ([[5, -1]], "token id -1 at position 1"),
        ([[5, 1000]], "token id 1000 at position 1"),
        ([[1 << 70]], "more than 63 bits"),
        ([np.array([2**63 + 1], np.uint64)], "token id 9223372036854775809"),
        ([[5] * 41], "41 token ids, the limit is 40"),
        (["ok", "bad\ud800"], r"text 1 has the lone surrogate U\+D800 at character 3"),
        (["a" * 1_000_001], "1000001 characters, the limit is 1000000"),
    ],
)
def test_bad_texts_are_named(engine: Embedder, texts: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        engine.embed(texts)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=message.replace("embed", "stream")):
        list(engine.stream(texts))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, "max_tokens=0 is not between 1 and 40"),
        ({"max_tokens": -1}, "max_tokens=-1"),
        ({"max_tokens": 41}, "max_tokens=41"),
        ({"max_tokens": 2}, "leaves no room beside 2 special tokens"),
        ({"max_tokens": True}, "max_tokens=True is not a whole number"),
        ({"max_tokens": 8.0}, "max_tokens=8.0 is not a whole number"),
        ({"max_tokens": "8"}, "max_tokens='8' is not a whole number"),
        ({"max_batch_tokens": 0}, "max_batch_tokens=0"),
        ({"max_batch_tokens": 1.5}, "max_batch_tokens=1.5"),
        ({"encoding_errors": "ignore"}, "encoding_errors='ignore' is not one of strict, replace"),
        ({"truncate": "no"}, "truncate='no' is not True or False"),
    ],
)
def test_bad_options_are_named(engine: Embedder, options: dict[str, Any], message: str) -> None:
    for call in (engine.embed, engine.embed_detailed, engine.stream):
        with pytest.raises(InputError, match=message):
            call(["the"], **options)


def test_unknown_options_are_refused(engine: Embedder) -> None:
    with pytest.raises(InputError, match="option 'batch_size' is not known"):
        engine.embed(["the"], batch_size=0)  # type: ignore[call-arg]


def test_lone_surrogates_can_be_replaced(engine: Embedder) -> None:
    damaged = ["bad\ud800", "\udc00 x", "a\ud800b", "\ud83d\ude00", "\ufeffa\udfff"]
    repaired = ["bad\ufffd", "\ufffd x", "a\ufffdb", "\U0001f600", "\ufeffa\ufffd"]
    assert [check_text(text, 0, "replace") for text in damaged] == repaired
    np.testing.assert_array_equal(engine.embed(damaged, encoding_errors="replace"), engine.embed(repaired))


def test_strange_texts_have_finite_vectors(engine: Embedder) -> None:
    texts = [
        "",
        " ",
        "\n",
        "\0",
        "a\0b",
        "\u0301" * 50,
        "\u202e\u200d\ufeff",
        "👩‍👩‍👧",
        "שלום",
        "x" * 100_000,
        "[SEP] [CLS]",
    ]
    vectors = engine.embed(texts)
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_special_tokens_in_a_text_are_text(engine: Embedder) -> None:
    ids = engine._tokenizer.encode(["[SEP]"], 40)[0].ids
    assert ids.count(3) == 1
    assert len(ids) > 3
