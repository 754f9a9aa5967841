"""A tiny checkpoint with random weights, in the files that a published one has."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from edgebert.models.bert import Bert, BertConfig
from edgebert.weight_files import to_published
from edgebert.weight_names import BERT_FIELDS

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "the cat sat on a mat and dog ran in rain sun moon farm ship mail school ##ing , . ? [ ] é ü 日 本".split()
VOCAB = [*SPECIALS, *WORDS, *string.ascii_lowercase[1:], *(f"##{letter}" for letter in string.ascii_lowercase)]
# Every size is another number, so that no two can be mistaken for each other.
CONFIG: dict[str, Any] = {
    "vocab_size": len(VOCAB),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
    "type_vocab_size": 3,
}


def write_checkpoint(folder: Path, *, pooling: str | None = "mean", normalize: bool = True, **changed: Any) -> Path:
    """Write a checkpoint with the sizes of :data:`CONFIG`, or others, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    config = BertConfig(**CONFIG | changed)
    published = {key: getattr(config, field) for key, field in BERT_FIELDS.items()}
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", **published}))
    save_file(to_published(random_weights(config)), folder / "model.safetensors")
    spare = [f"[unused{i}]" for i in range(config.vocab_size - len(VOCAB))]
    (folder / "vocab.txt").write_text("\n".join([*VOCAB, *spare]) + "\n")
    if pooling is not None:
        write_modules(folder, pooling, normalize, config.hidden_size)
    return folder


def random_weights(config: BertConfig) -> dict[str, torch.Tensor]:
    """Return random weights large enough that every part of the model matters to the result."""
    generator = torch.Generator().manual_seed(7)
    weights = Bert(config).state_dict()
    for name, tensor in weights.items():
        tensor.copy_(torch.randn(tensor.shape, generator=generator) * (0.1 if "layers" in name else 0.4))
        if name.endswith("norm.weight"):
            tensor.add_(1)
    return weights


def write_modules(folder: Path, pooling: str, normalize: bool, size: int) -> None:
    """Write the files in which sentence-transformers says how token vectors become one."""
    names = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": paths[i], "type": f"sentence_transformers.models.{name}"}
        for i, name in enumerate(names)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "last": "lasttoken"}
    flags = {f"pooling_mode_{mode}": name == pooling for name, mode in modes.items()}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": size, **flags}))
