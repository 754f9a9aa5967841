"""GPT-2 computes what transformers computes, with any padding, and however a text is cut into pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from edgebert.checkpoints import open_checkpoint
from edgebert.models.activations import ACTIVATIONS
from edgebert.models.gpt2.heads import Gpt2Classifier, Gpt2LanguageModel, fine_tuning_loss
from edgebert.models.gpt2.model import Gpt2, Gpt2Config
from tests.models.patterns import PATTERNS
from tests.models.tiny_bert import relative, save
from tests.models.tiny_gpt2 import SIZES, positions, random_ids, randomized

CONFIGS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "four times": {"n_inner": None},
    "scaled by layer": {"scale_attn_by_inverse_layer_idx": True},
    "not scaled": {"scale_attn_weights": False},
    "both": {"scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False},
    "upcast": {"reorder_and_upcast_attn": True, "scale_attn_by_inverse_layer_idx": True},
    "another epsilon": {"layer_norm_epsilon": 0.1},
    "untied": {"tie_word_embeddings": False},
    **{name: {"activation_function": name} for name in ACTIVATIONS},
}
# Names of the activation that GPT-2 has.
TANH_GELU = ("gelu_new", "gelu_pytorch_tanh", "gelu_accurate", "gelu_fast", "gelu_python_tanh")


def ours(folder: Path, theirs: Any) -> Gpt2LanguageModel:
    model = open_checkpoint(save(theirs, folder)).load_model()
    assert isinstance(model, Gpt2LanguageModel)
    return model


@torch.no_grad()
def logits(model: Gpt2LanguageModel, ids: Tensor, mask: Tensor, cuts: list[int] | None = None) -> Tensor:
    """Return the logits (batch, seq, vocab) of a text that is read in pieces between ``cuts``."""
    batch, total = ids.shape
    past, parts = model.gpt2.empty_past(batch), []
    for start, end in zip([0, *(cuts or [])], [*(cuts or []), total], strict=True):
        rows = torch.arange(batch * (end - start))
        part, past = model(ids[:, start:end], mask[:, :end], rows, past)
        parts.append(part.reshape(batch, end - start, -1))
    heads, width = model.gpt2.config.num_attention_heads, model.gpt2.config.head_dim
    assert {tuple(tensor.shape) for cache in past for tensor in cache} == {(batch, heads, total, width)}
    return torch.cat(parts, dim=1)


@torch.no_grad()
def expected(theirs: Any, ids: Tensor, mask: Tensor) -> Tensor:
    result: Tensor = theirs(ids, attention_mask=mask, position_ids=positions(mask)).logits
    return result


@pytest.mark.parametrize("case", CONFIGS)
def test_logits_of_transformers(tmp_path: Path, case: str) -> None:
    theirs = randomized(**CONFIGS[case])
    model = ours(tmp_path, theirs)
    plain = expected(randomized(), torch.tensor([[5, 6, 7]]), torch.ones(1, 3, dtype=torch.int64))
    changed = expected(theirs, torch.tensor([[5, 6, 7]]), torch.ones(1, 3, dtype=torch.int64))
    assert (relative(changed, plain) < 1e-6) == (case in ("as it is", *TANH_GELU))
    for pattern in PATTERNS.values():
        mask = torch.tensor(pattern)
        ids, real = random_ids(mask), mask.bool()
        actual = logits(model, ids, mask)
        assert torch.isfinite(actual).all()
        assert relative(actual[real], expected(theirs, ids, mask)[real]) < 1e-5


@pytest.mark.parametrize("pattern", PATTERNS)
def test_row_by_itself(tmp_path: Path, pattern: str) -> None:
    model, mask = ours(tmp_path, randomized()), torch.tensor(PATTERNS[pattern])
    ids = random_ids(mask)
    actual = logits(model, ids, mask)
    for row, real in enumerate(mask.bool()):
        if real.any():
            alone = ids[row, real][None]
            assert relative(actual[row, real], logits(model, alone, torch.ones_like(alone))[0]) < 1e-5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Gpt2LanguageModel:
    return ours(tmp_path_factory.mktemp("gpt2"), randomized())


@given(st.data())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_cut_gives_the_same(model: Gpt2LanguageModel, data: st.DataObject) -> None:
    batch, total = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 19))
    rows = st.lists(st.lists(st.integers(0, 1), min_size=total, max_size=total), min_size=batch, max_size=batch)
    mask = torch.tensor(data.draw(rows))
    cuts = sorted(data.draw(st.sets(st.integers(1, total - 1)))) if total > 1 else []
    ids, real = random_ids(mask, data.draw(st.integers(0, 9))), mask.bool()
    actual = logits(model, ids, mask, cuts)
    assert torch.isfinite(actual).all()
    assert relative(actual, logits(model, ids, mask)) < 1e-5
    assert relative(actual[real], expected(randomized(), ids, mask)[real]) < 1e-5


def test_only_the_rows_asked_for(model: Gpt2LanguageModel) -> None:
    mask = torch.tensor(PATTERNS["left"])
    ids, rows = random_ids(mask), torch.tensor([11, 2, 2])
    with torch.no_grad():
        actual, _ = model(ids, mask, rows, model.gpt2.empty_past(3))
    assert relative(actual, logits(model, ids, mask).flatten(0, 1)[rows]) < 1e-6


def test_past_does_not_see_the_future(model: Gpt2LanguageModel) -> None:
    ids = random_ids(torch.ones(1, 8, dtype=torch.int64))
    second = torch.cat([ids[:, :5], ids[:, 5:].flip(1)], dim=1)
    mask = torch.ones_like(ids)
    assert torch.equal(logits(model, ids, mask)[:, :5], logits(model, second, mask)[:, :5])


@pytest.mark.parametrize("pattern", PATTERNS)
@torch.no_grad()
def test_classifier_of_transformers(tmp_path: Path, pattern: str) -> None:
    theirs, mask = randomized("ForSequenceClassification", num_labels=4), torch.tensor(PATTERNS[pattern])
    checkpoint = open_checkpoint(save(theirs, tmp_path))
    assert (checkpoint.task, len(checkpoint.labels), checkpoint.decoding) == ("classify", 4, {})
    classifier = checkpoint.load_model()
    assert isinstance(classifier, Gpt2Classifier)
    ids, there = random_ids(mask), mask.bool().any(1)
    actual = classifier(ids, mask)
    assert torch.isfinite(actual).all()
    assert relative(actual[there], expected(theirs, ids, mask)[there]) < 1e-5
    # Any id may stand at padding, that of the last token too.
    assert torch.equal(classifier(torch.where(mask.bool(), ids, 5), mask)[there], actual[there])


@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("pattern", ["none", "right", "left"])
def test_fine_tuning_loss(tmp_path: Path, pattern: str, weight: float) -> None:
    """The two losses of transformers, of two models with the same weights, and their gradients."""
    classifier = randomized("ForSequenceClassification", num_labels=4)
    language = randomized()
    language.transformer = classifier.transformer
    language.tie_weights()
    model = open_checkpoint(save(classifier, tmp_path)).load_model()
    assert isinstance(model, Gpt2Classifier)
    mask = torch.tensor(PATTERNS[pattern])
    ids, labels = random_ids(mask), torch.arange(len(mask)) % 4
    inputs = {"attention_mask": mask, "position_ids": positions(mask)}
    first = functional.cross_entropy(classifier(ids, **inputs).logits, labels)
    # A token whose predecessor is padding has nothing to be guessed from.
    targets = ids.masked_fill(mask == 0, -100)
    targets[:, 1:][mask[:, :-1] == 0] = -100
    expected = first + weight * language(ids, labels=targets, **inputs).loss
    actual = fine_tuning_loss(model, ids, mask, labels, weight)
    assert relative(actual.detach()[None], expected.detach()[None]) < 1e-5
    (gradient,) = torch.autograd.grad(actual, [model.gpt2.token_embedding.weight])
    assert relative(gradient, torch.autograd.grad(expected, [classifier.transformer.wte.weight])[0]) < 1e-4
    randomized.cache_clear()


def test_fine_tuning_loss_without_pairs() -> None:
    """Rows of one token have no next token; what is left is the classification."""
    model = Gpt2Classifier(Gpt2(config()), 3)
    ids, mask, labels = torch.tensor([[5], [6]]), torch.ones(2, 1), torch.tensor([0, 2])
    assert float(fine_tuning_loss(model, ids, mask, labels).detach()) == pytest.approx(
        float(functional.cross_entropy(model(ids, mask), labels).detach())
    )


def config(**changed: Any) -> Gpt2Config:
    sizes = {"vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    return Gpt2Config(**{**sizes, "intermediate_size": 12, "max_position_embeddings": 7, **changed})


BAD: dict[str, Any] = {
    "vocab_size": 0, "hidden_size": 9, "num_hidden_layers": 1001, "num_attention_heads": "2",
    "intermediate_size": None, "max_position_embeddings": -1, "layer_norm_eps": 1, "hidden_act": "geglu",
    "scale_attn_weights": 1, "scale_attn_by_inverse_layer_idx": None,
}  # fmt: skip


@pytest.mark.parametrize("field", BAD)
def test_impossible_config_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field}={BAD[field]!r}"):
        config(**{field: BAD[field]})


def test_keys_that_may_be_missing(tmp_path: Path) -> None:
    """A checkpoint that names its sizes in the older way, and leaves out what is usual."""
    theirs = randomized(n_inner=None)
    data = json.loads((save(theirs, tmp_path) / "config.json").read_text())
    usual = ("n_inner", "activation_function", "layer_norm_epsilon", "scale_attn_weights", "n_positions")
    remaining = {key: value for key, value in data.items() if key not in usual}
    (tmp_path / "config.json").write_text(json.dumps({**remaining, "n_ctx": SIZES["n_positions"]}))
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.config == Gpt2Config(
        vocab_size=53,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=96,
        max_position_embeddings=19,
    )
    usual_act = transformers.GPT2Config()
    assert checkpoint.config.hidden_act == usual_act.activation_function
    assert checkpoint.config.layer_norm_eps == usual_act.layer_norm_epsilon
