"""Tiny Marians, BARTs and mBARTs of transformers to compare with; no two of their sizes are equal."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor

SIZES: dict[str, Any] = {
    "vocab_size": 53,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 36,
    "max_position_embeddings": 19,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 3,
    "forced_eos_token_id": 2,
}
KINDS = {
    "marian": "MarianMTModel",
    "bart": "BartForConditionalGeneration",
    "mbart": "MBartForConditionalGeneration",
}


@lru_cache
def randomized(kind: str, architecture: str | None = None, **config: Any) -> Any:
    """Return a model of transformers with random weights, large enough for all of its parts to matter.

    The bias of the logits, which is zero in many published models, is random too.
    """
    name = architecture or KINDS[kind]
    settings = getattr(transformers, name).config_class(**{**SIZES, **config})
    model = getattr(transformers, name)(settings).eval()
    generator = torch.Generator().manual_seed(7)
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    with torch.no_grad():
        for name, tensor in tensors.items():
            if kind == "marian" and "embed_positions" in name:
                continue  # constants
            noise = torch.randn(tensor.shape, generator=generator) * 0.3
            tensor.copy_(noise + 1 if "norm" in name and name.endswith("weight") else noise)
    return model


def save(model: Any, folder: Path, **options: Any) -> Path:
    """Save a model with tokenizers of the sizes of its vocabularies."""
    model.save_pretrained(folder, **options)
    sizes = (model.config.vocab_size, getattr(model.config, "decoder_vocab_size", model.config.vocab_size))
    shared = sizes[0] == sizes[1]
    for size, name in zip(sizes, ["tokenizer"] if shared else ["source_tokenizer", "target_tokenizer"], strict=False):
        words(size).save(str(folder / f"{name}.json"))
    return folder


def words(size: int) -> Tokenizer:
    """Return a tokenizer of so many words, the numbers."""
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *(str(number) for number in range(4, size))]
    tokenizer = Tokenizer(models.WordLevel({token: id for id, token in enumerate(tokens)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    tokenizer.add_special_tokens(tokens[:4])
    return tokenizer


def configure(folder: Path, **changed: Any) -> Path:
    """Change keys of config.json; None removes one."""
    data = {**json.loads((folder / "config.json").read_text()), **changed}
    (folder / "config.json").write_text(json.dumps({key: value for key, value in data.items() if value is not None}))
    return folder


def random_ids(mask: Tensor, seed: int = 3, size: int = 47) -> Tensor:
    """Return ids (batch, seq) below ``size``, random at padding, too."""
    return torch.from_numpy(np.random.default_rng(seed).integers(0, size, mask.shape))


def targets(length: int, batch: int, seed: int = 5) -> Tensor:
    """Return ids of targets (batch, length)."""
    return random_ids(torch.ones(batch, length), seed)
