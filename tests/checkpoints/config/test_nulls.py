"""A null in a settings file means what an absent key means, or is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import transformers

from edgebert.checkpoints import open_checkpoint
from edgebert_runtime.errors import CheckpointError
from tests.support.tiny import write_checkpoint

KINDS = ("bert", "roberta", "distilbert", "electra", "albert", "xlm-roberta", "gpt2", "bart")


def outcome(folder: Path) -> tuple[str, ...]:
    """Return what decides the result of a folder, or that it is refused."""
    try:
        checkpoint = open_checkpoint(folder)
    except CheckpointError:
        return ("refused",)
    return checkpoint.tokenizer_json, str(checkpoint.config), str(checkpoint.mask_token), str(checkpoint.default_tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_nulls_of_tokenizer_settings(tmp_path: Path, kind: str) -> None:
    """Each key of the tokenizer_config.json that transformers saves, null and absent."""
    folder = write_checkpoint(
        tmp_path, model_type=kind, task={"gpt2": "generate", "bart": "translate"}.get(kind, "embed")
    )
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    data = json.loads(file.read_text())
    flags = {"add_prefix_space": True, "trim_offsets": True, "do_lower_case": True, "tokenize_chinese_chars": True}
    for key in {**flags, **data}:
        file.write_text(json.dumps({**data, key: None}))
        null = outcome(folder)
        file.write_text(json.dumps({other: value for other, value in data.items() if other != key}))
        assert null == outcome(folder), key
        if key in flags:
            assert null != ("refused",), key


def test_null_of_scaled_embeddings(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, task="translate", model_type="bart", settings={"scale_embedding": None})
    model = transformers.BartForConditionalGeneration.from_pretrained(folder)
    assert open_checkpoint(folder).config.scale_embedding == (model.model.encoder.embed_tokens.embed_scale != 1)  # type: ignore[union-attr]
