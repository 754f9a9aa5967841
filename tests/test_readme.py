"""Every command of the README, docs/demo.md and docs/bundle.md runs, and prints the lines below it but for figures."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from fetch_minilm import fetch

from edgebert.checkpoints.config.head_tables import HEADS
from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert_runtime.task_specs import TASKS
from tests.support.documents import DOCS, README, ROOT, assert_same, blocks, commands, run

TEXT = README.read_text(encoding="utf-8")
MOST_LINES = 150
# A screen: install, five commands with their output and five lines of Python stand on the first one.
SCREEN = 45
# What these targets of make run at the end. The demonstration runs here; this test is a part of the other two.
MAKE = {
    "make demo": "samples/demo.py",
    "make test": "-m pytest -n auto --dist loadfile",
    "make check": "lint-imports",
    "make docs": "mkdocs build --quiet",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """Return a folder with the samples and the real MiniLM, as after ``make demo`` in a clone."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "samples").symlink_to(ROOT / "samples")
    checkpoint = fetch(pytestconfig.cache.mkdir("edgebert") / "minilm")
    (folder / ".demo").mkdir()
    for name in ("minilm", ".demo/minilm"):
        (folder / name).symlink_to(checkpoint)
    return folder


@pytest.fixture(scope="module")
def outputs(folder: Path) -> list[tuple[str, list[str], list[str]]]:
    """Return each command of the README that makes something, with what it prints and what stands below it."""
    return [
        (command, run(command, folder), shown)
        for command, shown in commands(TEXT)
        if command not in MAKE and not command.startswith("pip install")
    ]


@pytest.mark.network
@pytest.mark.slow
def test_every_command_prints_what_the_readme_shows(
    outputs: list[tuple[str, list[str], list[str]]], folder: Path
) -> None:
    assert len(outputs) >= 4
    for command, printed, shown in outputs:
        assert shown, command
        assert_same(printed, shown, command)
    (script,), (shown_below,) = blocks(TEXT, "python"), blocks(TEXT, "text")
    assert run(f"python -c {shlex.quote(script)}", folder) == shown_below.splitlines()


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("page", ["demo.md", "bundle.md"])
def test_every_command_of_the_pages_that_continue_it(
    outputs: list[tuple[str, list[str], list[str]]], folder: Path, page: str
) -> None:
    assert outputs
    shown_commands = commands((DOCS / page).read_text(encoding="utf-8"))
    assert shown_commands
    for command, shown in shown_commands:
        script = f"python {MAKE[command]}" if command in MAKE else command
        assert_same(run(script, folder), shown, command)


def test_readme_is_short_and_its_first_screen_has_shell_and_python() -> None:
    lines = TEXT.splitlines()
    assert len(lines) <= MOST_LINES
    screen = "\n".join(lines[:SCREEN])
    assert [command.split()[0] for command, _ in commands(screen)] == ["pip", "python", *["edgebert"] * 3]
    (script,) = blocks(screen, "python")
    assert len(script.splitlines()) <= 5
    assert blocks(screen, "text")
    install = commands(screen)[0][0]
    assert "[cpu,export]" in install  # tests/test_wheel.py installs


def test_the_targets_of_make_run_what_they_should() -> None:
    assert set(MAKE) <= {command for command, _ in commands(TEXT)}
    assert "make demo" in {command for command, _ in commands((DOCS / "demo.md").read_text(encoding="utf-8"))}
    for command, end in MAKE.items():
        assert run(f"make --no-print-directory -n {command.split()[1]}", ROOT)[-1].endswith(end)


def test_continuous_integration_calls_the_same_commands() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("make")] == ["make check", "make test"]


def test_the_table_of_tasks_has_every_task_with_its_names_and_command() -> None:
    table = TEXT.partition("\n## Tasks\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:3] == "| `"]
    assert [row[0] for row in rows] == [f"`{name}`" for name in TASKS]
    for (_, aliases, command, _, engine), spec in zip(rows, TASKS.values(), strict=True):
        assert [alias for alias in aliases.split(", ") if alias] == list(spec.aliases)
        verbs = re.findall(r"edgebert ([a-z-]+)", command)
        assert (verbs, engine) == ([spec.verb, *spec.other_verbs], f"`{spec.engine}`")


def test_the_table_of_models_has_every_type_with_its_tasks() -> None:
    table = TEXT.partition("\n## Models\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    types = {name: row for row in rows for name in re.findall(r"`([\w-]+)`", row[0]) if name != "model_type"}
    assert set(types) == set(MODEL_TYPES)
    encoder = {name for name, spec in TASKS.items() if not spec.generative}
    for name, (_, _, tasks) in types.items():
        expected = {MODEL_TYPES[name].headless_task, *HEADS[name]}
        if tasks.startswith("the first eight"):
            assert expected == encoder, name
        elif tasks.startswith("the same without"):
            assert expected == encoder - set(re.findall(r"`([\w-]+)`", tasks)), name
        elif ";" not in tasks:
            assert expected == set(re.findall(r"`([\w-]+)`", tasks)), name


def test_every_command_line_option_named_in_the_readme_exists() -> None:
    from click.testing import CliRunner

    from edgebert.cli import COMMANDS, main

    helps = [CliRunner().invoke(main, [name, "--help"]).output for name in COMMANDS]
    for option in set(re.findall(r"`(--[a-z-]+)", TEXT)) - {"--help"}:
        assert any(option in text for text in helps), option
