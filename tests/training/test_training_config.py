"""Learning rates, worked out by hand, and numbers that no run can have."""

from __future__ import annotations

from typing import Any

import pytest

from edgebert.training import TrainingConfig
from edgebert_runtime.errors import InputError

SCHEDULES = {
    "constant": [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0],
    "linear": [0.25, 0.5, 0.75, 1.0, 0.8, 0.6, 0.4, 0.2],
    # (1 + cos(pi k / 4)) / 2 for k from 1 to 4, brought between 0.2 and 1
    "cosine": [0.25, 0.5, 0.75, 1.0, 0.8828427, 0.6, 0.3171573, 0.2],
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_rate_rises_and_falls(schedule: str) -> None:
    config = TrainingConfig(steps=8, learning_rate=3.0, warmup_steps=4, schedule=schedule, min_lr_ratio=0.2)
    assert [config.learning_rate_at(step) / 3 for step in range(8)] == pytest.approx(SCHEDULES[schedule])


@pytest.mark.parametrize("warmup", [0, 1])
def test_a_run_of_one_step_has_a_rate(warmup: int) -> None:
    config = TrainingConfig(steps=1, learning_rate=0.5, warmup_steps=warmup, min_lr_ratio=0.1)
    assert config.learning_rate_at(0) == pytest.approx(0.5 if warmup else 0.05)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"warmup_steps": 9},
        {"schedule": "exponential"},
        {"min_lr_ratio": 1.5},
        {"weight_decay": -0.1},
        {"betas": (0.9, 1.0)},
        {"max_grad_norm": -1.0},
        {"max_grad_norm": float("nan")},
        {"gradient_accumulation_steps": 0},
    ],
)
def test_impossible_numbers_are_named(wrong: dict[str, Any]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(InputError) as error:
        TrainingConfig(**{"steps": 8, "learning_rate": 1e-3, **wrong})
    assert str(error.value).startswith(f"a run cannot have {name}={value!r} (")


def test_all_impossible_numbers_are_named_at_once() -> None:
    with pytest.raises(
        InputError,
        match=r"^a run cannot have steps=-1 .*, learning_rate=-2 .*, gradient_accumulation_steps=0 \(at least 1\)$",
    ):
        TrainingConfig(steps=-1, learning_rate=-2, gradient_accumulation_steps=0)
