"""The options that every command over texts shares, as one record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from edgebert.cli.errors import Failure
from edgebert.cli.files.input_formats import InputFormat
from edgebert.cli.text_input import EncodingErrors

# The suffixes of files that take vectors, and those that take JSON Lines.
VECTOR_FILES = (".npy", ".parquet")
JSON_FILES = (".jsonl", ".ndjson")


@dataclass(frozen=True)
class Request:
    """A bundle, how to run it, and the texts.

    Attributes:
        verb: The name of the command.
        bundle: The folder of the bundle.
        device: The device to run on.
        threads: The number of threads, None for all.
        as_json: Whether results are JSON.
        encoding_errors: The treatment of texts that are not valid Unicode.
        keywords: The arguments that every method of an engine takes.
        output: The file of results, None for standard output.
        texts: The arguments of the command.
        file: The file of texts where there are no arguments, None for standard input.
        input_format: The format of the file.
        fields: The names of the fields with texts; none for those of the command.
        id_field: The name of the field with the id of a row.
    """

    verb: str
    bundle: Path
    device: str
    threads: int | None
    as_json: bool
    encoding_errors: EncodingErrors
    keywords: dict[str, Any]
    output: Path | None = None
    texts: tuple[str, ...] = ()
    file: Path | None = None
    input_format: InputFormat = "text"
    fields: tuple[str, ...] = ()
    id_field: str | None = None

    @property
    def writes_vectors(self) -> bool:
        """Whether the output is a file of vectors, not of lines."""
        return self.output is not None and self.output.suffix.lower() in VECTOR_FILES

    def load(self) -> Any:
        """Return the engine of the bundle.

        Raises:
            Failure: naming the right command, if the bundle is of another task.
        """
        import edgebert_runtime
        from edgebert_runtime.task_specs import TASKS

        engine = edgebert_runtime.load(self.bundle, device=self.device, threads=self.threads)
        task = engine.bundle.manifest.task
        verbs = (TASKS[task].verb, *TASKS[task].other_verbs) if task in TASKS else ("info",)
        if self.verb not in verbs:
            name = click.format_filename(self.bundle)
            raise Failure(f"{name} is a bundle of task {task}; run 'edgebert {verbs[0]}'")
        return engine
