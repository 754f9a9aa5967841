"""The parts that all samples of training share: the run, its progress and resumption, the command line, small texts.

Imported by the other samples; does nothing by itself.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from edgebert import EdgebertError
from edgebert.training import Loss, Progress, TrainingConfig, train

HERE = Path(__file__).parent
REPORTS = 48  # progress is printed, and the run saved, so often
EVALUATE_EVERY = 4  # reports
LEAST_STEPS = 10  # between two reports

M = TypeVar("M", bound=nn.Module)
B = TypeVar("B")


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a model and of its batches; 0 for those that it lacks."""

    vocabulary: int = 0
    dim: int = 0
    inner: int = 0
    layers: int = 0
    heads: int = 0
    length: int = 0
    batch: int = 0


def learn(
    model: M,
    batches: Iterable[B],
    loss: Callable[[M, B], Loss],
    config: TrainingConfig,
    *,
    evaluate: Callable[[], str] | None = None,
    reports: int = REPORTS,
    state: Path | None = None,
) -> None:
    """Train a model and print the progress; every fourth report ends with ``evaluate``.

    The run is saved in the file ``state``; a run that was stopped resumes from it.
    """
    count = 0

    def report(progress: Progress) -> None:
        nonlocal count
        count += 1
        evaluated = f"  {evaluate()}" if evaluate and count % EVALUATE_EVERY == 0 else ""
        say(f"{progress}{evaluated}")

    parameters = sum(parameter.numel() for parameter in model.parameters())
    say(f"{parameters:,} parameters, {config.steps} steps")
    every = max(LEAST_STEPS, config.steps // reports)
    start = time.perf_counter(), time.process_time()
    train(model, batches, loss, config, report=report, report_every=every, state=state, state_every=every)
    wall, processor = time.perf_counter() - start[0], time.process_time() - start[1]
    say(f"trained in {wall / 60:.1f} minutes, {processor / 60:.1f} of a processor")


def learn_and_save(
    folder: Path,
    model: M,
    batches: Iterable[B],
    loss: Callable[[M, B], Loss],
    config: TrainingConfig,
    *,
    save: Callable[[], object],
    evaluate: Callable[[], str] | None = None,
    reports: int = REPORTS,
) -> None:
    """Train a model as :func:`learn` does, and call ``save``, which writes ``folder``.

    Until then the run is in a file beside the folder.
    """
    state = folder.with_name(f"{folder.name}.run")
    learn(model, batches, loss, config, evaluate=evaluate, reports=reports, state=state)
    save()
    state.unlink()
    say(f"saved in {folder}")


def command_line(
    description: str | None, folder: str, quick: str = "a tiny model on a few sentences"
) -> argparse.ArgumentParser:
    """Return the options that all samples have; ``folder`` and ``quick`` are help texts."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help=folder)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--threads", type=int, default=2)
    return parser


def run_sample(parser: argparse.ArgumentParser, main: Callable[[argparse.Namespace], object]) -> None:
    """Run a sample with the options of the command line; errors take one line."""
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    try:
        main(options)
    except (RuntimeError, EdgebertError) as error:
        sys.exit(f"{Path(sys.argv[0]).stem}: {error}")


def beside(folder: Path, *endings: str) -> list[Path]:
    """Return the folders beside a checkpoint whose names have these endings."""
    return [folder.with_name(f"{folder.name}.{ending}") for ending in endings]


def is_held_out(text: str) -> bool:
    """Whether a text is held out: one in twenty, the same on every machine."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) % 20 == 0


def sentences() -> list[str]:
    """Return the sentences of ``sentences.txt``, the data of quick runs."""
    return (HERE / "sentences.txt").read_text(encoding="utf-8").splitlines()


def say(text: str) -> None:
    """Print one step, at once even into a pipe."""
    print(text, flush=True)
