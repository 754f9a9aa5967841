"""Every command of the README runs, and prints what stands below it but for the figures."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from fetch_minilm import fetch

from tests.support.documents import ROOT, blocks, commands, run

README = (ROOT / "README.md").read_text(encoding="utf-8")
# What these targets of make run at the end. The demonstration runs here; this test is a part of the other two.
MAKE = {"make demo": "samples/demo.py", "make test": "-m pytest -n auto --dist loadfile", "make check": "lint-imports"}
CUT = " ..."


def skeleton(line: str) -> str:
    """Return a line without its figures."""
    return re.sub(r"\s+", " ", re.sub(r"[-+]?\d[\d.,]*(e[-+]?\d+)?", "#", line)).strip()


def assert_same(found: list[str], written: list[str], command: str) -> None:
    """Compare what a command printed with what the README says it prints."""
    assert len(found) == len(written), f"{command} prints {len(found)} lines, the README shows {len(written)}"
    for line, expected in zip(found, written, strict=True):
        if expected.endswith(CUT):
            assert skeleton(line).startswith(skeleton(expected.removesuffix(CUT)))
        else:
            assert skeleton(line) == skeleton(expected)


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


@pytest.mark.network
@pytest.mark.slow
def test_every_command_prints_what_the_readme_shows(folder: Path) -> None:
    seen = 0
    for command, written in commands(README):
        if command.startswith("pip install"):
            assert "[cpu,export]" in command  # tests/test_wheel.py installs
            continue
        if command in MAKE:
            recipe = run(f"make --no-print-directory -n {command.split()[1]}", ROOT)[-1]
            assert recipe.endswith(MAKE[command])
            if command != "make demo":
                continue
            command = f"python {MAKE[command]}"
        assert_same(run(command, folder), written, command)
        seen += 1
    assert seen >= 7
    (script,) = blocks(README, "python")
    assert run(f"python -c {shlex.quote(script)}", folder) == ["(3, 384) True"]


def test_readme_opens_with_what_sets_everything_up() -> None:
    first = [command for command, _ in commands(README)][:2]
    assert first == ["make demo", "make test"]
    assert set(MAKE) <= {command for command, _ in commands(README)}
    assert README.index("$ make demo") < README.index("## ")


def test_continuous_integration_calls_the_same_commands() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("make")] == ["make check", "make test"]


def test_every_command_line_option_named_in_the_readme_exists() -> None:
    from click.testing import CliRunner

    from edgebert.cli import COMMANDS, main

    helps = [CliRunner().invoke(main, [name, "--help"]).output for name in COMMANDS]
    for option in set(re.findall(r"`(--[a-z-]+)", README)) - {"--help"}:
        assert any(option in text for text in helps), option
