"""Seq2Seq computes what transformers and PyTorch compute, with any padding, at once and token by token."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from edgebert.checkpoints import open_checkpoint
from edgebert.models.activations import ACTIVATIONS
from edgebert.models.seq2seq.model import Seq2Seq, sinusoids
from tests.models.patterns import PATTERNS
from tests.models.tiny_bert import relative
from tests.models.tiny_seq2seq import KINDS, random_ids, randomized, save, targets

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{kind: (kind, {}) for kind in KINDS},
    **{f"scaled {kind}": (kind, {"scale_embedding": True}) for kind in KINDS},
    **{f"untied {kind}": (kind, {"tie_word_embeddings": False}) for kind in KINDS},
    **{f"{name} marian": ("marian", {"activation_function": name}) for name in ACTIVATIONS},
    "bart of relu": ("bart", {"activation_function": "relu"}),
    "two tables": ("marian", {"share_encoder_decoder_embeddings": False}),
    "two vocabularies": ("marian", {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 47}),
    "nothing tied": ("marian", {"tie_word_embeddings": False, "share_encoder_decoder_embeddings": False}),
    "an odd width": ("marian", {"d_model": 15, "decoder_attention_heads": 5}),
}


def ours(folder: Path, theirs: Any) -> Seq2Seq:
    model = open_checkpoint(save(theirs, folder)).load_model()
    assert isinstance(model, Seq2Seq)
    return model


@torch.no_grad()
def encoded(model: Seq2Seq, ids: Tensor, mask: Tensor) -> Tensor:
    """Return the hidden states (batch, source, dim) of the encoder."""
    return model.encode(ids, mask.bool()).reshape(*ids.shape, -1)


@torch.no_grad()
def stepwise(model: Seq2Seq, ids: Tensor, mask: Tensor, target_ids: Tensor) -> Tensor:
    """Return the logits (rows, target, vocab) of targets that are read a token at a time, several a source."""
    cross = model.cross(model.encode(ids, mask.bool()), len(ids))
    past, parts = model.empty_past(len(target_ids)), []
    for number in range(target_ids.shape[1]):
        tokens, position = target_ids[:, number : number + 1], torch.tensor([number])
        hidden, past = model.step(tokens, position, past, cross, mask.bool())
        parts.append(model.logits(hidden))
    config = model.config
    shape = (len(target_ids), config.decoder_attention_heads, target_ids.shape[1], config.head_dim)
    assert {tuple(tensor.shape) for cache in past for tensor in cache} == {shape}
    return torch.stack(parts, dim=1)


@torch.no_grad()
def expected(theirs: Any, ids: Tensor, mask: Tensor, target_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the states (source, dim) and logits (target, vocab) of one row, without the padding of its source."""
    real = ids[mask.bool()][None]
    actual = theirs(input_ids=real, attention_mask=torch.ones_like(real), decoder_input_ids=target_ids[None])
    return actual.encoder_last_hidden_state[0], actual.logits[0]


@pytest.mark.parametrize("case", VARIANTS)
def test_states_and_logits_of_transformers(tmp_path: Path, case: str) -> None:
    kind, config = VARIANTS[case]
    theirs = randomized(kind, **config)
    model = ours(tmp_path, theirs)
    for pattern in PATTERNS.values():
        mask = torch.tensor(pattern)
        ids, target_ids = random_ids(mask), targets(6, len(mask))
        states, real = encoded(model, ids, mask), mask.bool()
        with torch.no_grad():
            logits = model(ids, mask, target_ids, torch.ones_like(target_ids))
        assert torch.isfinite(states).all()
        assert torch.isfinite(logits).all()
        for row in range(len(mask)):
            if real[row].any():
                target = expected(theirs, ids[row], mask[row], target_ids[row])
                assert relative(states[row, real[row]], target[0]) < 1e-5
                assert relative(logits[row], target[1]) < 1e-5


def test_variants_differ() -> None:
    """Each of the variants computes something else, so that none can pass for another."""
    ids, target_ids = targets(7, 1), targets(4, 1, 6)
    logits = [expected(randomized(k, **c), ids[0], torch.ones(7), target_ids[0])[1] for k, c in VARIANTS.values()]
    same = {
        frozenset((first, second))
        for first, item in zip(VARIANTS, logits, strict=True)
        for second, alternative in zip(VARIANTS, logits, strict=True)
        if first != second and item.shape == alternative.shape and relative(item, alternative) < 1e-4
    }
    names = [
        ["marian", "gelu marian", "gelu_python marian", "gelu_10 marian"],  # no state reaches 10, or 6 for relu6
        [
            f"{name} marian"
            for name in ("gelu_new", "gelu_pytorch_tanh", "gelu_accurate", "gelu_fast", "gelu_python_tanh")
        ],
        ["silu marian", "swish marian"],
        ["relu marian", "relu6 marian"],
    ]
    assert same == {frozenset(pair) for group in names for pair in combinations(group, 2)}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, 3])
def test_token_by_token(tmp_path: Path, kind: str, pattern: str, width: int) -> None:
    """Several targets share the keys and values of one source."""
    model, mask = ours(tmp_path, randomized(kind, decoder_vocab_size=53)), torch.tensor(PATTERNS[pattern])
    ids, target_ids = random_ids(mask), targets(19, len(mask) * width)
    actual = stepwise(model, ids, mask, target_ids)
    assert torch.isfinite(actual).all()
    repeated = [tensor.repeat_interleave(width, dim=0) for tensor in (ids, mask)]
    with torch.no_grad():
        assert relative(actual, model(*repeated, target_ids, torch.ones_like(target_ids))) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_targets_of_different_lengths(tmp_path: Path, kind: str) -> None:
    model = ours(tmp_path, randomized(kind))
    mask, lengths = torch.tensor(PATTERNS["right"]), [6, 1, 4]
    ids, target_ids = random_ids(mask), targets(6, 3)
    target_mask = torch.tensor([[1] * length + [0] * (6 - length) for length in lengths])
    with torch.no_grad():
        actual = model(ids, mask, target_ids, target_mask)
        assert torch.isfinite(actual).all()
        for row, length in enumerate(lengths):
            first = slice(row, row + 1)
            alone = model(ids[first], mask[first], target_ids[first, :length], target_mask[first, :length])
            assert relative(actual[row, :length], alone[0]) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_no_token_sees_a_later_one(tmp_path: Path, kind: str) -> None:
    model = ours(tmp_path, randomized(kind))
    ids, target_ids = targets(5, 1), targets(8, 1)
    alternative = torch.cat([target_ids[:, :5], target_ids[:, 5:].flip(1)], dim=1)
    with torch.no_grad():
        first, second = (
            model(ids, torch.ones_like(ids), inputs, torch.ones_like(inputs)) for inputs in (target_ids, alternative)
        )
    assert torch.equal(first[:, :5], second[:, :5])
    assert not torch.equal(first[:, 5:], second[:, 5:])


@pytest.mark.parametrize(("rows", "dim"), [(1, 1), (7, 2), (19, 24), (40, 15)])
def test_sinusoids_of_marian(rows: int, dim: int) -> None:
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    theirs = MarianSinusoidalPositionalEmbedding(rows, dim).create_weight()
    assert torch.allclose(sinusoids(rows, dim), theirs, atol=1e-6)
