"""How to train: the numbers of a run, and the learning rate at each of its steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgebert_runtime.errors import InputError

SCHEDULES = ("constant", "cosine", "linear")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The numbers of a run.

    The learning rate rises in a line over the ``warmup`` steps to ``rate``, and falls as ``schedule`` says to
    ``rate * final`` at the last of ``steps``. ``decay`` is the weight decay of AdamW (Loshchilov and Hutter, 2019), for
    matrices only: biases and normalisations are left alone. Gradients longer than ``clip`` are shortened to it (0 for
    never). A step adds up the gradients of ``accumulate`` batches. With ``bfloat16`` the matrix products run in that
    format; weights stay float32.

    Raises:
        InputError: naming every number that makes no sense.
    """

    steps: int
    rate: float
    warmup: int = 0
    schedule: str = "cosine"
    final: float = 0.1
    decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = 1.0
    accumulate: int = 1
    bfloat16: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        wrong = {
            f"steps={self.steps} (at least 1)": self.steps < 1,
            f"rate={self.rate} (more than 0)": not 0 < self.rate < math.inf,
            f"warmup={self.warmup} (0 to steps)": not 0 <= self.warmup <= self.steps,
            f"schedule={self.schedule!r} (one of {', '.join(SCHEDULES)})": self.schedule not in SCHEDULES,
            f"final={self.final} (0 to 1)": not 0 <= self.final <= 1,
            f"decay={self.decay} (0 or more)": not 0 <= self.decay < math.inf,
            f"betas={self.betas} (two numbers, 0 to less than 1)": not all(0 <= beta < 1 for beta in self.betas),
            f"clip={self.clip} (0 or more)": not self.clip >= 0,
            f"accumulate={self.accumulate} (at least 1)": self.accumulate < 1,
        }
        if problems := [text for text, bad in wrong.items() if bad]:
            raise InputError(f"a run cannot have {', '.join(problems)}")

    def rate_at(self, step: int) -> float:
        """Return the learning rate of the step with this number, counted from 0."""
        if step < self.warmup:
            return self.rate * (step + 1) / self.warmup
        done = (step + 1 - self.warmup) / (self.steps - self.warmup)  # above 0, 1 at the last step
        falling = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}
        final = 1.0 if self.schedule == "constant" else self.final
        return self.rate * (final + (1 - final) * falling[self.schedule])
