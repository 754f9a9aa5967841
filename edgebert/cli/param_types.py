"""Types of options: their values are checked before a command runs, and completed by a shell."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    StringType = click.ParamType[str]  # which the oldest Click does not know at run time
    StringChoice = click.Choice[str]
else:
    StringType, StringChoice = click.ParamType, click.Choice

DEVICES = ("cpu", "cuda", "auto")


def nearest(value: str, choices: Sequence[str]) -> str:
    """Return a sentence with the choice that is spelled most alike, nothing if none is."""
    matches = difflib.get_close_matches(value.lower(), choices, 1)
    return f" Did you mean {matches[0]!r}?" if matches else ""


class Choice(StringChoice):
    """One of some values; an error suggests the nearest."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value."""
        try:
            chosen: str = super().convert(value, param, ctx)
        except click.BadParameter as error:
            self.fail(error.message + nearest(str(value), self.choices), param, ctx)
        return chosen


class DeviceType(StringType):
    """The name of a device. Loading the bundle shows whether it is there."""

    name = "device"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name of a device."""
        if not re.fullmatch(r"cpu|cuda|cuda:[0-9]{1,3}|auto", value):
            hint = " Did you mean 'cuda'?" if value.lower() in ("gpu", "nvidia") else nearest(value, DEVICES)
            self.fail(
                f"{value!r} is not one of 'cpu', 'cuda', 'cuda:N' (N counts GPUs from 0), 'auto'.{hint}", param, ctx
            )
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the devices that begin as typed."""
        return completions(DEVICES, incomplete)


class TaskType(StringType):
    """A task, by our name or by an alias such as ``text-classification``."""

    name = "task"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return our name of a task."""
        from edgebert_runtime.task_specs import TASKS, canonical_task

        if (task := canonical_task(value)) not in TASKS:
            self.fail(
                f"{value!r} is not one of {', '.join(map(repr, TASKS))}.{nearest(value, task_names())}", param, ctx
            )
        return task

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the tasks that begin as typed."""
        return completions(task_names(), incomplete)


def task_names() -> list[str]:
    """Return the names of all tasks, ours and then the aliases."""
    from edgebert_runtime.task_specs import TASKS

    return [*TASKS, *(alias for spec in TASKS.values() for alias in spec.aliases)]


def completions(values: Sequence[str], incomplete: str) -> list[CompletionItem]:
    """Return the values that begin as typed."""
    return [CompletionItem(value) for value in values if value.startswith(incomplete)]
