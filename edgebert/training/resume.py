"""The file that a stopped run goes on from: weights, optimizer and random generator after a step."""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from edgebert.training.training_config import Recipe
from edgebert_runtime.errors import InputError


def write_state(
    file: Path, model: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe, step: int, tokens: int
) -> None:
    """Write everything that decides how the run goes on; the file before it stays until the new one is complete."""
    state = {
        "recipe": asdict(recipe),
        "step": step,
        "tokens": tokens,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "generator": torch.get_rng_state(),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".state-") as scratch:
        torch.save(state, Path(scratch) / file.name)
        os.replace(Path(scratch) / file.name, file)


def read_state(file: Path, model: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe) -> tuple[int, int]:
    """Put model, optimizer and random generator back to where they were; return steps and tokens done.

    Raises:
        InputError: if the file is not the state of a run of this model by this recipe.
    """
    remove = "remove it to begin again"
    try:
        state = torch.load(file, weights_only=True)  # tensors and plain values, no program code
        found = state["recipe"]
    except Exception as error:
        raise InputError(f"{file} is not the state of a run ({type(error).__name__}); {remove}") from error
    ours = asdict(recipe)
    if different := [
        f"{name}={found.get(name)} is now {value}" for name, value in ours.items() if found.get(name) != value
    ]:
        raise InputError(f"{file} is of another run ({', '.join(different)}); {remove}")
    try:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{file} is of another model ({str(error).splitlines()[0]}); {remove}") from error
    torch.set_rng_state(state["generator"])
    return int(state["step"]), int(state["tokens"])
