"""Seq2Seq is the Transformer of torch.nn in its plain forms, and is trained as its paper says."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgebert.models.seq2seq.config import MAX_SINUSOIDS, Seq2SeqConfig
from edgebert.models.seq2seq.model import Seq2Seq, shift_right, sinusoids, translation_loss
from tests.models.patterns import PATTERNS
from tests.models.tiny_bert import relative
from tests.models.tiny_seq2seq import random_ids, randomized, targets

CONFIG = Seq2SeqConfig(
    vocab_size=53,
    decoder_vocab_size=47,
    hidden_size=24,
    encoder_layers=2,
    decoder_layers=3,
    encoder_attention_heads=3,
    decoder_attention_heads=4,
    encoder_intermediate_size=40,
    decoder_intermediate_size=36,
    max_position_embeddings=19,
)
BATCH = {
    "mask": torch.tensor(PATTERNS["right"]),
    "label_mask": torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]]),
}


def made(dropout: float = 0.0, **changed: Any) -> Seq2Seq:
    """Return a model with random weights, large enough for all of its parts to matter."""
    model = Seq2Seq(dataclasses.replace(CONFIG, **changed), dropout)
    generator = torch.Generator().manual_seed(11)
    for name, tensor in model.state_dict().items():
        noise = torch.randn(tensor.shape, generator=generator) * 0.3
        tensor.copy_(noise + 1 if name.endswith("norm.weight") else noise)
    return model.eval()


def of_torch(model: Seq2Seq) -> nn.Transformer:
    """Return PyTorch's Transformer with the layers of a model in which both sides have the same sizes."""
    config = model.config
    dim, heads, form = config.hidden_size, config.decoder_attention_heads, dict[str, Any](batch_first=True)
    form |= {"dim_feedforward": config.decoder_intermediate_size, "activation": config.hidden_act}
    form["norm_first"] = config.norm == "pre"
    norms = [nn.LayerNorm(dim) if config.final_norm else None for _ in range(2)]
    layer, second = nn.TransformerEncoderLayer(dim, heads, **form), nn.TransformerDecoderLayer(dim, heads, **form)
    encoder = nn.TransformerEncoder(layer, config.encoder_layers, norms[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(second, config.decoder_layers, norms[1])
    theirs = nn.Transformer(dim, heads, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)
    state: dict[str, Tensor] = {}
    sides = (("encoder", config.encoder_layers), ("decoder", config.decoder_layers))
    for side, layers in sides:
        weights = {name.removeprefix(f"{side}."): x for name, x in model.state_dict().items() if name.startswith(side)}
        state |= {f"{side}.{name}": x for name, x in weights.items() if name.startswith("norm.")}
        for number in range(layers):
            for leaf in ("weight", "bias"):
                of, to = f"layers.{number}", f"{side}.layers.{number}"
                state[f"{to}.self_attn.in_proj_{leaf}"] = weights[f"{of}.qkv.{leaf}"]
                state[f"{to}.self_attn.out_proj.{leaf}"] = weights[f"{of}.attention_output.{leaf}"]
                state[f"{to}.linear1.{leaf}"] = weights[f"{of}.ffn_up.{leaf}"]
                state[f"{to}.linear2.{leaf}"] = weights[f"{of}.ffn_down.{leaf}"]
                parts = ("attention", "ffn") if side == "encoder" else ("attention", "cross_attention", "ffn")
                for place, part in enumerate(parts, start=1):
                    state[f"{to}.norm{place}.{leaf}"] = weights[f"{of}.{part}_norm.{leaf}"]
                if side == "decoder":
                    stacked = [
                        weights[f"{of}.{part}.{leaf}"]
                        for part in ("cross_attention_query", "cross_attention_key_value")
                    ]
                    state[f"{to}.multihead_attn.in_proj_{leaf}"] = torch.cat(stacked)
                    state[f"{to}.multihead_attn.out_proj.{leaf}"] = weights[f"{of}.cross_attention_output.{leaf}"]
    theirs.load_state_dict(state)
    return theirs.eval()


def positions(length: int, dim: int) -> Tensor:
    """Return the formula of the paper, number by number, all sines before all cosines."""
    table = [
        [math.sin(p / 10000 ** (2 * i / dim)) for i in range(dim // 2)]
        + [math.cos(p / 10000 ** (2 * i / dim)) for i in range(dim // 2)]
        for p in range(length)
    ]
    return torch.tensor(table)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("own", [None, 47])
def test_the_transformer_of_torch(norm: str, activation: str, final: bool, own: int | None) -> None:
    """The form of 2017 and its usual variations."""
    same = {"encoder_attention_heads": 4, "encoder_intermediate_size": 36, "scale_embedding": True}
    model = made(norm=norm, hidden_act=activation, final_norm=final, decoder_vocab_size=own, output_bias=False, **same)
    theirs, dim = of_torch(model), CONFIG.hidden_size
    mask, target_mask = BATCH["mask"], BATCH["label_mask"]
    ids, target_ids = random_ids(mask), targets(4, 3)
    source, target = (
        table(inputs) * dim**0.5 + positions(4, dim)
        for table, inputs in ((model.token_embedding, ids), (model.target_embedding, target_ids))
    )
    with torch.no_grad():
        hidden = theirs(
            source,
            target,
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.bool),
            src_key_padding_mask=mask == 0,
            memory_key_padding_mask=mask == 0,
            tgt_key_padding_mask=target_mask == 0,
        )
        actual = model(ids, mask, target_ids, target_mask)
    expected = hidden @ model.target_embedding.weight.detach().T
    assert actual.shape == (3, 4, own or CONFIG.vocab_size)
    real = target_mask.bool()
    assert relative(actual[real], expected[real]) < 1e-5


def test_labels_are_shifted() -> None:
    labels = torch.tensor([[7, 8, 2, 0], [9, 2, 0, 0]])
    assert shift_right(labels, 5).tolist() == [[5, 7, 8, 2], [5, 9, 2, 0]]
    assert shift_right(labels[:, :1], 5).tolist() == [[5], [5]]


def smoothed(logits: Tensor, label: int, smoothing: float) -> float:
    """Return the cross-entropy of one label, number by number, of which a share is spread over all tokens."""
    powers = [math.exp(value) for value in logits.tolist()]
    logprobs = [math.log(power / sum(powers)) for power in powers]
    share = smoothing / len(powers)
    return -sum(value * (share + (1 - smoothing) * (token == label)) for token, value in enumerate(logprobs))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_loss_by_hand_and_of_torch(smoothing: float) -> None:
    model, (mask, label_mask) = made(), BATCH.values()
    ids, labels = random_ids(mask), targets(4, 3, 9)
    read = [[3, *row[:-1]] for row in labels.tolist()]
    with torch.no_grad():
        logits = model(ids, mask, torch.tensor(read), label_mask)
        actual = translation_loss(model, ids, mask, labels, label_mask, 3, smoothing)
        plain = translation_loss(model, ids, mask, labels, label_mask, 3)
    said = [(row, place) for row, place in label_mask.nonzero().tolist()]
    losses = [smoothed(logits[row, place], int(labels[row, place]), smoothing) for row, place in said]
    assert len(losses) == 7
    assert float(actual) == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    marked = labels.masked_fill(label_mask == 0, -100)
    expected = functional.cross_entropy(logits.flatten(0, 1), marked.flatten(), label_smoothing=smoothing)
    assert float(actual) == pytest.approx(float(expected), rel=1e-5)
    assert (float(actual) == float(plain)) == (smoothing == 0.1)


def test_loss_of_transformers() -> None:
    """Without smoothing it is what transformers trains with, and so are its gradients."""
    theirs = randomized("marian")
    model = made(decoder_vocab_size=None, hidden_act="gelu")
    model.load_state_dict(from_marian(theirs, model))
    (mask, label_mask), labels = BATCH.values(), targets(4, 3, 9).clamp(min=2)
    ids = random_ids(mask).clamp(min=2)  # embeddings of padding, token 1, are not trained there
    expected = theirs(input_ids=ids, attention_mask=mask, labels=labels.masked_fill(label_mask == 0, -100)).loss
    actual = translation_loss(model, ids, mask, labels, label_mask, 3, smoothing=0.0)
    assert relative(actual.detach()[None], expected.detach()[None]) < 1e-5
    (gradient,) = torch.autograd.grad(actual, [model.token_embedding.weight])
    assert relative(gradient, torch.autograd.grad(expected, [theirs.model.shared.weight])[0]) < 1e-4


def from_marian(theirs: Any, model: Seq2Seq) -> dict[str, Tensor]:
    """Return the weights of a Marian of transformers under our names, which are put together by hand."""
    state = dict(theirs.state_dict())
    names = {
        "attention_output": "self_attn.out_proj", "attention_norm": "self_attn_layer_norm", "ffn_up": "fc1",
        "ffn_down": "fc2", "ffn_norm": "final_layer_norm", "cross_attention_query": "encoder_attn.q_proj",
        "cross_attention_output": "encoder_attn.out_proj", "cross_attention_norm": "encoder_attn_layer_norm",
    }  # fmt: skip
    stacked: dict[str, tuple[str, ...]] = {"qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")}
    stacked |= {"cross_attention_key_value": ("encoder_attn.k_proj", "encoder_attn.v_proj")}
    built = {"token_embedding.weight": state["model.shared.weight"], "output_bias": state["final_logits_bias"]}
    for ours in model.state_dict():
        if ".layers." in ours:
            layer, module, leaf = ours.rsplit(".", 2)
            parts = [state[f"model.{layer}.{name}.{leaf}"] for name in stacked.get(module, (names.get(module),))]
            built[ours] = torch.cat(parts)
    return built


VARIANTS: dict[str, dict[str, Any]] = {
    "as in 2017": {},
    "one table": {"decoder_vocab_size": None},
    "before": {"norm": "pre", "final_norm": True},
    "learned": {"positions": "learned", "position_offset": 2, "embedding_norm": True},
    "untied": {"tied_head": False, "scale_embedding": True},
    "no bias": {"output_bias": False},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_reach_every_parameter(variant: str) -> None:
    model, (mask, label_mask) = made(**VARIANTS[variant]), BATCH.values()
    assert set(dict(model.named_parameters())) == set(model.state_dict())
    translation_loss(model, random_ids(mask), mask, targets(4, 3), label_mask, 3).backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().max()) > 1e-7, name


def test_training_learns_to_copy() -> None:
    """A few steps on one batch are enough to say it by heart, token by token."""
    torch.manual_seed(3)
    model = Seq2Seq(dataclasses.replace(CONFIG, scale_embedding=True))
    nn.init.normal_(model.token_embedding.weight, std=24**-0.5)
    nn.init.normal_(model.target_embedding.weight, std=24**-0.5)
    mask, ids = torch.ones(2, 5, dtype=torch.int64), torch.tensor([[4, 9, 5, 7, 2], [8, 8, 6, 30, 2]])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(40):
        optimizer.zero_grad()
        translation_loss(model, ids, mask, ids, mask, 3).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval()
    cross, past, tokens, said = model.cross(model.encode(ids, mask != 0), 2), model.empty_past(2), [[3], [3]], []
    for place in range(5):
        hidden, past = model.step(torch.tensor(tokens), torch.tensor([place]), past, cross, mask != 0)
        said.append(model.logits(hidden).argmax(dim=1))
        tokens = said[-1][:, None].tolist()
    assert torch.equal(torch.stack(said, dim=1), ids)


def test_dropout_is_for_training_only() -> None:
    mask, ids = BATCH["mask"], random_ids(BATCH["mask"])
    inputs = (ids, mask, targets(4, 3), BATCH["label_mask"])
    model, plain = made(dropout=0.5), made()
    assert torch.equal(model(*inputs), plain(*inputs))
    model.train()
    assert not torch.equal(model(*inputs), model(*inputs))
    assert torch.equal(plain.train()(*inputs), plain(*inputs))
    with torch.no_grad():
        entering = model.encoder.embeddings(model.token_embedding, ids, torch.arange(4))
    assert 0.3 < float((entering == 0).float().mean()) < 0.7


def test_constants_are_there_without_memory_for_weights() -> None:
    """As a checkpoint is loaded: what a state dict does not hold must not be left out."""
    with torch.device("meta"):
        model = Seq2Seq(CONFIG)
    assert model.token_embedding.weight.is_meta
    assert torch.equal(model.encoder.embeddings.sinusoids, sinusoids(19, 24))
    assert not any("sinusoids" in name for name in model.state_dict())


BAD: dict[str, Any] = {
    "vocab_size": 0, "decoder_vocab_size": -1, "hidden_size": 25, "encoder_layers": 1001, "decoder_layers": 0,
    "encoder_attention_heads": "2", "decoder_attention_heads": 5, "encoder_intermediate_size": None,
    "decoder_intermediate_size": 1.5, "max_position_embeddings": -1, "layer_norm_eps": 1, "hidden_act": "geglu",
    "positions": "rotary", "position_offset": -1, "norm": ["pre"], "scale_embedding": 1, "embedding_norm": None,
    "final_norm": "no", "tied_head": 0, "output_bias": 2,
}  # fmt: skip


def test_every_field_can_be_wrong() -> None:
    assert set(BAD) == {field.name for field in dataclasses.fields(Seq2SeqConfig)}


@pytest.mark.parametrize("field", BAD)
def test_impossible_config_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match="=") as caught:
        dataclasses.replace(CONFIG, **{field: BAD[field]})
    assert f"{field}={BAD[field]!r}" in str(caught.value)


def test_all_that_is_wrong_is_named() -> None:
    with pytest.raises(ValueError, match="norm='mid' is not one of post, pre") as caught:
        dataclasses.replace(CONFIG, encoder_attention_heads=5, decoder_attention_heads=7, norm="mid")
    for heads in ("hidden_size=24 is not divisible by encoder_attention_heads=5", "decoder_attention_heads=7"):
        assert heads in str(caught.value)


def test_tables_of_constants_have_an_end() -> None:
    most = MAX_SINUSOIDS // 24
    with pytest.raises(ValueError, match=f"max_position_embeddings={most + 1} is more than {most}"):
        dataclasses.replace(CONFIG, max_position_embeddings=most + 1)
    learned = dataclasses.replace(CONFIG, max_position_embeddings=most + 1, positions="learned")
    assert learned.max_tokens == most + 1
