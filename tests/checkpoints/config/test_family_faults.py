"""What is special about the other model types: lengths, tokenizers of another kind, and any value in config.json."""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from edgebert.checkpoints import open_checkpoint
from edgebert.checkpoints.config.head_tables import HEADS
from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert.models.bert.model import BertConfig
from edgebert_runtime.errors import CheckpointError
from tests.checkpoints.config.test_config_faults import json_values
from tests.support.tiny import write_checkpoint
from tests.support.tiny_tokenizers import write_tokenizer

LENGTHS = {
    "tokenizer_config.json": "model_max_length",
    "sentence_bert_config.json": "max_seq_length",
}


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize(("query", "expected"), [(11, 11), (40, 40), (42, 40), (514, 40)])
def test_rows_of_positions_are_more_than_tokens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, query: int, expected: int
) -> None:
    """A RoBERTa of 42 rows takes 40 tokens: the first two rows belong to padding."""
    write_checkpoint(tmp_path, model_type="roberta")
    (tmp_path / name).write_text(json.dumps({LENGTHS[name]: query}))
    with caplog.at_level(logging.INFO, "edgebert"):
        checkpoint = open_checkpoint(tmp_path)
    assert isinstance(checkpoint.config, BertConfig)
    assert checkpoint.config.max_position_embeddings == 42
    assert (checkpoint.max_tokens, checkpoint.default_tokens) == (40, expected)
    cut = f"texts are cut at 40 tokens, the positions of the model, and not at {query}"
    assert (cut in caplog.messages) == (query > 40)


def test_bert_with_the_tokenizer_of_another_type(tmp_path: Path) -> None:
    """As in multilingual-e5-small: the tokenizer gives no segments, the model has them."""
    write_checkpoint(tmp_path, model_type="bert", vocab_size=120)
    (tmp_path / "vocab.txt").unlink()
    write_tokenizer(tmp_path, "xlm-roberta", 120)
    checkpoint = open_checkpoint(tmp_path)
    assert isinstance(checkpoint.config, BertConfig)
    assert checkpoint.config.type_vocab_size == 3
    encoded = Tokenizer.from_str(checkpoint.tokenizer_json).encode("the cat", "sat")
    assert set(encoded.type_ids) == {0}


def test_distilbert_has_no_segments(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, model_type="distilbert"))
    assert isinstance(checkpoint.config, BertConfig)
    assert checkpoint.config.type_vocab_size == 0
    assert not any("segment" in name for name in checkpoint.load_model().state_dict())


@pytest.mark.parametrize("kind", ["xlm-roberta", "camembert", "albert"])
def test_sentencepiece_alone(tmp_path: Path, kind: str) -> None:
    write_checkpoint(tmp_path, model_type=kind)
    (tmp_path / "tokenizer.json").rename(tmp_path / "spiece.model")
    with pytest.raises(
        CheckpointError, match=r"spiece\.model alone is not read; save the tokenizer as tokenizer\.json"
    ):
        open_checkpoint(tmp_path)


EXTRA = ["architectures", "id2label", "problem_type", "sentence_transformers", "tie_word_embeddings", "pad_token_id"]
EXTRA += ["sbert_ce_default_activation_function", "summary_type", "num_labels"]


VOCABULARIES = ("fill-mask", "generate", "translate")
EXTRA += ["eos_token_id", "bos_token_id", "max_length", "top_k", "n_ctx", "decoder_start_token_id"]
EXTRA += ["decoder_vocab_size", "share_encoder_decoder_embeddings", "force_bos_token_to_be_generated"]


@pytest.mark.parametrize(
    ("kind", "task"), [(kind, task) for kind in HEADS for task in ("classify", *VOCABULARIES) if task in HEADS[kind]]
)
@given(st.data())
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_in_config_is_fine_or_named(tmp_path: Path, kind: str, task: str, data: st.DataObject) -> None:
    keys = [*MODEL_TYPES[kind].keys, *MODEL_TYPES[kind].required, *EXTRA]
    changed: dict[str, Any] = data.draw(st.dictionaries(st.sampled_from(keys), json_values, max_size=4))
    write_checkpoint(tmp_path, model_type=kind, task=task, settings=changed)
    with contextlib.suppress(CheckpointError):
        open_checkpoint(tmp_path)
