"""Training state on disk: weights, optimizer and random generator after a step."""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from edgebert.training.training_config import TrainingConfig
from edgebert_runtime.errors import InputError


def write_state(
    file: Path, model: nn.Module, optimizer: torch.optim.Optimizer, config: TrainingConfig, step: int, tokens: int
) -> None:
    """Write the state of a run atomically."""
    state = {
        "config": asdict(config),
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


def read_state(
    file: Path, model: nn.Module, optimizer: torch.optim.Optimizer, config: TrainingConfig
) -> tuple[int, int]:
    """Restore model, optimizer and random generator; return the steps and tokens done.

    Raises:
        InputError: if the file is no training state, or one of another model or configuration.
    """
    remove = "remove it to begin again"
    try:
        state = torch.load(file, weights_only=True)  # tensors and plain values, no program code
        saved = state["config"]
    except Exception as error:
        raise InputError(f"{file} is not the state of a run ({type(error).__name__}); {remove}") from error
    changes = [
        f"{name}={saved.get(name)} is now {value}" for name, value in asdict(config).items() if saved.get(name) != value
    ]
    if changes:
        raise InputError(f"{file} is of another run ({', '.join(changes)}); {remove}")
    try:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{file} is of another model ({str(error).splitlines()[0]}); {remove}") from error
    torch.set_rng_state(state["generator"])
    return int(state["step"]), int(state["tokens"])
