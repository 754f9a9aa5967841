"""Folders with the tokenizer files of Marian, whose pieces are trained in a moment."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgebert.checkpoints.folder import CheckpointFolder
from edgebert.checkpoints.tokenizers.sentencepiece_model import BYTE, NORMAL, read_sentencepieces
from edgebert.checkpoints.tokenizers.tokenizer_json import TokenizerFile
from edgebert.checkpoints.tokenizers.translation import TranslationTokenizers, read_tokenizers
from edgebert_runtime.inputs.tokenizer import ModelTokenizer
from tests.checkpoints.tokenizers.spm_models import CHINESE, CYRILLIC, LATIN, train

SPACE = 5  # rows of the embeddings that no token has
LANGUAGES = [">>fra<<", ">>deu<<", ">>cmn_Hans<<", ">>aa<<"]
EASTERN = f"{CYRILLIC} {CHINESE}"


def write_folder(
    folder: Path,
    *,
    languages: Sequence[str] = (),
    dropped: float = 0.0,
    separate: bool = False,
    joint: bool = False,
    rules: str = "identity",
    **options: Any,
) -> Path:
    """Write the files of a Marian whose vocabulary lacks a share of the pieces."""
    options = {"normalization_rule_name": rules, "vocab_size": 170, **options}
    sides = [EASTERN if joint else LATIN, EASTERN]
    real = []
    for name, words in zip(("source.spm", "target.spm"), sides, strict=True):
        (folder / name).write_bytes(train(words=words, **options))
        model = read_sentencepieces(CheckpointFolder.open(folder), name)
        real.append([piece.text for piece in model.pieces if piece.kind in (NORMAL, BYTE)])
    rng = random.Random(7)

    def vocabulary(*pieces: list[str]) -> dict[str, int]:
        remaining = [piece for piece in dict.fromkeys(sum(pieces, [])) if rng.random() >= dropped]
        rng.shuffle(remaining)
        tokens = ["</s>", "<unk>", *remaining[:30], *languages, *remaining[30:], "<pad>"]
        return {token: index for index, token in enumerate(tokens)}

    (folder / "vocab.json").write_text(json.dumps(vocabulary(real[0], *([] if separate else real[1:]))))
    if separate:
        (folder / "target_vocab.json").write_text(json.dumps(vocabulary(real[1])))
    (folder / "tokenizer_config.json").write_text(json.dumps({"separate_vocabs": separate}))
    return folder


def size(folder: Path, name: str = "vocab.json") -> int:
    """Return the number of embeddings of a side."""
    ids: dict[str, int] = json.loads((folder / name).read_text())
    return max(ids.values()) + 1 + SPACE


def read(folder: Path) -> TranslationTokenizers:
    """Read the tokenizers of a folder."""
    separate = (folder / "target_vocab.json").exists()
    target = size(folder, "target_vocab.json") if separate else None
    return read_tokenizers(CheckpointFolder.open(folder), "marian", size(folder), target)


def runtime(folder: Path, file: TokenizerFile, vocab_size: int) -> ModelTokenizer:
    """Return a tokenizer as the runtime loads it."""
    built = Path(tempfile.mkdtemp(dir=folder)) / "tokenizer.json"
    built.write_text(file.text, encoding="utf-8")
    return ModelTokenizer.load(built, vocab_size)
