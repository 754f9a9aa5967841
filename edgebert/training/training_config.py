"""The hyperparameters of a run, and its learning rate schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgebert_runtime.errors import InputError

SCHEDULES = ("constant", "cosine", "linear")


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The hyperparameters of a run.

    The learning rate rises linearly over ``warmup_steps`` to ``learning_rate``. Then ``schedule`` takes it to
    ``learning_rate * min_lr_ratio`` at the last of ``steps``. ``weight_decay`` is that of AdamW (Loshchilov and
    Hutter, 2019); biases and norms have none. Gradients are clipped to ``max_grad_norm`` (0: never). A step sums the
    gradients of ``gradient_accumulation_steps`` batches. ``bfloat16`` is mixed precision: weights stay float32.

    Raises:
        InputError: naming every value that makes no sense.
    """

    steps: int
    learning_rate: float
    warmup_steps: int = 0
    schedule: str = "cosine"
    min_lr_ratio: float = 0.1
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    max_grad_norm: float = 1.0
    gradient_accumulation_steps: int = 1
    bfloat16: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        accumulated = self.gradient_accumulation_steps
        checks = {
            f"steps={self.steps} (at least 1)": self.steps < 1,
            f"learning_rate={self.learning_rate} (more than 0)": not 0 < self.learning_rate < math.inf,
            f"warmup_steps={self.warmup_steps} (0 to steps)": not 0 <= self.warmup_steps <= self.steps,
            f"schedule={self.schedule!r} (one of {', '.join(SCHEDULES)})": self.schedule not in SCHEDULES,
            f"min_lr_ratio={self.min_lr_ratio} (0 to 1)": not 0 <= self.min_lr_ratio <= 1,
            f"weight_decay={self.weight_decay} (0 or more)": not 0 <= self.weight_decay < math.inf,
            f"betas={self.betas} (two numbers, 0 to less than 1)": not all(0 <= beta < 1 for beta in self.betas),
            f"max_grad_norm={self.max_grad_norm} (0 or more)": not self.max_grad_norm >= 0,
            f"gradient_accumulation_steps={accumulated} (at least 1)": accumulated < 1,
        }
        if problems := [text for text, bad in checks.items() if bad]:
            raise InputError(f"a run cannot have {', '.join(problems)}")

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        progress = (step + 1 - self.warmup_steps) / (self.steps - self.warmup_steps)  # above 0, 1 at the last step
        decay = {"constant": 1.0, "linear": 1 - progress, "cosine": (1 + math.cos(math.pi * progress)) / 2}
        lowest = 1.0 if self.schedule == "constant" else self.min_lr_ratio
        return self.learning_rate * (lowest + (1 - lowest) * decay[self.schedule])
