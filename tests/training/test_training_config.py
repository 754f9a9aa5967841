"""Learning rates, worked out by hand, and numbers that no run can have."""

from __future__ import annotations

from typing import Any

import pytest

from edgebert.training import Recipe
from edgebert_runtime.errors import InputError

SCHEDULES = {
    "constant": [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0],
    "linear": [0.25, 0.5, 0.75, 1.0, 0.8, 0.6, 0.4, 0.2],
    # (1 + cos(pi k / 4)) / 2 for k from 1 to 4, brought between 0.2 and 1
    "cosine": [0.25, 0.5, 0.75, 1.0, 0.8828427, 0.6, 0.3171573, 0.2],
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_rate_rises_and_falls(schedule: str) -> None:
    recipe = Recipe(steps=8, rate=3.0, warmup=4, schedule=schedule, final=0.2)
    assert [recipe.rate_at(step) / 3 for step in range(8)] == pytest.approx(SCHEDULES[schedule])


@pytest.mark.parametrize("warmup", [0, 1])
def test_a_run_of_one_step_has_a_rate(warmup: int) -> None:
    recipe = Recipe(steps=1, rate=0.5, warmup=warmup, final=0.1)
    assert recipe.rate_at(0) == pytest.approx(0.5 if warmup else 0.05)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"rate": 0.0},
        {"rate": float("nan")},
        {"warmup": 9},
        {"schedule": "exponential"},
        {"final": 1.5},
        {"decay": -0.1},
        {"betas": (0.9, 1.0)},
        {"clip": -1.0},
        {"clip": float("nan")},
        {"accumulate": 0},
    ],
)
def test_impossible_numbers_are_named(wrong: dict[str, Any]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(InputError) as error:
        Recipe(**{"steps": 8, "rate": 1e-3, **wrong})
    assert str(error.value).startswith(f"a run cannot have {name}={value!r} (")


def test_all_impossible_numbers_are_named_at_once() -> None:
    with pytest.raises(InputError, match=r"^a run cannot have steps=-1 .*, rate=-2 .*, accumulate=0 \(at least 1\)$"):
        Recipe(steps=-1, rate=-2, accumulate=0)
