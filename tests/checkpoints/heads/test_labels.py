"""The outputs of a head are named and understood as config.json or the caller says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgebert.checkpoints import open_checkpoint
from tests.checkpoints.broken import message, write_task

NAMES = {"id2label": {"0": "no", "1": "yes", "2": "maybe"}}
LABELS: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "names": (NAMES, ("no", "yes", "maybe"), ""),
    "another order": ({"id2label": {"2": "maybe", "0": "no", "1": "yes"}}, ("no", "yes", "maybe"), ""),
    "none": ({"id2label": None}, ("LABEL_0", "LABEL_1", "LABEL_2"), ""),
    "too few": ({"id2label": {"0": "a", "1": "b"}}, ("LABEL_0", "LABEL_1", "LABEL_2"), "2 entries"),
    "a hole": ({"id2label": {"0": "a", "1": "b", "3": "c"}}, ("LABEL_0", "LABEL_1", "LABEL_2"), "do not name each"),
    "an id twice": ({"id2label": {"0": "a", "1": "b", "01": "c"}}, ("LABEL_0", "LABEL_1", "LABEL_2"), "do not name"),
    "a name twice": ({"id2label": {"0": "a", "1": "b", "2": "a"}}, ("LABEL_0", "LABEL_1", "LABEL_2"), "gives a to sev"),
    "no names": ({"id2label": {"0": "a", "1": None, "2": []}}, ("LABEL_0", "LABEL_1", "LABEL_2"), "do not name each"),
    "no object": ({"id2label": ["a", "b", "c"]}, ("LABEL_0", "LABEL_1", "LABEL_2"), "0 entries"),
}


@pytest.mark.parametrize("task", ["classify", "tag"])
@pytest.mark.parametrize("case", LABELS)
def test_labels(tmp_path: Path, case: str, task: str) -> None:
    settings, expected, note = LABELS[case]
    checkpoint = open_checkpoint(write_task(tmp_path, task=task, labels=("x", "y", "z"), settings=settings))
    assert checkpoint.labels == expected
    actual = [line for line in checkpoint.notes if "id2label" in line]
    assert len(actual) == bool(note)
    assert all(note in line and "this bundle has LABEL_0, LABEL_1" in line for line in actual)


def test_labels_of_the_caller(tmp_path: Path) -> None:
    write_task(tmp_path, task="classify")
    assert open_checkpoint(tmp_path, labels=["a", "b", "c"]).labels == ("a", "b", "c")
    assert "2 different names were given, the head has 3 outputs" in message(tmp_path, labels=("a", "b"))
    assert "2 different names were given" in message(tmp_path, labels=("a", "b", "a"))
    for wrong in ("abc", ("a", "b", ""), ("a", "b", 3)):
        assert "are not names" in message(tmp_path, labels=wrong)
    assert "labels was given, which embed does not have; only classify and tag" in message(
        tmp_path, task="embed", labels=("a", "b", "c")
    )


def test_discriminator(tmp_path: Path) -> None:
    write_task(tmp_path, task="tag", model_type="electra")
    assert open_checkpoint(tmp_path).labels == ("original", "replaced")
    assert open_checkpoint(tmp_path, labels=("real", "fake")).labels == ("real", "fake")


PROBLEMS: list[tuple[int, str | None, str | None, str]] = [
    (3, None, None, "single_label"),
    (1, None, None, "single_label"),
    (1, "regression", None, "regression"),
    (3, "multi_label_classification", None, "multi_label"),
    (3, "single_label_classification", None, "single_label"),
    (3, "regression", None, "regression"),
    (3, "regression", "multi_label", "multi_label"),
    (1, None, "single_label", "single_label"),
    (3, "nonsense", "multi_label", "multi_label"),
]


@pytest.mark.parametrize(("count", "said", "inputs", "expected"), PROBLEMS)
def test_problems(tmp_path: Path, count: int, said: str | None, inputs: str | None, expected: str) -> None:
    write_task(tmp_path, task="classify", labels=[f"l{i}" for i in range(count)], settings={"problem_type": said})
    assert open_checkpoint(tmp_path, problem_type=inputs).problem_type == expected
