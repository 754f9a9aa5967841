"""Progress on standard error: bars on a terminal, and elsewhere a line every few seconds."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import click

from edgebert.cli.logging_options import is_quiet

logger = logging.getLogger("edgebert.cli")

# Seconds between two lines, and before the first one.
INTERVAL = 5.0
StepProgress = Callable[[str, int, int], None]


@dataclass
class Step:
    """A step of some work: its parts that are done, those in all (None if unknown), and the texts among them."""

    name: str
    total: int | None
    done: int = 0
    texts: int | None = None
    started: float = field(default_factory=time.monotonic)

    def line(self) -> str:
        """Return the state in words: counts, rate, and time left."""
        seconds = time.monotonic() - self.started
        cells = []
        if self.texts is not None:
            cells.append(f"{self.texts:,} text{'s' * (self.texts != 1)}")
            if self.total:
                cells.append(f"{100 * self.done // self.total}%")
        elif self.total and self.total > 1:
            cells.append(f"{self.done:,} of {self.total:,}")
        if cells and (count := self.done if self.texts is None else self.texts):
            cells.append(f"{number(count / max(seconds, 1e-3))}/s")
        is_under_way = self.total and 0 < self.done < self.total
        remaining = seconds * ((self.total or 0) - self.done) / max(self.done, 1)
        cells.append(f"{clock(remaining)} left" if is_under_way else f"after {clock(seconds)}")
        return f"{self.name}: {', '.join(cells)}"


class ProgressLines:
    """Lines about the current step, at most one every few seconds; none for a short run, and a last one after any.

    A thread writes them, so that they come while a part takes long, and counting costs nothing.
    """

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.step: Step | None = None
        self.shown: tuple[str, int] | None = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.show_until_ended, name="edgebert-progress", daemon=True)

    def __enter__(self) -> ProgressLines:
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_details: object) -> None:
        self.ended.set()
        self.thread.join()
        if kind is not None or self.step is None:
            return
        line = f"done after {clock(time.monotonic() - self.started)}" if self.step.texts is None else self.step.line()
        if self.shown is not None:
            self.write(line)
        else:
            logger.info("%s", line)

    def show_until_ended(self) -> None:
        """Show the state every few seconds."""
        while not self.ended.wait(INTERVAL):
            self.show()

    def show(self) -> None:
        """Write a line, but not about texts that have not moved: they may be waited for."""
        step = self.step
        if step is None:
            return
        state = (step.name, step.done)
        if step.texts is None or state != self.shown:
            self.shown = state
            self.write(step.line())

    def write(self, line: str) -> None:
        """Write a line."""
        with contextlib.suppress(OSError, ValueError):  # nobody reads standard error any more
            click.echo(f"edgebert: {line}", err=True)


def number(value: float) -> str:
    """Format a rate."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def clock(seconds: float) -> str:
    """Format a time as minutes and seconds, with hours where there are any."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def stderr_is_terminal() -> bool:
    """Return whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def is_hidden() -> bool:
    """Return whether nobody wants progress, or can see it."""
    return sys.stderr is None or is_quiet()


@contextlib.contextmanager
def step_progress() -> Iterator[StepProgress | None]:
    """Yield a function that shows each step: a bar, or lines; None where nobody wants to see them."""
    if is_hidden():
        yield None
        return
    with bars() if stderr_is_terminal() else lines() as show:
        name = None

        def advance(step: str, done: int, total: int) -> None:
            nonlocal name
            if step != name:
                name = step
                logger.info("%s: %d of %d", step, done, total)
            show(step, done, total)

        yield advance


@contextlib.contextmanager
def bars() -> Iterator[StepProgress]:
    """Yield a function that shows a bar for each step."""
    with contextlib.ExitStack() as open_bars:
        name: str | None = None
        bar: Any = None

        def advance(step: str, done: int, total: int) -> None:
            nonlocal name, bar
            if step != name:
                open_bars.close()
                name, bar = step, open_bars.enter_context(click.progressbar(length=total, label=step, file=sys.stderr))
            bar.update(done - bar.pos)

        yield advance


@contextlib.contextmanager
def lines() -> Iterator[StepProgress]:
    """Yield a function that shows steps in lines."""
    with ProgressLines() as progress:

        def advance(step: str, done: int, total: int) -> None:
            if progress.step is None or progress.step.name != step:
                progress.step = Step(step, total)
            progress.step.done = done

        yield advance


@contextlib.contextmanager
def call_progress(label: str) -> Iterator[Callable[[int, int | None], None] | None]:
    """Yield the ``progress`` of an engine's method, for one call; None where nobody wants to see it."""
    with step_progress() as progress:
        yield progress and (lambda done, total: progress(label, done, total or done))


@contextlib.contextmanager
def count_progress(total: int | None, shown: bool, label: str) -> Iterator[Callable[[int, int], object]]:
    """Yield a function that counts texts, and the size of their input; ``total`` is its whole size, None if unknown."""
    if is_hidden() or not shown:
        yield lambda _texts, _size: None
    elif stderr_is_terminal():
        endless: Iterator[None] = (None for _ in ())  # click asks for a length, or for an iterable without one
        with click.progressbar(endless, length=total, label=label, show_pos=total is None, file=sys.stderr) as bar:
            yield lambda texts, size: bar.update(texts if total is None else size)
    else:
        with ProgressLines() as progress:
            progress.step = step = Step(label, total, texts=0)

            def advance(texts: int, size: int) -> None:
                step.texts = (step.texts or 0) + texts
                step.done += size

            yield advance
