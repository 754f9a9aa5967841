"""Which command runs the bundles of a task, and what every such command takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from edgebert.cli.errors import Failure
from edgebert.cli.text_input import Errors

VERBS = {
    "embed": "embed",
    "classify": "classify",
    "next-sentence": "classify",
    "rerank": "rerank",
    "multiple-choice": "choose",
    "tag": "tag",
    "answer": "answer",
    "fill-mask": "fill-mask",
    "generate": "generate",
    "translate": "translate",
}
# Commands that run the bundles of other commands' tasks.
ALSO = {"score": ("generate", "translate")}


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

        engine = edgebert_runtime.load(self.bundle, device=self.device, threads=self.threads)
        task = engine.bundle.manifest.task
        verb = VERBS.get(task)
        if verb not in ALSO.get(self.verb, (self.verb,)):
            name = click.format_filename(self.bundle)
            raise Failure(f"{name} is a bundle of task {task}; run 'edgebert {verb or 'info'}'")
        return engine
