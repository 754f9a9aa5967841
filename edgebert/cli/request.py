"""Which command runs the bundles of a task, and what every such command takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from edgebert.cli.errors import Failure
from edgebert.cli.text_input import Errors


@dataclass(frozen=True)
class Request:
    """A bundle and how to run it, from the options that these commands share.

    ``keywords`` are what every method of an engine takes. ``texts`` are the arguments; where there are none, they
    come from ``file``, or from standard input.
    """

    verb: str
    bundle: Path
    device: str
    threads: int | None
    as_json: bool
    errors: Errors
    keywords: dict[str, Any]
    texts: tuple[str, ...] = ()
    file: Path | None = None

    def load(self) -> Any:
        """Return the engine of the bundle.

        Raises:
            Failure: naming the right command, if the bundle is of another task.
        """
        import edgebert_runtime
        from edgebert_runtime.task_specs import TASKS

        engine = edgebert_runtime.load(self.bundle, device=self.device, threads=self.threads)
        task = engine.bundle.manifest.task
        verb, *others = (TASKS[task].verb, *TASKS[task].other_verbs) if task in TASKS else ("info",)
        if self.verb not in (verb, *others):
            name = click.format_filename(self.bundle)
            raise Failure(f"{name} is a bundle of task {task}; run 'edgebert {verb}'")
        return engine
