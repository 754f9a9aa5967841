"""The first weights are normal numbers of the deviations that BERT and GPT-2 were trained from."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from edgebert.models.bert.model import Bert, BertConfig
from edgebert.models.gpt2.heads import Gpt2LanguageModel
from edgebert.models.gpt2.model import Gpt2, Gpt2Config
from edgebert.models.seq2seq.config import Seq2SeqConfig
from edgebert.models.seq2seq.model import Seq2Seq
from edgebert.training import initialize

SIZES: dict[str, Any] = {
    "vocab_size": 400,
    "hidden_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 384,
    "max_position_embeddings": 100,
}


def deviations(model: nn.Module) -> dict[str, float]:
    return {name: float(tensor.std()) for name, tensor in model.state_dict().items() if tensor.dim() == 2}


def vectors(model: nn.Module) -> dict[str, set[float]]:
    return {name: set(tensor.tolist()) for name, tensor in model.named_parameters() if tensor.dim() == 1}


def test_bert_starts_at_deviation_0_02() -> None:
    bert = Bert(BertConfig(**SIZES))
    initialize(bert, seed=1)
    for name, actual in deviations(bert).items():
        assert abs(actual / 0.02 - 1) < 0.15, name
    for name, values in vectors(bert).items():
        assert values == ({1.0} if name.endswith("norm.weight") else {0.0}), name


def test_what_is_added_to_the_residual_stream_of_gpt2_starts_smaller() -> None:
    model = Gpt2LanguageModel(Gpt2(Gpt2Config(**SIZES)))
    initialize(model, residual_layers=2)
    smaller = ("attention_output.weight", "ffn_down.weight")
    for name, actual in deviations(model).items():
        expected = 0.01 if name.endswith(smaller) else 0.02  # 0.02 / sqrt(2 * 2 layers)
        assert abs(actual / expected - 1) < 0.05, name
    assert sum(name.endswith(smaller) for name in deviations(model)) == 4


def test_what_is_added_to_the_residual_stream_of_a_target_starts_smaller() -> None:
    config = Seq2SeqConfig(
        vocab_size=400,
        hidden_size=96,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_intermediate_size=384,
        decoder_intermediate_size=384,
        max_position_embeddings=100,
    )
    model = Seq2Seq(config)
    initialize(model, residual_layers=2)
    smaller = ("attention_output.weight", "cross_attention_output.weight", "ffn_down.weight")
    for name, actual in deviations(model).items():
        expected = 0.0 if name == "output_bias" else 0.01 if name.endswith(smaller) else 0.02
        assert abs(actual - expected) <= 0.05 * expected, name
    assert sum(name.endswith(smaller) for name in deviations(model)) == 10


def test_the_seed_decides() -> None:
    models = [Gpt2(Gpt2Config(**SIZES)) for _ in range(3)]
    for model, seed in zip(models, (3, 3, 4), strict=True):
        initialize(model, seed=seed)
    assert torch.equal(models[0].token_embedding.weight, models[1].token_embedding.weight)
    assert not torch.equal(models[0].token_embedding.weight, models[2].token_embedding.weight)
