"""Help, start-up, and the code that every command shares."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from typing import Any

import click
import pytest

from edgebert import __version__
from edgebert.cli import COMMANDS, main
from edgebert_runtime.task_specs import TASKS
from tests.support.patience import PATIENCE

HEAVY = ("numpy", "onnxruntime", "tokenizers", "torch", "onnx", "edgebert_runtime", "edgebert_exporters")


def commands() -> dict[str, click.Command]:
    ctx = click.Context(main)
    return {name: command for name in COMMANDS if (command := main.get_command(ctx, name))}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_has_help_with_an_example(run: Any, name: str, flag: str) -> None:
    result = run(name, flag)
    assert result.exit_code == 0
    assert f"Example:\n      edgebert {name}" in result.stdout
    assert "\\b" not in result.stdout
    assert "Traceback" not in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help_and_every_value_a_default(name: str) -> None:
    ctx = click.Context(commands()[name], info_name=name, parent=click.Context(main, **main.context_settings))
    for param in ctx.command.params:
        if isinstance(param, click.Option):
            assert param.help, param.name
            takes_value = not param.is_flag and not param.count
            documented = param.default is not None or param.show_default or param.name == "output"
            assert documented or not takes_value, param.name


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_shows_a_whole_sentence(run: Any, name: str) -> None:
    (line,) = [line for line in run("--help").stdout.splitlines() if line.strip().startswith(f"{name} ")]
    assert line.endswith(".")
    assert not line.endswith("...")


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_are_short(name: str) -> None:
    callback = commands()[name].callback
    assert callback is not None
    code = inspect.unwrap(callback).__code__
    lines = [line for _, _, line in code.co_lines() if line]
    body = max(lines) - min(line for line in lines if line > code.co_firstlineno)
    assert body <= 40


def test_the_help_of_export_names_every_task(run: Any) -> None:
    text = re.sub(r"-\s+", "-", run("export", "--help").stdout)  # lines break after hyphens
    assert [name for name in TASKS if not re.search(rf"\b{name}\b", text)] == []


def test_exit_codes_are_documented(run: Any) -> None:
    text = run("--help").stdout
    for code in ("0 ", "1 ", "2 ", "130"):
        assert f"\n      {code}" in text


def test_version(run: Any) -> None:
    assert __version__ in run("--version").stdout


@pytest.mark.parametrize(
    "args", [["nonsense"], ["embed"], ["embed", "b", "--nonsense"], ["bench", "b", "--seconds", "0"]]
)
def test_wrong_usage_exits_with_2(run: Any, args: list[str]) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error: " in result.stderr


@pytest.mark.parametrize("args", [["--help"], ["export", "--help"]])
def test_help_imports_little_and_nothing_heavy(args: list[str]) -> None:
    script = (
        "import sys\nfrom edgebert.cli import main\n"
        f"try:\n    main({args})\n"
        f"finally:\n    sys.stderr.write(' '.join([str(len(sys.modules)), *(n for n in {HEAVY} if n in sys.modules)]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: ")
    assert int(done.stderr) < 220  # modules, those of Python and click among them


def test_module_runs_as_a_script() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "edgebert", "--version"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0
    assert __version__ in done.stdout
