"""Write a checkpoint of BERT-base's size with random weights, for measurements of speed.

python benchmarks/make_bert.py bert-base
edgebert export bert-base bert.bundle --pooling mean
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from edgebert.checkpoints.weights.name_mapping import to_published
from edgebert.models.bert.checkpoint_names import BERT_FIELDS
from edgebert.models.bert.model import Bert, BertConfig

CONFIG = BertConfig(
    vocab_size=30522,
    hidden_size=768,
    num_hidden_layers=12,
    num_attention_heads=12,
    intermediate_size=3072,
    max_position_embeddings=512,
)
SPECIALS = {0: "[PAD]", 100: "[UNK]", 101: "[CLS]", 102: "[SEP]", 103: "[MASK]"}


def main(folder: Path) -> None:
    """Write config, weights and a vocabulary into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = Bert(CONFIG)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2:
                weight.normal_(std=0.02)
            elif name.endswith("bias"):
                weight.normal_(std=0.01)
    published = {key: getattr(CONFIG, field) for key, field in BERT_FIELDS.items()}
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", **published}))
    (folder / "vocab.txt").write_text("".join(SPECIALS.get(i, f"w{i}") + "\n" for i in range(CONFIG.vocab_size)))
    save_file(to_published(model.state_dict()), folder / "model.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
