"""Layout and language stay within their limits, and the measuring sees what it should."""

from __future__ import annotations

import ast

import pytest

from tests.support.style import (
    KIND_QUESTION,
    Figure,
    docstring_sentences,
    function_lengths,
    language,
    layout,
    literals,
    vague_names,
)

SOURCE = '''
"""One sentence here. Another one
follows.

=====  =====
a      table
=====  =====

Raises:
    ValueError: never counted.
"""

def function(other, *, name):
    """Return a value."""
    found = wanted = 1
    for kept, index in ():
        found += index
    return {"multiple-choice": found}
'''


@pytest.mark.parametrize("figure", [*layout(), *language()], ids=lambda figure: figure.name)
def test_figures_are_within_their_limits(figure: Figure) -> None:
    assert figure.within, figure


def test_names_that_say_nothing_are_counted_where_they_are_stored() -> None:
    assert sorted(vague_names(ast.parse(SOURCE))) == ["13:other", "15:found", "15:wanted", "16:kept", "17:found"]


def test_sentences_of_docstrings_are_told_apart() -> None:
    sentences = docstring_sentences(ast.parse(SOURCE))
    assert sentences == ["One sentence here.", "Another one follows.", "Return a value."]


def test_lines_of_functions_are_counted_without_docstrings() -> None:
    assert function_lengths(ast.parse(SOURCE)) == {"function": 4}


def test_literals_are_counted() -> None:
    assert literals(ast.parse(SOURCE), "multiple-choice") == 1


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ('if task == "translate":', 1),
        ("if isinstance(session, TeacherForcedSeq2Seq):", 1),
        ("past_of(inputs)", 1),
        ('"decoder" in graphs', 1),
        ("kind.samples(opened, rows)", 0),
    ],
)
def test_questions_for_the_kind_are_recognized(line: str, count: int) -> None:
    assert len(KIND_QUESTION.findall(line)) == count
