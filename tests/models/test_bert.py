"""The reference BERT computes what transformers' does, from the files that transformers saves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import transformers
from fetch_minilm import fetch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from edgebert.checkpoints import open_checkpoint
from edgebert.models.activations import ACTIVATIONS
from edgebert.models.bert.heads import HeadConfig
from edgebert.models.bert.model import Bert, BertConfig
from edgebert.models.pooling import TOKEN_POOLINGS, SentenceEncoder
from tests.models.tiny_bert import SIZES, random_ids, randomized, relative, save

PATTERNS = {
    "one token": [[1]],
    "no padding": [[1, 1, 1, 1], [1, 1, 1, 1]],
    "right": [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]],
    "left": [[1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]],
    "holes": [[1, 0, 1, 1], [0, 1, 0, 1], [1, 0, 0, 1]],
    "an empty row": [[1, 1, 1, 0], [0, 0, 0, 0]],
    "nothing else": [[0, 0], [0, 0]],
    "all positions": [[1] * 19, [1] * 18 + [0]],
}
rows = st.integers(1, 19).flatmap(
    lambda seq: st.lists(st.lists(st.integers(0, 1), min_size=seq, max_size=seq), min_size=1, max_size=4)
)


@pytest.fixture(scope="module")
def model(folder: Path) -> Bert:
    return load_encoder(folder)


def load_encoder(folder: Path) -> Bert:
    model = open_checkpoint(folder).load_model()
    assert isinstance(model, Bert)
    return model


def alone(reference: Any, ids: Tensor, mask: Tensor, types: Tensor) -> list[Any]:
    """Run each row through the reference without its padding; None for a row of nothing else."""
    outputs: list[Any] = []
    for row, real in enumerate(mask.bool()):
        remaining = (ids[row, real][None], torch.ones_like(ids[row, real])[None], types[row, real][None])
        outputs.append(reference(*remaining) if real.any() else None)
    return outputs


@torch.no_grad()
def assert_rows_equal(model: Bert, reference: Any, mask: Tensor) -> None:
    """Compare the hidden states of a batch with those of each row alone."""
    ids, types = random_ids(mask)
    hidden = model(ids, mask, types)
    assert hidden.shape == (*mask.shape, SIZES["hidden_size"])
    for row, expected in enumerate(alone(reference, ids, mask, types)):
        real = mask[row].bool()
        assert not hidden[row, ~real].any()
        if expected is not None:
            assert relative(hidden[row, real], expected.last_hidden_state[0]) < 1e-5


@pytest.mark.parametrize("pattern", PATTERNS)
def test_padding_changes_nothing(model: Bert, reference: transformers.BertModel, pattern: str) -> None:
    assert_rows_equal(model, reference, torch.tensor(PATTERNS[pattern]))


@given(rows)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_mask(model: Bert, reference: transformers.BertModel, mask: list[list[int]]) -> None:
    assert_rows_equal(model, reference, torch.tensor(mask))


@torch.no_grad()
@pytest.mark.parametrize("pattern", ["no padding", "right", "left", "holes"])
def test_batch_equals_the_batch_of_transformers(model: Bert, reference: transformers.BertModel, pattern: str) -> None:
    mask = torch.tensor(PATTERNS[pattern])
    ids, types = random_ids(mask)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    expected = reference(ids, mask, types, position_ids=positions).last_hidden_state
    real = mask.bool()
    assert relative(model(ids, mask, types)[real], expected[real]) < 1e-5


@torch.no_grad()
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_activations(tmp_path: Path, activation: str) -> None:
    reference = randomized(transformers.BertModel, hidden_act=activation)
    model = load_encoder(save(reference, tmp_path))
    assert_rows_equal(model, reference, torch.tensor(PATTERNS["right"]))


@torch.no_grad()
def test_layer_norm_eps_is_read(tmp_path: Path) -> None:
    reference = randomized(transformers.BertModel, layer_norm_eps=0.5)
    model = load_encoder(save(reference, tmp_path))
    assert_rows_equal(model, reference, torch.tensor(PATTERNS["right"]))


@torch.no_grad()
def test_mask_and_segments_keep_their_places(model: Bert, reference: transformers.BertModel) -> None:
    mask = torch.tensor([[1, 1, 1, 1]])
    ids, types = random_ids(mask)
    plain = model(ids, mask, torch.zeros_like(types))
    for changed in ((ids, mask, types), (ids, torch.tensor([[1, 1, 1, 0]]), torch.zeros_like(types))):
        actual, real = model(*changed), changed[1].bool()
        assert relative(actual[real], reference(*changed).last_hidden_state[real]) < 1e-5
        assert relative(actual[real], plain[real]) > 1e-3


def formula(
    hidden: npt.NDArray[np.float32], mask: npt.NDArray[np.int64], pooling: str, normalize: bool
) -> npt.NDArray[np.float64]:
    """Pool row by row, the long way."""
    vectors = []
    for states, row in zip(hidden.astype(np.float64), mask, strict=True):
        real = states[row == 1]
        if not len(real):
            vectors.append(np.zeros(hidden.shape[-1]))
            continue
        numbers = np.arange(1, len(real) + 1)
        pooled = {
            "cls": real[0],
            "last": real[-1],
            "mean": real.mean(0),
            "max": real.max(0),
            "mean_sqrt_len_tokens": real.sum(0) / np.sqrt(len(real)),
            "weightedmean": numbers @ real / numbers.sum(),
        }[pooling]
        vectors.append(pooled / np.sqrt((pooled**2).sum()) if normalize else pooled)
    return np.stack(vectors)


@given(mask=rows)
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("pooling", TOKEN_POOLINGS)
@torch.no_grad()
def test_sentence_vectors(model: Bert, pooling: str, normalize: bool, mask: list[list[int]]) -> None:
    masks = torch.tensor(mask)
    ids, types = random_ids(masks)
    actual = SentenceEncoder(model, pooling, normalize)(ids, masks, types)
    expected = formula(model(ids, masks, types).numpy(), masks.numpy(), pooling, normalize)
    assert relative(actual, torch.from_numpy(expected).float()) < 1e-5
    assert actual.dtype == torch.float32


def test_unknown_pooling_is_refused(model: Bert) -> None:
    with pytest.raises(ValueError, match="'median' is not one of cls, mean, max, last"):
        SentenceEncoder(model, "median", normalize=True)


def test_gradients_reach_every_parameter(folder: Path) -> None:
    model = load_encoder(folder)
    mask = torch.tensor(PATTERNS["holes"])
    ids, types = random_ids(mask)
    hidden = model(ids, mask, types)
    (hidden * torch.randn_like(hidden)).sum().backward()
    silent = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not silent


def test_model_is_ready_for_inference(model: Bert) -> None:
    assert not model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}


BAD_HEADS: dict[str, Any] = {
    "reads": {"reads": "middle"},
    "activation": {"activation": "geglu", "hidden_size": 3},
    "hidden_size": {"activation": "tanh"},
    "num_outputs": {"num_outputs": 3, "spans": True},
}


@pytest.mark.parametrize("field", BAD_HEADS)
def test_impossible_head_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        HeadConfig(**{"reads": "first", "num_outputs": 2, **BAD_HEADS[field]})


BAD_CONFIGS: dict[str, Any] = {
    "vocab_size": ["53", 12.0, True, None, [53], 0, -1, 1 << 63],
    "num_hidden_layers": [0, 10**18],
    "num_attention_heads": [5, 10**400],
    "layer_norm_eps": [0.0, 1.0, float("inf"), float("nan"), "1e-12", None, True],
    "hidden_act": ["geglu", None, ["gelu"], {}],
}


@pytest.mark.parametrize(("field", "value"), [(key, value) for key, bad in BAD_CONFIGS.items() for value in bad])
def test_impossible_config_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field) as caught:
        BertConfig(**{**SIZES, field: value})
    assert len(str(caught.value)) < 400


def test_config_names_every_fault_at_once() -> None:
    with pytest.raises(ValueError, match=r"vocab_size=0 .*hidden_size=-4 .*hidden_act='x' "):
        BertConfig(**{**SIZES, "vocab_size": 0, "hidden_size": -4, "hidden_act": "x"})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def minilm(pytestconfig: pytest.Config) -> Path:
    assert pytestconfig.cache is not None
    return fetch(pytestconfig.cache.mkdir("edgebert") / "minilm")


TEXTS = [
    "A man is eating food.",
    "The new movie is awesome, but it is far too long: more than three hours!",
    "Ein Mädchen spielt Geige.",
    "x",
]


@pytest.mark.network
@torch.no_grad()
def test_minilm_equals_transformers(minilm: Path) -> None:
    checkpoint = open_checkpoint(minilm)
    assert (checkpoint.pooling, checkpoint.normalize) == ("mean", True)
    assert (checkpoint.max_tokens, checkpoint.default_tokens) == (512, 256)
    model, reference = load_encoder(minilm), transformers.BertModel.from_pretrained(minilm).eval()
    encoded = transformers.AutoTokenizer.from_pretrained(minilm)(TEXTS, padding=True, return_tensors="pt")
    ids, mask, types = encoded["input_ids"], encoded["attention_mask"], encoded["token_type_ids"]
    holes = (torch.rand(mask.shape, generator=torch.Generator().manual_seed(1)) > 0.3).long() * mask
    empty = mask * torch.tensor([[1], [0], [1], [1]])
    for given_ids, given_mask in ((ids, mask), (ids.flip(1), mask.flip(1)), (ids, holes), (ids, empty)):
        hidden = model(given_ids, given_mask, types)
        for row, expected in enumerate(alone(reference, given_ids, given_mask, types)):
            real = given_mask[row].bool()
            assert not hidden[row, ~real].any()
            if expected is not None:
                assert relative(hidden[row, real], expected.last_hidden_state[0]) < 1e-5
