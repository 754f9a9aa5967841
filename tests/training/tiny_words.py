"""A tiny GPT-2 whose tokens are words."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers

from edgebert.models.gpt2.heads import Gpt2LanguageModel
from edgebert.models.gpt2.model import Gpt2, Gpt2Config
from edgebert.training import initialize, save_checkpoint

WORDS = ["<|endoftext|>", "?", "a", "b", "c", "d", "e", "f"]
A, B, C, D, E, F = range(2, 8)
START, DELIMITER, EXTRACT = range(8, 11)


def tokenizer_of(vocabulary: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({word: id for id, word in enumerate(vocabulary)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def write_words(folder: Path) -> Path:
    """Write the checkpoint to ``folder`` and return that."""
    config = Gpt2Config(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=24,
    )
    model = Gpt2LanguageModel(Gpt2(config))
    initialize(model, std=0.2)
    return save_checkpoint(
        folder,
        model,
        tokenizer_of(WORDS),
        model_type="gpt2",
        task="generate",
        config={"architectures": ["GPT2LMHeadModel"], "bos_token_id": 0, "eos_token_id": 0},
    )
