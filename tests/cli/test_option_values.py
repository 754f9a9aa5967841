"""A value that an option cannot take ends with exit code 2, before any work, and names the option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from edgebert.cli import COMMANDS, main


def options_of(name: str) -> list[click.Option]:
    """Return the options of a command that take a value of a certain kind."""
    command = main.get_command(click.Context(main), name)
    assert command is not None
    plain = (click.types.StringParamType, click.Path)
    return [
        option
        for option in command.params
        if isinstance(option, click.Option)
        and not (option.is_flag or option.count)
        and not isinstance(option.type, plain)
    ]


CASES = [(name, option.opts[-1]) for name in COMMANDS for option in options_of(name)]


@pytest.mark.parametrize(("name", "option"), CASES)
def test_a_value_of_no_kind_is_wrong_usage(run: Any, engine: Any, tmp_path: Path, name: str, option: str) -> None:
    result = run(name, tmp_path / "a", tmp_path / "b", option, "no-such-value")
    assert (result.exit_code, result.stdout) == (2, "")
    assert option in result.stderr or "no-such-value" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("embd",), "Did you mean 'embed'?"),
        (("export", "a", "b", "--task", "clasify"), "Did you mean 'classify'?"),
        (("embed", "b", "--device", "gpu"), "Did you mean 'cuda'?"),
        (("embed", "b", "--long-texts", "meen"), "Did you mean 'mean'?"),
        (("quantize", "a", "b", "--scheme", "int9"), "Did you mean 'int8'?"),
        (("embed", "b", "--treads", "1"), "--threads"),
        (("embed", "b", "--threads", "0"), "--threads"),
        (("quantize", "a", "b", "--block-size", "7"), "--block-size"),
    ],
)
def test_the_nearest_name_is_suggested(run: Any, engine: Any, args: tuple[str, ...], message: str) -> None:
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
