"""Files of labelled examples: what is read, and which line is refused why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgebert_exporters.reports.labelled_examples import read_examples
from edgebert_runtime import Bundle
from edgebert_runtime.bundle.manifest import Manifest
from edgebert_runtime.errors import InputError
from edgebert_runtime.task_specs import TASKS

GOOD: dict[str, list[dict[str, Any]]] = {
    "classify": [{"text": "a", "label": "neutral"}, {"text": "a", "pair": "b", "label": "positive"}],
    "next-sentence": [{"text": "a", "pair": "b", "label": "next"}],
    "tag": [{"text": "the cat", "entities": [[0, 3, "PER"], [4, 7, "LOC"]]}, {"text": "", "entities": []}],
    "answer": [{"question": "a", "context": "b", "answers": ["b"]}, {"question": "a", "context": "b", "answers": []}],
    "fill-mask": [{"text": "the [MASK] sat", "token": "cat"}],
    "embed": [{"text": "a", "other": "b", "score": 1}, {"text": "a", "label": "x"}],
    "rerank": [{"query": "a", "passages": ["b", "c"], "best": 1}],
    "multiple-choice": [{"prompt": "a", "choices": ["b", "c"], "best": 0}],
    "generate": [{"text": "a"}],
    "translate": [{"source": "a", "targets": ["b", ""]}],
}
BAD: list[tuple[str, object, str]] = [
    ("classify", {"text": "a", "label": "bad"}, "label 'bad' is not one of negative, neutral, positive"),
    ("classify", {"text": "a"}, "the fields are text; classify takes text, label or text, pair, label"),
    ("classify", {"text": "a", "label": "neutral", "id": 3}, "the fields are text, label, id; classify takes"),
    ("classify", {"text": 3, "label": "neutral"}, "text is 3, not a text"),
    ("classify", {}, "the fields are none; classify takes"),
    ("classify", ["a"], r"\['a'\] is not an object with the fields text, label or"),
    ("tag", {"text": "the cat", "entities": [[0, 8, "PER"]]}, r"\[0, 8\] is no part of a text of 7 characters"),
    ("tag", {"text": "the cat", "entities": [[3, 3, "PER"]]}, r"\[3, 3\] is no part of"),
    ("tag", {"text": "the cat", "entities": [[0, 3, "B-PER"]]}, "entity 'B-PER' is not one of LOC, PER"),
    (
        "tag",
        {"text": "the cat", "entities": [[0, 3]]},
        r"entities is \[\[0, 3\]\], not a list of \[start, end, label\]",
    ),
    ("tag", {"text": "the cat", "entities": [[0, True, "PER"]]}, "entities is .*, not a list of"),
    ("answer", {"question": "a", "context": "b", "answers": "b"}, "answers is 'b', not a list of texts"),
    ("fill-mask", {"text": "the cat", "token": "cat"}, r"text has 0 times \[MASK\]; write it once"),
    ("fill-mask", {"text": "[MASK] [MASK]", "token": "cat"}, r"text has 2 times \[MASK\]"),
    ("embed", {"text": "a", "other": "b", "score": True}, "score is True, not a number"),
    ("embed", {"text": "a", "other": "b", "score": 10**400}, "score is 1000+, not a number"),
    ("rerank", {"query": "a", "passages": ["b", "c"], "best": 2}, "best is 2 of 2 passages; give two at least"),
    ("rerank", {"query": "a", "passages": ["b", "c"], "best": -1}, "best is -1, not a whole number from 0"),
    ("multiple-choice", {"prompt": "a", "choices": ["b"], "best": 0}, "best is 0 of 1 choices; give two at least"),
    ("generate", {"text": ""}, "text is empty"),
    ("translate", {"source": "a", "targets": []}, r"targets is \[\], not a list of texts that is not empty"),
]

Manifests = Callable[[str], Manifest]


@pytest.fixture
def manifest_of(task_bundle: Callable[[str], Path]) -> Manifests:
    """Return a function from a task to the manifest of a bundle."""
    return lambda task: Bundle.open(task_bundle(task)).manifest


def write(file: Path, *rows: object) -> Path:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return file


def named(row: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    """Give an example of next-sentence a label that the model has."""
    return row | {"label": manifest.settings["labels"][0]} if manifest.task == "next-sentence" else row


@pytest.mark.parametrize("task", TASKS)
def test_every_form_is_read(task: str, manifest_of: Manifests, tmp_path: Path) -> None:
    manifest = manifest_of(task)
    for row in GOOD[task]:
        row = named(row, manifest)
        lines = "\r\n".join(["", json.dumps(row), "  ", *([json.dumps(row)] * 3)])
        (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + lines.encode())
        examples = read_examples(tmp_path / "a.jsonl", manifest)
        assert (examples.task, examples.rows, examples.lines) == (task, [row] * 4, [2, 4, 5, 6])
    assert {frozenset(row) for row in GOOD[task]} == {frozenset(form) for form in TASKS[task].examples}


@pytest.mark.parametrize(("task", "row", "message"), BAD)
def test_a_bad_line_is_named(task: str, row: object, message: str, manifest_of: Manifests, tmp_path: Path) -> None:
    file = write(tmp_path / "bad.jsonl", *[GOOD[task][0]] * 2, row)
    with pytest.raises(InputError, match=f"^line 3 of {file}: {message}") as caught:
        read_examples(file, manifest_of(task))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text": "a", "label": "x"}\n{"text": \n', "line 2 of .*: not JSON"),
        (b"[" * 100_000, "line 1 of .*: not JSON"),
        (b'{"text": "a", "other": "b", "score": NaN}', "line 1 of .*: not JSON .the key 'score' is NaN"),
        (
            b'{"text": "a", "label": "x"}\n{"text": "a", "other": "b", "score": 1}',
            "those of the first example text, label",
        ),
        (b"", f"holds 0 examples, {TASKS['embed'].min_examples} are the least"),
        (b'{"text": "a", "label": "x"}\n' * 2, f"holds 2 examples, {TASKS['embed'].min_examples} are the least"),
        (b"\xff", "cannot read .*utf-8"),
        (None, "cannot read .*: No such file"),
    ],
)
def test_a_bad_file_is_refused(content: bytes | None, message: str, manifest_of: Manifests, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "bad.jsonl").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_examples(tmp_path / "bad.jsonl", manifest_of("embed"))


def test_several_labels_a_text_are_refused(manifest_of: Manifests, tmp_path: Path) -> None:
    manifest = manifest_of("classify")
    manifest.settings["problem_type"] = "multi_label"
    with pytest.raises(InputError, match="one label a text, and this model's problem_type is multi_label"):
        read_examples(write(tmp_path / "a.jsonl", GOOD["classify"][0]), manifest)
