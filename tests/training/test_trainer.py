"""The loop computes what its papers say, and a run that was stopped ends where it would have ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgebert.models.gpt2.heads import Gpt2LanguageModel
from edgebert.models.gpt2.model import Gpt2, Gpt2Config
from edgebert.training import Loss, Progress, TrainingConfig, initialize, train
from edgebert_runtime.errors import InputError

Floats = npt.NDArray[np.float64]
TRAINING = TrainingConfig(steps=12, learning_rate=0.02, warmup_steps=3, seed=5)
CONFIG = Gpt2Config(
    vocab_size=29,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=40,
    max_position_embeddings=12,
)


class Noisy(nn.Module):
    """A decoder whose ids are dropped at random while it is trained: every step draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Gpt2LanguageModel(Gpt2(CONFIG))
        initialize(self.model, residual_layers=2)

    def forward(self, ids: Tensor) -> Tensor:
        remaining = functional.dropout(torch.ones(ids.shape), 0.2, self.training) != 0
        hidden = self.model.gpt2.encode(ids * remaining, torch.ones_like(remaining))
        return self.model.logits(hidden)


def next_token(model: Noisy, rows: Tensor) -> Loss:
    mean = functional.cross_entropy(model(rows[:, :-1]).float(), rows[:, 1:].flatten())
    return Loss(mean, rows[:, 1:].numel(), rows.numel())


def rows(seed: int = 1) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    while True:
        first = torch.randint(29, (4, 1), generator=generator)
        yield (first + 3 * torch.arange(11)) % 29  # each token follows from the one before


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def squared(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Loss:
    x, y = batch
    return Loss((model(x) - y).square().sum(1).mean(), len(x), len(x))


def points(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 3, generator=generator), torch.randn(count, 2, generator=generator)


def adamw(
    weight: Floats, bias: Floats, batches: list[tuple[Tensor, Tensor]], config: TrainingConfig
) -> tuple[Floats, Floats]:
    """Fit a linear layer as Loshchilov and Hutter (2019), algorithm 2, have it, with the gradient clipped."""
    values, first, second = [weight, bias], [0.0 * weight, 0.0 * bias], [0.0 * weight, 0.0 * bias]
    (beta1, beta2), decays = config.betas, (config.weight_decay, 0.0)
    for step, batch in enumerate(batches):
        x, y = (part.double().numpy() for part in batch)
        error = 2 * (x @ values[0].T + values[1] - y) / len(x)
        gradients = [error.T @ x, error.sum(0)]
        length = np.sqrt(sum((gradient**2).sum() for gradient in gradients))
        rate = config.learning_rate_at(step)
        for i, gradient in enumerate(gradients):
            gradient = gradient * min(1.0, config.max_grad_norm / length)
            first[i] = beta1 * first[i] + (1 - beta1) * gradient
            second[i] = beta2 * second[i] + (1 - beta2) * gradient**2
            mean, square = first[i] / (1 - beta1 ** (step + 1)), second[i] / (1 - beta2 ** (step + 1))
            values[i] = values[i] - rate * (mean / (np.sqrt(square) + 1e-8) + decays[i] * values[i])
    return values[0], values[1]


@pytest.mark.parametrize("clip", [0.5, 1e6])
def test_weights_are_those_of_the_paper(clip: float) -> None:
    config = TrainingConfig(steps=15, learning_rate=0.05, warmup_steps=4, weight_decay=0.3, max_grad_norm=clip)
    model, batches = nn.Linear(3, 2), [points(5, seed) for seed in range(15)]
    weight, bias = model.weight.detach().double().numpy().copy(), model.bias.detach().double().numpy().copy()
    train(model, batches, squared, config)
    expected = adamw(weight, bias, batches, config)
    np.testing.assert_allclose(model.weight.detach().numpy(), expected[0], rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(model.bias.detach().numpy(), expected[1], rtol=2e-5, atol=2e-6)


def test_batches_of_unequal_weight_add_up_to_one_large_batch() -> None:
    parts = [points(count, seed) for seed, count in enumerate([5, 1, 3] * 4)]
    groups = [parts[i : i + 3] for i in range(0, 12, 3)]
    whole = [(torch.cat([x for x, _ in group]), torch.cat([y for _, y in group])) for group in groups]
    small, large = nn.Linear(3, 2), nn.Linear(3, 2)
    large.load_state_dict(small.state_dict())
    config = TrainingConfig(steps=4, learning_rate=0.1, max_grad_norm=0.0)
    losses: dict[str, list[float]] = {"small": [], "large": []}
    train(
        small,
        parts,
        squared,
        replace(config, gradient_accumulation_steps=3),
        report=lambda progress: losses["small"].append(progress.loss),
        report_every=1,
    )
    train(large, whole, squared, config, report=lambda progress: losses["large"].append(progress.loss), report_every=1)
    torch.testing.assert_close(small.weight, large.weight, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(small.bias, large.bias, rtol=1e-5, atol=1e-6)
    assert losses["small"] == pytest.approx(losses["large"], rel=1e-5)


@pytest.mark.parametrize("bfloat16", [False, True])
def test_the_loss_falls_and_progress_is_told(bfloat16: bool) -> None:
    told: list[Progress] = []
    model = Noisy()
    config = replace(TRAINING, steps=45, bfloat16=bfloat16)
    train(model, rows(), next_token, config, report=told.append, report_every=10)
    assert [progress.step for progress in told] == [10, 20, 30, 40, 45]
    assert [progress.tokens for progress in told] == [step * 44 for step in (10, 20, 30, 40, 45)]
    assert {progress.steps for progress in told} == {45}
    assert [progress.learning_rate for progress in told] == [
        config.learning_rate_at(step - 1) for step in (10, 20, 30, 40, 45)
    ]
    assert all(progress.tokens_per_second > 0 and progress.grad_norm > 0 for progress in told)
    assert told[0].loss < np.log(29)
    assert told[-1].loss < told[0].loss / 2
    assert not model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.parametrize(("stops", "bfloat16"), [([1], False), ([4, 5, 11], False), ([12], False), ([7], True)])
def test_a_stopped_run_gives_the_same_weights(stops: list[int], bfloat16: bool, tmp_path: Path) -> None:
    config = replace(TRAINING, gradient_accumulation_steps=2, bfloat16=bfloat16)
    straight = Noisy()
    train(straight, rows(), next_token, config)
    state = tmp_path / "runs" / "run.state"
    for until in [*stops, None]:
        stopped = Noisy()  # a new process knows nothing but the file
        train(stopped, rows(), next_token, config, state=state, until=until)
    assert_same(weights(stopped), weights(straight))
    assert [file.name for file in state.parent.iterdir()] == ["run.state"]


def test_a_run_is_kept_now_and_then(tmp_path: Path) -> None:
    state, straight, again = tmp_path / "run.state", Noisy(), Noisy()
    train(straight, rows(), next_token, TRAINING)

    calls = 0

    def breaking(model: Noisy, batch: Tensor) -> Loss:
        nonlocal calls
        calls += 1
        if calls == 11:
            raise KeyboardInterrupt
        return next_token(model, batch)

    with pytest.raises(KeyboardInterrupt):
        train(Noisy(), rows(), breaking, TRAINING, state=state, state_every=4)
    told: list[Progress] = []
    train(again, rows(), next_token, TRAINING, state=state, report=told.append, report_every=1)
    assert [progress.step for progress in told] == [9, 10, 11, 12]
    assert told[-1].tokens == 12 * 44
    assert_same(weights(again), weights(straight))


def test_the_seed_decides_and_the_callers_random_numbers_stay() -> None:
    actual = []
    for seed in (5, 5, 6):
        model = Noisy()
        torch.manual_seed(77)
        train(model, rows(), next_token, replace(TRAINING, seed=seed))
        actual.append((weights(model), torch.rand(3)))
    assert_same(actual[0][0], actual[1][0])
    assert not torch.equal(
        actual[0][0]["model.gpt2.token_embedding.weight"], actual[2][0]["model.gpt2.token_embedding.weight"]
    )
    torch.manual_seed(77)
    expected = torch.rand(3)
    assert all(torch.equal(drawn, expected) for _, drawn in actual)


def test_what_is_frozen_stays() -> None:
    model = Noisy()
    model.model.gpt2.token_embedding.requires_grad_(False)
    before = weights(model)
    train(model, rows(), next_token, TRAINING)
    changed = {name for name, tensor in weights(model).items() if not torch.equal(tensor, before[name])}
    assert changed == set(before) - {"model.gpt2.token_embedding.weight"}


def test_batches_that_end_are_told() -> None:
    source = [batch for _, batch in zip(range(7), rows(), strict=False)]
    with pytest.raises(InputError, match=r"^the batches ended at step 3 of 12; repeat them or take fewer steps$"):
        train(Noisy(), source, next_token, replace(TRAINING, gradient_accumulation_steps=2))


def test_a_gradient_that_is_no_number_is_told() -> None:
    model = Noisy()
    before = weights(model)

    def broken(model: Noisy, batch: Tensor) -> Loss:
        actual = next_token(model, batch)
        return actual._replace(mean=actual.mean * torch.nan)

    with pytest.raises(InputError, match=r"^the gradient is nan at step 0; lower the rate \(6.7e-03\)"):
        train(model, rows(), broken, TRAINING)
    assert_same(weights(model), before)


def spoil(state: Path, how: str) -> Any:
    """Make the state one that cannot be gone on from, and return the run that tries."""
    if how == "cut":
        state.write_bytes(state.read_bytes()[:1000])
    if how == "empty":
        state.write_bytes(b"")
    if how == "code":
        torch.save({"config": print}, state)
    faster = replace(TRAINING, learning_rate=0.5, steps=13)
    return {
        "config": lambda: train(Noisy(), rows(), next_token, faster, state=state),
        "model": lambda: train(nn.Linear(3, 2), cycle([points(4, 1)]), squared, TRAINING, state=state),
    }.get(how, lambda: train(Noisy(), rows(), next_token, TRAINING, state=state))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("cut", r"run\.state is not the state of a run \(RuntimeError\); remove it to begin again$"),
        ("empty", r"run\.state is not the state of a run \(EOFError\); remove it to begin again$"),
        ("code", r"run\.state is not the state of a run \(UnpicklingError\); remove it to begin again$"),
        ("config", r"run\.state is of another run \(steps=12 is now 13, learning_rate=0\.02 is now 0\.5\); remove it"),
        ("model", r"run\.state is of another model \(Error\(s\) in loading state_dict for Linear:\); remove it"),
    ],
)
def test_another_runs_state_is_refused(how: str, message: str, tmp_path: Path) -> None:
    state = tmp_path / "run.state"
    train(Noisy(), rows(), next_token, TRAINING, state=state, until=2)
    attempt = spoil(state, how)
    before = state.read_bytes()
    with pytest.raises(InputError, match=message):
        attempt()
    assert state.read_bytes() == before


def test_the_state_before_stays_until_the_new_one_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "run.state"
    train(Noisy(), rows(), next_token, TRAINING, state=state, until=2)
    before = state.read_bytes()

    def full(content: object, file: Path) -> None:
        file.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="no space left"):
        train(Noisy(), rows(), next_token, TRAINING, state=state, until=4)
    assert state.read_bytes() == before
    assert list(tmp_path.iterdir()) == [state]
