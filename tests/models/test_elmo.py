"""ELMo reads as PyTorch's LSTMs read packed rows, wherever the padding of a row stands, and learns both ways."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import rnn

from edgebert.models.elmo.model import BiLanguageModel, Elmo, ElmoConfig, bidirectional_loss
from edgebert.models.mask_positions import front_positions
from edgebert.models.pooling import TOKEN_POOLINGS, SentenceEncoder
from edgebert.training import Loss, Progress, TrainingConfig, initialize, train
from tests.models.patterns import PATTERNS
from tests.models.tiny_bert import relative
from tests.support.tiny import randomize

# The width of a direction is 12, and every other size is another number.
SIZES: dict[str, Any] = {"vocab_size": 37, "hidden_size": 24, "num_hidden_layers": 3, "max_tokens": 19}


def made(**changed: Any) -> Elmo:
    """Return a model with random weights, large enough that every part of it matters."""
    elmo = Elmo(ElmoConfig(**{**SIZES, **changed}))
    randomize(elmo)
    for name, parameter in elmo.named_parameters():
        if name.startswith("layers"):
            parameter.data *= 6  # gates that open and close
    return elmo.eval()


def random_ids(mask: Tensor, seed: int = 3) -> Tensor:
    """Return ids (batch, seq), of padding as well."""
    return torch.from_numpy(np.random.default_rng(seed).integers(0, SIZES["vocab_size"], mask.shape))


def packed(elmo: Elmo, rows: list[Tensor]) -> list[list[Tensor]]:
    """Return the layers, (n, dim) for each row of ids (n,), by LSTMs of PyTorch that read both ways at once."""
    size = elmo.config.direction_size
    tokens = [elmo.token_embedding.weight[row] for row in rows]
    sides = [tokens, tokens]
    layers = [[torch.cat(pair, dim=1) for pair in zip(*sides, strict=True)]]
    for number in range(elmo.config.num_hidden_layers):
        state = elmo.layers[number].state_dict()
        lstm = nn.LSTM(size, size, bidirectional=True)
        names = {"forwards.": "", "backwards.": "_reverse"}
        own = {key.removeprefix(way) + end: x for way, end in names.items() for key, x in state.items() if way in key}
        own = {key.replace("forwards.", ""): x for key, x in own.items()}
        lstm.load_state_dict(own)
        read = [rnn.unpack_sequence(lstm(rnn.pack_sequence(side, enforce_sorted=False))[0]) for side in sides]
        halves = [[whole[:, :size] for whole in read[0]], [whole[:, size:] for whole in read[1]]]
        if number:
            halves = [[new + old for new, old in zip(*pair, strict=True)] for pair in zip(halves, sides, strict=True)]
        sides = halves
        layers.append([torch.cat(pair, dim=1) for pair in zip(*sides, strict=True)])
    return layers


def expected(elmo: Elmo, rows: list[Tensor]) -> list[Tensor]:
    """Return the mixed vectors (n, dim) of each row, with the weights of the layers worked out one by one."""
    weights = [math.exp(weight) for weight in elmo.mix.weight.tolist()]
    shares = [float(elmo.mix.scale) * weight / sum(weights) for weight in weights]
    stacked = [torch.stack(layers) for layers in zip(*packed(elmo, rows), strict=True)]  # (layers, n, dim) of each row
    return [torch.einsum("l,lnd->nd", torch.tensor(shares), row) for row in stacked]


@torch.no_grad()
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_lstms_of_pytorch(pattern: str, layers: int) -> None:
    elmo, mask = made(num_hidden_layers=layers), torch.tensor(PATTERNS[pattern])
    ids, real = random_ids(mask), mask.bool()
    actual = elmo(ids, mask)
    assert actual.shape == (*mask.shape, 24)
    there = [row for row in range(len(mask)) if real[row].any()]
    target = expected(elmo, [ids[row, real[row]] for row in there])
    for row, vectors in zip(there, target, strict=True):
        assert relative(actual[row, real[row]], vectors) < 1e-5
    assert torch.equal(actual[~real], torch.zeros_like(actual[~real]))
    assert torch.isfinite(elmo.encode(ids, real)).all()


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_padding_does_not_matter_wherever_it_stands(data: st.DataObject) -> None:
    batch, seq = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 12))
    rows = st.lists(st.lists(st.integers(0, 1), min_size=seq, max_size=seq), min_size=batch, max_size=batch)
    mask = torch.tensor(data.draw(rows))
    elmo, real, seed = made(), mask.bool(), data.draw(st.integers(0, 9))
    ids = random_ids(mask, seed)
    with torch.no_grad():
        actual = elmo(ids, mask)
        # Any id may stand at padding.
        assert torch.equal(elmo(torch.where(real, ids, random_ids(mask, seed + 10)), mask), actual)
        for row in range(batch):
            if real[row].any():
                alone = ids[row, real[row]][None]
                assert relative(actual[row, real[row]], elmo(alone, torch.ones_like(alone))[0]) < 1e-5


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=4))
def test_real_tokens_come_to_the_front_in_order(pattern: list[list[bool]]) -> None:
    for places, row in zip(front_positions(torch.tensor(pattern)).tolist(), pattern, strict=True):
        order = [place for expected in (True, False) for place, real in enumerate(row) if real == expected]
        assert [order[place] for place in places] == list(range(5))


@torch.no_grad()
def test_only_the_rows_asked_for() -> None:
    elmo, mask = made(), torch.tensor(PATTERNS["left"])
    ids, rows = random_ids(mask), torch.tensor([11, 2, 2])
    every = elmo.encode(ids, mask.bool())
    assert torch.equal(elmo.encode(ids, mask.bool(), None, rows), every[rows])
    assert torch.equal(elmo.encode(ids, mask.bool(), torch.ones_like(ids)), every)


@torch.no_grad()
@pytest.mark.parametrize("pooling", TOKEN_POOLINGS)
def test_pooling_is_that_of_the_vectors(pooling: str) -> None:
    elmo, mask = made(), torch.tensor([*PATTERNS["holes"], [0, 0, 0, 0]])
    ids = random_ids(mask)
    actual = SentenceEncoder(elmo, pooling, normalize=False)(ids, mask)
    for row in range(3):
        (vectors,) = expected(elmo, [ids[row, mask[row].bool()]])
        numbers = torch.arange(1.0, len(vectors) + 1)
        choices = {
            "cls": vectors[0],
            "last": vectors[-1],
            "mean": vectors.mean(0),
            "max": vectors.amax(0),
            "mean_sqrt_len_tokens": vectors.sum(0) / len(vectors) ** 0.5,
            "weightedmean": numbers @ vectors / numbers.sum(),
        }
        assert relative(actual[row], choices[pooling]) < 1e-5
    assert not actual[3].any()


@torch.no_grad()
def test_no_direction_knows_what_it_predicts() -> None:
    """Nothing behind a token changes what is read forwards up to it, and nothing before it what is read backwards."""
    elmo, lengths = made(), torch.tensor([8], dtype=torch.int32)
    ids = torch.arange(8)[:, None]
    second = ids.clone()
    second[4] = 30
    for first, changed in zip(*(elmo.read(row, lengths)[0] for row in (ids, second)), strict=True):
        assert torch.equal(first[:4], changed[:4])
        assert not torch.isclose(first[4:], changed[4:]).all()
    for first, changed in zip(*(elmo.read(row, lengths)[1] for row in (ids, second)), strict=True):
        assert torch.equal(first[5:], changed[5:])
        assert not torch.isclose(first[:5], changed[:5]).all()


@torch.no_grad()
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("pattern", [name for name in PATTERNS if name != "one token"])
def test_costs_are_those_of_each_token_by_itself(pattern: str, tied: bool) -> None:
    """A token is predicted from the pieces of its row that end or begin beside it, each read alone by PyTorch."""
    elmo, mask = made(), torch.tensor(PATTERNS[pattern])
    model = BiLanguageModel(elmo, tied)
    table = elmo.token_embedding.weight if model.head is None else model.head.weight
    ids = random_ids(mask)
    forwards, backwards = [], []
    for row, real in zip(ids, mask.bool(), strict=True):
        tokens = row[real]
        for place in range(1, len(tokens)):
            left, right = packed(elmo, [tokens[:place]])[-1][0][-1, :12], packed(elmo, [tokens[place:]])[-1][0][0, 12:]
            forwards.append(-float((table @ left).log_softmax(0)[tokens[place]]))
            backwards.append(-float((table @ right).log_softmax(0)[tokens[place - 1]]))
    ahead, back = model(ids, mask)
    np.testing.assert_allclose(sorted(ahead.tolist()), sorted(forwards), rtol=1e-4)
    np.testing.assert_allclose(sorted(back.tolist()), sorted(backwards), rtol=1e-4)
    mean = (sum(forwards) + sum(backwards)) / (2 * len(forwards))
    assert float(bidirectional_loss(model, ids, mask)) == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_every_parameter_has_a_part_in_the_loss(tied: bool) -> None:
    model, mask = BiLanguageModel(made(), tied), torch.tensor(PATTERNS["right"])
    bidirectional_loss(model, random_ids(mask), mask).backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        if name.startswith("elmo.mix"):
            assert parameter.grad is None  # a task learns these
        else:
            assert parameter.grad is not None, name
            assert bool(parameter.grad.any()), name


def sentences(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield rows that count up by threes, with padding at random places."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        rows, seq = torch.randint(37, (8, 1), generator=generator), 9
        mask = torch.rand(8, seq, generator=generator) < 0.8
        ids = (rows + 3 * (mask.long().cumsum(1) - 1)) % 37
        yield torch.where(mask, ids, 0), mask.long()


def two_way(model: BiLanguageModel, batch: tuple[Tensor, Tensor]) -> Loss:
    ids, mask = batch
    return Loss(bidirectional_loss(model, ids, mask), int(mask.sum()), int(mask.sum()))


def test_both_directions_learn() -> None:
    torch.manual_seed(1)
    model = BiLanguageModel(Elmo(ElmoConfig(**{**SIZES, "num_hidden_layers": 2})))
    initialize(model, std=0.1)
    reports: list[Progress] = []
    config = TrainingConfig(steps=200, learning_rate=0.05, warmup_steps=10, weight_decay=0.0)
    train(model, sentences(1), two_way, config, report=reports.append)
    ids, mask = next(sentences(2))
    with torch.no_grad():
        counting, others = (torch.stack(model(rows, mask)).mean(1) for rows in (ids, random_ids(mask)))
    assert reports[0].loss > 1
    assert bool((counting < 0.1).all())
    assert bool((others > 2).all())  # where tokens do not follow from each other


class Task(nn.Module):
    """A linear layer on the vectors of a frozen ELMo, whose mixing is learned along."""

    def __init__(self, elmo: Elmo) -> None:
        super().__init__()
        self.encoder = SentenceEncoder(elmo.requires_grad_(False), "mean", normalize=False)
        elmo.mix.requires_grad_(True)
        self.out = nn.Linear(24, 37)


def test_a_task_learns_which_layers_it_needs() -> None:
    """The token itself is best read from the tokens, and not from what stands around them."""
    elmo = made(num_hidden_layers=2)
    nn.init.zeros_(elmo.mix.weight)
    nn.init.ones_(elmo.mix.scale)
    task = Task(elmo)

    def which(model: Task, batch: tuple[Tensor, Tensor]) -> Loss:
        ids, mask = batch
        hidden = elmo.encode(ids, mask.bool())[mask.flatten().bool()]
        mean = nn.functional.cross_entropy(model.out(hidden), ids[mask.bool()])
        return Loss(mean, len(hidden), len(hidden))

    before = {name: tensor.clone() for name, tensor in elmo.state_dict().items()}
    train(task, sentences(3), which, TrainingConfig(steps=80, learning_rate=0.05, weight_decay=0.0))
    shares, scale = elmo.mix.weight.detach().softmax(0), elmo.mix.scale.detach()
    assert float(shares[0]) > 0.6
    assert float(scale) > 1
    changed = {name for name, tensor in elmo.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"mix.weight", "mix.scale"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"hidden_size": 25}, "hidden_size=25 is not even, and each direction has one half of it"),
        ({"hidden_size": 0}, "hidden_size=0 is not a whole number from 1 to 65536"),
        ({"num_hidden_layers": 1.5}, "num_hidden_layers=1.5 is not a whole number from 1 to 1000"),
        (
            {"vocab_size": True, "max_tokens": -3},
            "vocab_size=True is not a whole number from 1 to 16777216; "
            "max_tokens=-3 is not a whole number from 1 to 16777216",
        ),
    ],
)
def test_sizes_that_make_no_sense(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        ElmoConfig(**{**SIZES, **changed})
    assert str(caught.value) == message


def test_sizes_are_those_of_the_tensors() -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in Elmo(ElmoConfig(**SIZES)).state_dict().items()}
    gates = {"weight_ih_l0": (48, 12), "weight_hh_l0": (48, 12), "bias_ih_l0": (48,), "bias_hh_l0": (48,)}
    lstms = [f"layers.{number}.{way}" for number in range(3) for way in ("forwards", "backwards")]
    expected = {f"{lstm}.{name}": shape for lstm in lstms for name, shape in gates.items()}
    assert shapes == {"token_embedding.weight": (37, 12), "mix.weight": (4,), "mix.scale": (1,), **expected}
