"""Errors: fields, the sentence for Python, and what survives a pickle."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from edgebert_runtime import errors
from edgebert_runtime.errors import EdgebertError, InputError, LimitError

CLASSES = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, EdgebertError)]
FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"message": "it broke in {a}"}, "it broke in {a}"),
    ({"message": "is wrong", "option": "top_p", "value": 2.0}, "top_p=2.0 is wrong"),
    ({"message": "is missing", "option": "top_p"}, "top_p is missing"),
    ({"message": "is long", "option": "stop", "value": "x" * 99}, f"stop='{'x' * 59} is long"),
    ({"message": "is long", "index": 3}, "text 3 is long"),
    ({"message": "is long", "index": 3, "item": "prompt", "hint": "cut it"}, "prompt 3 is long; cut it"),
    ({"message": "is long", "item": "the query"}, "the query is long"),
    ({"message": "is long", "index": 0, "item": "question", "part": ("choice", 1)}, "choice 1 of question 0 is long"),
    ({"message": "is long", "index": 2, "part": "the target"}, "the target of text 2 is long"),
    (
        {"message": "is more than {high}", "option": "low", "value": 2, "options": {"high": 1}},
        "low=2 is more than high=1",
    ),
    (
        {"message": "is {a}", "hint": "raise {b}, or give {c}", "index": 0, "options": {"b": ..., "c": True}},
        "text 0 is {a}; raise b, or give c=True",
    ),
]


@pytest.mark.parametrize(("fields", "sentence"), FIELDS)
def test_fields_make_the_sentence(fields: dict[str, Any], sentence: str) -> None:
    message, keywords = fields["message"], {name: value for name, value in fields.items() if name != "message"}
    for kind in CLASSES:
        error = kind(message, **keywords)
        assert str(error) == sentence
        for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
            assert type(twin) is kind
            assert vars(twin) == vars(error)
            assert str(twin) == sentence


def test_errors_without_a_message_are_empty() -> None:
    assert str(InputError()) == ""
    assert InputError("a").args == ("a",)


def test_wrong_inputs_are_value_errors() -> None:
    with pytest.raises(ValueError, match="text 3 is long"):
        raise LimitError("is long", index=3)


def test_another_reader_has_other_words() -> None:
    error = LimitError("is long", index=3, hint="raise {max_tokens}", options={"max_tokens": ...})
    sentence = error.sentence(lambda name, value: f"<{name} {value is ...}>", lambda error: f"line {error.index}")
    assert sentence == "line 3 is long; raise <max_tokens True>"
