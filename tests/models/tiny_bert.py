"""Tiny models of transformers to compare with; no two of their sizes are equal, so none can pass for another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

SIZES: dict[str, int] = {
    "vocab_size": 53,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 19,
    "type_vocab_size": 5,
}
DISTILBERT: dict[str, int] = {
    "vocab_size": 53,
    "dim": 24,
    "n_layers": 2,
    "n_heads": 3,
    "hidden_dim": 40,
    "max_position_embeddings": 19,
}
# The arguments of each type's configuration class; all take texts of 19 tokens.
TYPES: dict[str, dict[str, int]] = {
    "bert": SIZES,
    "roberta": {**SIZES, "max_position_embeddings": 21, "pad_token_id": 1},
    "xlm-roberta": {**SIZES, "max_position_embeddings": 23, "pad_token_id": 3},
    "camembert": {**SIZES, "max_position_embeddings": 21, "pad_token_id": 1},
    "distilbert": DISTILBERT,
    "electra": {**SIZES, "embedding_size": 16},
    "albert": {**SIZES, "embedding_size": 16, "num_hidden_layers": 3},
}
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(chr(ord("a") + i) for i in range(24))]
TOKENS += [f"##{token}" for token in TOKENS[5:29]]


def randomized(kind: Any, seed: int = 7, **config: Any) -> Any:
    """Return a model of transformers with random weights, large enough for attention and activations to matter."""
    settings = kind.config_class(**{**TYPES[kind.config_class.model_type], **config})
    model = kind(settings).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator) * 0.3
            is_norm = "norm" in name.lower() and name.endswith("weight")
            parameter.copy_(noise + 1 if is_norm else noise)
    return model


def save(model: Any, folder: Path, **options: Any) -> Path:
    """Save a model with a vocabulary of its size."""
    model.save_pretrained(folder, **options)
    (folder / "vocab.txt").write_text("\n".join(TOKENS) + "\n", encoding="utf-8")
    return folder


def random_ids(mask: Tensor, seed: int = 3) -> tuple[Tensor, Tensor]:
    """Return token ids and segment ids (batch, seq) for a mask; both are random at padding, too.

    No id is that of padding, by which transformers tells a RoBERTa's padding.
    """
    rng = np.random.default_rng(seed)
    ids = rng.integers(4, SIZES["vocab_size"], mask.shape)
    types = rng.integers(0, SIZES["type_vocab_size"], mask.shape)
    return torch.from_numpy(ids), torch.from_numpy(types)


def relative(actual: Tensor, expected: Tensor) -> float:
    """Return the largest difference relative to the largest value expected."""
    assert actual.shape == expected.shape
    if not expected.numel():
        return 0.0
    return float((actual - expected).abs().max() / expected.abs().max().clamp(min=1e-30))
