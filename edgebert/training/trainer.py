"""The training loop: AdamW with warm-up, clipping and accumulation, seeded and resumable."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from edgebert.training.resume import read_state, write_state
from edgebert.training.training_config import Recipe
from edgebert_runtime.errors import InputError

M = TypeVar("M", bound=nn.Module)
B = TypeVar("B")


class Loss(NamedTuple):
    """The loss of a batch: its mean, the weight of that among the batches of a step, and how many tokens were read.

    With the number of predictions as ``weight``, batches accumulated give the gradient that one large batch gives.
    """

    mean: Tensor
    weight: float
    tokens: int


@dataclass(frozen=True)
class Progress:
    """Where a run stands after ``step`` steps: loss and speed are those since the last report."""

    step: int
    steps: int
    loss: float
    rate: float
    norm: float
    tokens: int
    tokens_per_second: float

    def __str__(self) -> str:
        return (
            f"step {self.step:5} of {self.steps}  loss {self.loss:.3f}  rate {self.rate:.1e}  norm {self.norm:.2f}  "
            f"{self.tokens:11,} tokens  {self.tokens_per_second:6,.0f} tokens/s"
        )


@dataclass
class Tally:
    """What has been added up since the last report."""

    loss: float = 0.0
    weight: float = 0.0
    tokens: int = 0
    start: float = field(default_factory=time.perf_counter)


def train(
    model: M,
    batches: Iterable[B],
    loss: Callable[[M, B], Loss],
    recipe: Recipe,
    *,
    report: Callable[[Progress], None] | None = None,
    report_every: int = 50,
    state: Path | None = None,
    state_every: int = 500,
    until: int | None = None,
) -> None:
    """Train ``model``, in place, on ``recipe.steps`` times ``recipe.accumulate`` of the batches.

    ``report`` is called every ``report_every`` steps and at the end. With ``state``, a file, the run is kept there
    every ``state_every`` steps and at the end; a run whose file exists goes on from there, and its weights come out
    the same, bit for bit, as without the stop. For that ``batches`` must be the same again, and not be drawn with
    PyTorch's global random generator: those that were trained on are passed over. ``until`` stops the run early,
    after so many steps.

    The global random generator, which dropout draws from, is seeded by the recipe and left as it was found.

    Raises:
        InputError: if the batches come to an end, the loss is no number, or ``state`` is of another run.
    """
    optimizer = make_optimizer(model, recipe)
    model.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        step, tokens = read_state(state, model, optimizer, recipe) if state and state.exists() else (0, 0)
        source = islice(batches, step * recipe.accumulate, None)
        last = recipe.steps if until is None else min(until, recipe.steps)
        tally = Tally()
        while step < last:
            drawn = list(islice(source, recipe.accumulate))
            if len(drawn) < recipe.accumulate:
                raise InputError(f"the batches ended at step {step} of {recipe.steps}; repeat them or take fewer steps")
            before = tally.tokens
            norm = accumulate(model, drawn, loss, recipe, tally)
            rate = take_step(optimizer, norm, recipe, step)
            step, tokens = step + 1, tokens + tally.tokens - before
            if report and (step % report_every == 0 or step == last):
                report(progress(step, recipe, rate, norm, tokens, tally))
                tally = Tally()
            if state and (step % state_every == 0 or step == last):
                write_state(state, model, optimizer, recipe, step, tokens)
    model.eval()


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Return AdamW over what is to be trained, with decay for the matrices."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.dim() >= 2], "weight_decay": recipe.decay},
        {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], recipe.rate, recipe.betas, fused=True)


def accumulate(model: M, drawn: list[B], loss: Callable[[M, B], Loss], recipe: Recipe, tally: Tally) -> float:
    """Give every parameter the gradient of the mean over the batches, clipped, and return its length before that."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    weight = 0.0
    for batch in drawn:
        with torch.autocast(parameters[0].device.type, torch.bfloat16, enabled=recipe.bfloat16):
            found = loss(model, batch)
        (found.mean * found.weight).backward()  # type: ignore[no-untyped-call]
        weight += found.weight
        tally.loss += found.mean.item() * found.weight
        tally.tokens += found.tokens
    tally.weight += weight
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad /= weight
    return nn.utils.clip_grad_norm_(parameters, recipe.clip or torch.inf).item()


def take_step(optimizer: torch.optim.Optimizer, norm: float, recipe: Recipe, step: int) -> float:
    """Change the weights by their gradients, which are ``norm`` long, and return the learning rate."""
    rate = recipe.rate_at(step)
    if not norm < torch.inf:
        raise InputError(f"the gradient is {norm} at step {step}; lower the rate ({rate:.1e}) or warm up for longer")
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    optimizer.zero_grad()
    return rate


def progress(step: int, recipe: Recipe, rate: float, norm: float, tokens: int, tally: Tally) -> Progress:
    """Sum up what was reached."""
    seconds = time.perf_counter() - tally.start
    return Progress(step, recipe.steps, tally.loss / tally.weight, rate, norm, tokens, tally.tokens / seconds)
