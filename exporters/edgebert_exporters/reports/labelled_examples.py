"""Labelled examples for the task of a bundle, one JSON object per line.

===============  ==========================================================================================
task             an example
===============  ==========================================================================================
classify         ``text``, ``label``; with ``pair`` where a model reads two texts
next-sentence    ``text``, ``pair``, ``label``
tag              ``text``, ``entities``: a list of [start, end, label], in characters
answer           ``question``, ``context``, ``answers``: all that are right, none if there is no answer
fill-mask        ``text`` with one mask, ``token``
embed            ``text``, ``other``, ``score``: how alike they are; or ``text``, ``label``
rerank           ``query``, ``passages``, ``best``: the number of the right one, from 0
multiple-choice  ``prompt``, ``choices``, ``best``
generate         ``text``
translate        ``source``, ``targets``: all that are right
===============  ==========================================================================================
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgebert_runtime import strict_json
from edgebert_runtime.bundle.manifest import Manifest
from edgebert_runtime.errors import InputError
from edgebert_runtime.task_specs import INDEX, NUMBER, SOME_TEXTS, SPANS, TASKS, TEXT, TEXTS
from edgebert_runtime.tasks.entity_aggregation import read_scheme

Row = dict[str, Any]


@dataclass(frozen=True)
class Examples:
    """The ``rows`` of a file, all with the same fields, and the line number of each."""

    file: str
    task: str
    rows: list[Row]
    lines: list[int]


def read_examples(file: str | os.PathLike[str], manifest: Manifest) -> Examples:
    """Read labelled examples for the task of a bundle.

    Raises:
        InputError: if there is no such file; naming the line that cannot be used; if there are too few of them; if
            the task is one of several labels a text, or of none.
    """
    name, task = os.fspath(file), manifest.task
    problem_type = manifest.settings.get("problem_type", "single_label")
    if problem_type != "single_label":
        raise InputError(f"{name}: examples have one label a text, and this model's problem_type is {problem_type}")
    rows, lines = list[Row](), list[int]()
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from error
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                row = read_row(line, task, rows)
                check_row(row, manifest)
            except (ValueError, RecursionError) as error:
                raise InputError(f"line {number} of {name}: {error}") from error
            rows.append(row)
            lines.append(number)
    if len(rows) < (least := TASKS[task].min_examples):
        raise InputError(f"{name} holds {len(rows)} examples, {least} are the least; write a JSON object a line")
    return Examples(name, task, rows, lines)


def read_row(line: str, task: str, before: list[Row]) -> Row:
    """Read a line with the fields of its task, and of the lines before.

    Raises:
        ValueError: saying what is wrong.
    """
    try:
        row = strict_json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error}); write an object a line") from error
    expected = " or ".join(", ".join(form) for form in TASKS[task].examples)
    if not isinstance(row, dict):
        raise ValueError(f"{row!r:.60} is not an object with the fields {expected}")
    forms = [form for form in TASKS[task].examples if form.keys() == row.keys()]
    if not forms:
        raise ValueError(f"the fields are {', '.join(row) or 'none'}; {task} takes {expected}")
    if before and before[0].keys() != row.keys():
        raise ValueError(f"the fields are {', '.join(row)}, those of the first example {', '.join(before[0])}")
    for name, kind in forms[0].items():
        if not IS[kind](row[name]):
            raise ValueError(f"{name} is {row[name]!r:.60}, not {kind}")
    return row


def are_texts(value: Any) -> bool:
    """Return whether a value is a list of texts."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def are_spans(value: Any) -> bool:
    """Return whether a value is a list of [int, int, str]."""
    return isinstance(value, list) and all(
        isinstance(item, list) and [type(part) for part in item] == [int, int, str] for item in value
    )


IS: dict[str, Callable[[Any], bool]] = {
    TEXT: lambda value: isinstance(value, str),
    NUMBER: lambda value: type(value) in (int, float) and abs(value) <= sys.float_info.max,
    INDEX: lambda value: type(value) is int and value >= 0,
    TEXTS: are_texts,
    SOME_TEXTS: lambda value: are_texts(value) and len(value) > 0,
    SPANS: are_spans,
}


def check_row(row: Row, manifest: Manifest) -> None:
    """Refuse labels that the model does not have, and indices out of range.

    Raises:
        ValueError: saying what is wrong.
    """
    settings = manifest.settings
    labels = settings.get("labels", ())
    if "label" in row and labels and row["label"] not in labels:
        raise ValueError(f"label {row['label']!r:.60} is not one of {shown(labels)}")
    if "entities" in row:
        scheme = read_scheme(tuple(labels))
        check_entities(row, {scheme.types[label] for label in scheme.inside})
    if "mask_token" in settings and row["text"].count(mask := settings["mask_token"]) != 1:
        raise ValueError(f"text has {row['text'].count(mask)} times {mask}; write it once, where the token belongs")
    for many in ("passages", "choices"):
        if many in row and (row["best"] >= len(row[many]) or len(row[many]) < 2):
            raise ValueError(f"best is {row['best']} of {len(row[many])} {many}; give two at least, counted from 0")
    if TASKS[manifest.task].generative and not row.get("text", True):
        raise ValueError("text is empty")


def check_entities(row: Mapping[str, Any], kinds: set[str]) -> None:
    """Refuse entities outside the text, or of a type that the model does not have."""
    for start, end, label in row["entities"]:
        if not 0 <= start < end <= len(row["text"]):
            raise ValueError(f"[{start}, {end}] is no part of a text of {len(row['text'])} characters")
        if label not in kinds:
            raise ValueError(f"entity {label!r:.60} is not one of {shown(sorted(kinds))}")


def shown(names: list[str] | tuple[str, ...]) -> str:
    """Return the first names of many."""
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
