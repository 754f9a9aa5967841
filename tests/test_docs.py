"""Every command and every Python block of docs/ runs, on tiny bundles of random weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import edgebert
from edgebert.cli.request import VERBS
from tests.support.documents import ROOT, blocks, commands, run

TASKS = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
GENERATION = (ROOT / "docs" / "generation.md").read_text(encoding="utf-8")
TRANSLATION = (ROOT / "docs" / "translation.md").read_text(encoding="utf-8")
# The tasks that have a page of their own.
PAGES = {"generate": GENERATION, "translate": TRANSLATION}
BUNDLES = {
    "sentiment.bundle": "classify",
    "nsp.bundle": "next-sentence",
    "reranker.bundle": "rerank",
    "swag.bundle": "multiple-choice",
    "ner.bundle": "tag",
    "qa.bundle": "answer",
    "mlm.bundle": "fill-mask",
    "encoder.bundle": "embed",
    "gpt.bundle": "generate",
    "mt.bundle": "translate",
}
CONTEXT = "the cat sat on a mat in the farm. they ran in rain and sun to the ship in the moon."


@pytest.fixture(scope="module")
def folder(task_bundle: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a bundle under each name that the document uses, and its text files."""
    folder = tmp_path_factory.mktemp("docs")
    for name, task in BUNDLES.items():
        (folder / name).symlink_to(task_bundle(task))
    for name in ("passages.txt", "long.txt"):
        (folder / name).write_text(f"{CONTEXT}\n" * 3, encoding="utf-8")
    return folder


@pytest.mark.slow
def test_every_command_runs(folder: Path) -> None:
    seen: set[str] = set()
    for command, shown in commands("".join([TASKS, *PAGES.values()])):
        assert not shown, "outputs would be those of random weights"
        output = run(command, folder)
        if "--output" not in command:
            assert output
            assert all(line.strip() for line in output) or "generate" in command or "translate" in command
        seen.update(verb for verb in VERBS.values() if f"edgebert {verb} " in command)
    assert seen == set(VERBS.values())


@pytest.mark.parametrize("text", [TASKS, *PAGES.values()], ids=["tasks", *PAGES])
def test_every_python_block_runs(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(folder)
    names = {"edgebert": edgebert, "passages": CONTEXT.split(". "), "context": CONTEXT}
    scripts = blocks(text, "python")
    assert scripts
    for script in scripts:
        exec(script, names)


def test_every_task_is_documented() -> None:
    for task, verb in VERBS.items():
        if task in PAGES:
            assert f"$ edgebert {verb} " in PAGES[task]
            continue
        assert f"| {task} |" in TASKS
        assert f"$ edgebert {verb} " in TASKS or f"| edgebert {verb} " in TASKS
