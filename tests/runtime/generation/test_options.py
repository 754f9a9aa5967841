"""Every option has an effect, or is refused by name and value."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from edgebert_runtime.errors import InputError
from edgebert_runtime.generation import Options
from edgebert_runtime.generation.option_parsers import CHECKS

WHOLE = ("max_new_tokens", "max_length", "num_beams", "num_return_sequences", "top_k")
SHARES = ("top_p", "min_p", "typical_p")
BASE: dict[str, Any] = {"eos_token_id": 2}


def beside(name: str) -> dict[str, Any]:
    """Return options beside which the one of that name has an effect."""
    if name in ("temperature", "top_k", "top_p", "min_p", "typical_p", "seed", "num_return_sequences"):
        return {**BASE, "do_sample": True}
    return {**BASE, "num_beams": 2} if name in ("length_penalty", "early_stopping") else BASE


def test_every_option_has_a_check() -> None:
    assert list(CHECKS) == [field.name for field in dataclasses.fields(Options)]


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("value", [0, -1, 1.5, "8", True, math.nan, math.inf, [3], 10**12])
def test_impossible_numbers_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"^{name}="):
        Options.read(**{**beside(name), name: value})


@pytest.mark.parametrize("name", ["temperature", *SHARES, "repetition_penalty"])
@pytest.mark.parametrize("value", [0, -1, "8", True, math.nan, math.inf, [0.5], 10**400])
def test_impossible_fractions_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"^{name}="):
        Options.read(**{**beside(name), name: value})


@pytest.mark.parametrize("name", SHARES)
def test_shares_are_at_most_one(name: str) -> None:
    assert getattr(Options.read(**beside(name), **{name: 1}), name) == 1.0
    with pytest.raises(InputError, match=f"{name}=1.5 is not a number that is more than 0 and at most 1"):
        Options.read(**beside(name), **{name: 1.5})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min_new_tokens", -1),
        ("no_repeat_ngram_size", -1),
        ("seed", -1),
        ("length_penalty", math.nan),
        ("length_penalty", 11),
        ("early_stopping", "always"),
        ("early_stopping", 1),
        ("do_sample", 1),
        ("eos_token_id", [-1]),
        ("eos_token_id", [1.5]),
        ("eos_token_id", "2"),
        ("eos_token_id", []),
        ("bad_words_ids", [[]]),
        ("bad_words_ids", [3]),
        ("suppress_tokens", [True]),
        ("prefix_allowed_tokens_fn", [1]),
        ("stop", ""),
        ("stop", ["a", 3]),
        ("stop", []),
    ],
)
def test_other_impossible_values_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=name):
        Options.read(**{**beside(name), name: value})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"temperature": 0.7}, "temperature=0.7 has no effect without do_sample=True"),
        ({"top_k": 5, "num_beams": 2}, "top_k=5 has no effect without do_sample=True"),
        ({"seed": 1}, "seed=1 has no effect without"),
        ({"length_penalty": 1.0}, "length_penalty=1.0 has no effect without num_beams of 2 or more"),
        ({"early_stopping": False, "do_sample": True}, "early_stopping=False has no effect without num_beams"),
        ({"do_sample": True, "num_beams": 2}, "num_beams=2 has no effect with do_sample=True"),
        ({"num_return_sequences": 2}, "num_return_sequences=2 is too many: the most likely tokens make one sequence"),
        ({"num_return_sequences": 3, "num_beams": 2}, "num_return_sequences=3 is more than num_beams=2"),
        ({"max_length": 9, "max_new_tokens": 3}, "both set a length; give one of them"),
        ({"min_length": 9, "min_new_tokens": 3}, "both set a length; give one of them"),
        ({"min_new_tokens": 9, "max_new_tokens": 3}, "min_new_tokens=9 is more than max_new_tokens=3"),
        ({"min_new_tokens": 9, "eos_token_id": None}, "min_new_tokens=9 has no effect without eos_token_id"),
        ({"pad_token_id": 1}, "pad_token_id is the bundle's own, and no option of a call; leave it out"),
        ({"temprature": 1}, "option 'temprature' is not known; did you mean temperature"),
        ({"zzzz": 1}, "option 'zzzz' is not known; the options are max_new_tokens"),
    ],
)
def test_what_has_no_effect_is_refused(call: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Options.read(BASE, **call)


def test_values_take_one_form() -> None:
    options = Options.read(
        num_beams=2, eos_token_id=[5, 2, 5], bad_words_ids=[[3], [4, 5], [3]], stop="end", length_penalty=2, top_k=None
    )
    assert options.eos_token_id == (2, 5)
    assert options.bad_words_ids == ((3,), (4, 5))
    assert options.stop == ("end",)
    assert (options.length_penalty, options.penalty, options.mode) == (2.0, 2.0, "beam")
    assert Options.read(BASE).eos_token_id == (2,)
    assert hash(options) != hash(Options())


BUNDLE: dict[str, Any] = {
    "num_beams": 4, "length_penalty": 0.8, "early_stopping": True, "max_length": 512, "min_length": 5,
    "bad_words_ids": [[58100]], "eos_token_id": 0, "pad_token_id": 58100, "decoder_start_token_id": 58100,
    "num_return_sequences": 3, "suppress_tokens": [], "top_k": 0, "seed": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ({}, {"num_beams": 4, "length_penalty": 0.8, "early_stopping": True, "max_length": 512}),
        ({"num_beams": 1}, {"length_penalty": None, "early_stopping": None, "num_return_sequences": 1}),
        ({"num_beams": 2}, {"length_penalty": 0.8, "num_return_sequences": 1}),
        ({"do_sample": True}, {"num_beams": 1, "length_penalty": None, "do_sample": True, "num_return_sequences": 1}),
        ({"max_new_tokens": 9}, {"max_new_tokens": 9, "max_length": None, "min_length": 5}),
        ({"min_new_tokens": 9}, {"min_new_tokens": 9, "min_length": None, "max_length": 512}),
        ({"length_penalty": None}, {"length_penalty": None, "num_beams": 4}),
        ({"eos_token_id": None}, {"eos_token_id": (), "min_length": None}),
        ({"eos_token_id": [7]}, {"eos_token_id": (7,), "max_length": 512}),
    ],
)
def test_a_call_comes_before_a_bundle(call: dict[str, Any], expected: dict[str, Any]) -> None:
    options = Options.read(BUNDLE, **call)
    assert {name: getattr(options, name) for name in expected} == expected


def test_a_bundle_that_samples_gives_way_to_beams() -> None:
    bundle = {"do_sample": True, "temperature": 0.7, "top_p": 0.9, "max_new_tokens": 9, "max_length": 20}
    assert Options.read(bundle).mode == "sample"
    assert Options.read(bundle, num_beams=3) == Options.read(num_beams=3, max_new_tokens=9)
    assert Options.read(bundle, do_sample=False) == Options.read(max_new_tokens=9)
    assert Options.read(bundle, max_length=5).max_new_tokens is None
    with pytest.raises(InputError, match="the bundle's option 'top_h' is not known; did you mean top_"):
        Options.read({"top_h": 1})


PLAIN: dict[str, Any] = {
    "max_new_tokens": 8,
    "min_new_tokens": 2,
    "max_length": 9,
    "min_length": 3,
    "num_beams": 2,
    "num_return_sequences": 2,
    "length_penalty": 0.5,
    "early_stopping": True,
    "do_sample": True,
    "temperature": 0.5,
    "top_k": 4,
    "top_p": 0.5,
    "min_p": 0.25,
    "typical_p": 0.5,
    "seed": 3,
    "repetition_penalty": 1.5,
    "no_repeat_ngram_size": 3,
    "bad_words_ids": [[5, 6], [7, 8]],
    "forced_bos_token_id": 4,
    "forced_eos_token_id": [4, 5],
    "suppress_tokens": [5, 6],
    "begin_suppress_tokens": [5],
    "eos_token_id": [2, 3],
}


@pytest.mark.parametrize("name", PLAIN)
def test_numpy_values_are_those_of_python(name: str) -> None:
    """As they come out of argmax, of an array of settings, or of a tokenizer."""
    plain = PLAIN[name]
    expected = Options.read(**{**beside(name), name: plain})
    kinds = {bool: (np.bool_,), int: (np.int64, np.int32), float: (np.float32, np.float64)}.get(type(plain), ())
    forms = [np.array(plain), *(kind(plain) for kind in kinds)]
    for value in forms:
        assert Options.read(**{**beside(name), name: value}) == expected
        assert Options.read({**beside(name), name: value}) == Options.read({**beside(name), name: plain})
    if isinstance(plain, list):
        assert Options.read(**{**beside(name), name: [np.array(item) for item in plain]}) == expected


def test_every_option_that_can_come_from_numpy_is_tried() -> None:
    assert set(CHECKS) - set(PLAIN) == {"prefix_allowed_tokens_fn", "stop"}
