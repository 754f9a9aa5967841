"""The training loop: AdamW with warm-up, gradient clipping and accumulation, seeded and resumable."""

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
from edgebert.training.training_config import TrainingConfig
from edgebert_runtime.errors import InputError

M = TypeVar("M", bound=nn.Module)
B = TypeVar("B")


class Loss(NamedTuple):
    """The mean loss of a batch, its weight among the batches of a step, and the tokens read.

    With the number of predictions as ``weight``, accumulated batches give the gradient of one large batch.
    """

    mean: Tensor
    weight: float
    tokens: int


@dataclass(frozen=True)
class Progress:
    """The progress of a run after ``step`` steps; loss and speed are those since the last report."""

    step: int
    steps: int
    loss: float
    learning_rate: float
    grad_norm: float
    tokens: int
    tokens_per_second: float

    def __str__(self) -> str:
        return (
            f"step {self.step:5} of {self.steps}  loss {self.loss:.3f}  rate {self.learning_rate:.1e}  "
            f"norm {self.grad_norm:.2f}  {self.tokens:11,} tokens  {self.tokens_per_second:6,.0f} tokens/s"
        )


@dataclass
class RunningLoss:
    """Loss and tokens since the last report."""

    loss: float = 0.0
    weight: float = 0.0
    tokens: int = 0
    start: float = field(default_factory=time.perf_counter)


def train(
    model: M,
    batches: Iterable[B],
    loss: Callable[[M, B], Loss],
    config: TrainingConfig,
    *,
    report: Callable[[Progress], None] | None = None,
    report_every: int = 50,
    state: Path | None = None,
    state_every: int = 500,
    until: int | None = None,
) -> None:
    """Train ``model`` in place, on ``gradient_accumulation_steps`` batches a step.

    ``report`` is called every ``report_every`` steps and at the end. The file ``state`` is written every
    ``state_every`` steps and at the end. A run whose file exists resumes from it, with bit-identical weights. For that
    ``batches`` must repeat and not draw from PyTorch's global generator; batches already trained on are skipped.
    ``until`` stops the run early, after so many steps.

    The global generator, which dropout draws from, is seeded by ``config`` and restored afterwards.

    Raises:
        InputError: if the batches run out, the loss is not finite, or ``state`` is of another run.
    """
    optimizer = make_optimizer(model, config)
    model.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        step, tokens = read_state(state, model, optimizer, config) if state and state.exists() else (0, 0)
        per_step = config.gradient_accumulation_steps
        stream = islice(batches, step * per_step, None)
        last = config.steps if until is None else min(until, config.steps)
        running = RunningLoss()
        while step < last:
            step_batches = list(islice(stream, per_step))
            if len(step_batches) < per_step:
                raise InputError(f"the batches ended at step {step} of {config.steps}; repeat them or take fewer steps")
            before = running.tokens
            norm = backward(model, step_batches, loss, config, running)
            rate = optimizer_step(optimizer, norm, config, step)
            step, tokens = step + 1, tokens + running.tokens - before
            if report and (step % report_every == 0 or step == last):
                speed = running.tokens / (time.perf_counter() - running.start)
                report(Progress(step, config.steps, running.loss / running.weight, rate, norm, tokens, speed))
                running = RunningLoss()
            if state and (step % state_every == 0 or step == last):
                write_state(state, model, optimizer, config, step, tokens)
    model.eval()


def make_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Return AdamW over the trainable parameters, with weight decay for matrices only."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, config.learning_rate, config.betas, fused=True)


def backward(
    model: M, batches: list[B], loss: Callable[[M, B], Loss], config: TrainingConfig, running: RunningLoss
) -> float:
    """Set the clipped gradient of the weighted mean over ``batches``; return its norm before clipping."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    weight = 0.0
    for batch in batches:
        with torch.autocast(parameters[0].device.type, torch.bfloat16, enabled=config.bfloat16):
            batch_loss = loss(model, batch)
        (batch_loss.mean * batch_loss.weight).backward()  # type: ignore[no-untyped-call]
        weight += batch_loss.weight
        running.loss += batch_loss.mean.item() * batch_loss.weight
        running.tokens += batch_loss.tokens
    running.weight += weight
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad /= weight
    return nn.utils.clip_grad_norm_(parameters, config.max_grad_norm or torch.inf).item()


def optimizer_step(optimizer: torch.optim.Optimizer, norm: float, config: TrainingConfig, step: int) -> float:
    """Update the weights by gradients of this ``norm``; return the learning rate.

    Raises:
        InputError: if the norm is not finite.
    """
    rate = config.learning_rate_at(step)
    if not norm < torch.inf:
        raise InputError(f"the gradient is {norm} at step {step}; lower the rate ({rate:.1e}) or warm up for longer")
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    optimizer.zero_grad()
    return rate
