"""Checkpoints of Marian, BART and mBART in every layout that published ones come in."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from edgebert.checkpoints import open_checkpoint
from edgebert.checkpoints.weights.name_mapping import to_published
from edgebert.models.seq2seq.config import Seq2SeqConfig
from edgebert.models.seq2seq.model import Seq2Seq, sinusoids
from edgebert_runtime.errors import CheckpointError
from tests.checkpoints.broken import message
from tests.models.tiny_seq2seq import KINDS, configure, randomized, save
from tests.support.tiny import sizes, write_checkpoint

Tensors = dict[str, Tensor]
TABLE = "model.shared.weight"
USERS = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")


def write(folder: Path, kind: str = "marian", **options: Any) -> Path:
    return write_checkpoint(folder, task="translate", model_type=kind, **options)


def rewrite(folder: Path, change: Callable[[Tensors], Tensors]) -> Path:
    """Give a folder other tensors."""
    file = folder / "model.safetensors"
    save_file({name: tensor.clone().contiguous() for name, tensor in change(load_file(file)).items()}, file)
    return folder


def without(*names: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: value for name, value in tensors.items() if name not in names}


def only(user: str) -> Callable[[Tensors], Tensors]:
    """Save the table under the name of one that uses it."""
    return lambda tensors: {user if name == TABLE else name: value for name, value in tensors.items()}


def with_copies(tensors: Tensors) -> Tensors:
    return {**tensors, **dict.fromkeys(USERS, tensors[TABLE])}


def with_sinusoids(tensors: Tensors) -> Tensors:
    return {**tensors, **{f"model.{side}.embed_positions.weight": sinusoids(40, 48) for side in ("encoder", "decoder")}}


def with_versions(tensors: Tensors) -> Tensors:
    return {**tensors, **{f"model.{side}.version": torch.tensor([3.0]) for side in ("encoder", "decoder")}}


LAYOUTS: dict[str, tuple[tuple[str, ...], Callable[[Tensors], Tensors]]] = {
    "no prefix": (tuple(KINDS), lambda tensors: {name.removeprefix("model."): x for name, x in tensors.items()}),
    "module.": (tuple(KINDS), lambda tensors: {f"module.{name}": value for name, value in tensors.items()}),
    "the table four times": (tuple(KINDS), with_copies),
    **{f"the table as {user}": (tuple(KINDS), only(user)) for user in USERS},
    "constants": (("marian",), with_sinusoids),
    "versions": (("bart",), with_versions),
}


@pytest.mark.parametrize(("kind", "layout"), [(kind, name) for name, (kinds, _) in LAYOUTS.items() for kind in kinds])
def test_layouts(tmp_path: Path, kind: str, layout: str) -> None:
    expected = open_checkpoint(write(tmp_path / "plain", kind)).load_model().state_dict()
    checkpoint = open_checkpoint(rewrite(write(tmp_path / "other", kind), LAYOUTS[layout][1]))
    actual = checkpoint.load_model().state_dict()
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)
    assert (checkpoint.ignored, checkpoint.notes) == ((), ())


@pytest.mark.parametrize("kind", KINDS)
def test_shards_and_pickles(tmp_path: Path, kind: str) -> None:
    theirs = randomized(kind)
    expected = open_checkpoint(save(theirs, tmp_path / "one")).load_model().state_dict()
    sharded = open_checkpoint(save(theirs, tmp_path / "many", max_shard_size="8KB"))
    assert len(set(sharded.weights.files.values())) > 2
    torch.save(theirs.state_dict(), tmp_path / "one" / "pytorch_model.bin")  # with every name of the table
    (tmp_path / "one" / "model.safetensors").unlink()
    for checkpoint in (sharded, open_checkpoint(tmp_path / "one", allow_pickle=True)):
        actual = checkpoint.load_model().state_dict()
        assert all(torch.equal(actual[name], expected[name]) for name in expected)


SAVED: dict[str, tuple[str, dict[str, Any]]] = {
    **{kind: (kind, {}) for kind in KINDS},
    "two vocabularies": ("marian", {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 47}),
    "nothing tied": ("bart", {"tie_word_embeddings": False}),
}


@pytest.mark.parametrize("case", SAVED)
def test_names_run_backwards(tmp_path: Path, case: str) -> None:
    kind, config = SAVED[case]
    checkpoint = open_checkpoint(save(randomized(kind, **config), tmp_path))
    published = to_published(checkpoint.load_model().state_dict(), kind)
    stored = load_file(tmp_path / "model.safetensors")
    assert published.keys() == stored.keys() - ({TABLE} if config.get("tie_word_embeddings") is False else set())
    assert all(torch.equal(published[name], stored[name]) for name in published)
    tables = {name for name in published if "embed_tokens" in name or name in (TABLE, "lm_head.weight")}
    assert tables == ({TABLE} if not config else set(USERS) if case == "nothing tied" else set(USERS[:2]))


def test_an_untied_head_over_one_table(tmp_path: Path) -> None:
    """As older versions of transformers saved it: both sides have the table that is there."""
    theirs = randomized("bart", tie_word_embeddings=False)
    folder = rewrite(save(theirs, tmp_path), without(*USERS[:2]))
    checkpoint = open_checkpoint(folder)
    assert isinstance(checkpoint.config, Seq2SeqConfig)
    assert (checkpoint.config.decoder_vocab_size, checkpoint.config.tied_head) == (None, False)
    model = checkpoint.load_model()
    assert isinstance(model, Seq2Seq)
    assert torch.equal(model.target_embedding.weight, theirs.model.shared.weight)
    assert model.head is not None
    assert torch.equal(model.head.weight, theirs.lm_head.weight)


def test_a_bias_of_logits_may_be_missing(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(rewrite(write(tmp_path), without("final_logits_bias")))
    assert checkpoint.config == Seq2SeqConfig(**sizes("marian"), output_bias=False)
    model = checkpoint.load_model()
    assert isinstance(model, Seq2Seq)
    assert model.output_bias is None


def test_a_head_of_no_numbers(tmp_path: Path) -> None:
    folder = rewrite(write(tmp_path), lambda tensors: {**tensors, "lm_head.weight": tensors[TABLE] * torch.nan})
    with pytest.raises(CheckpointError, match="weights are NaN or infinite: lm_head.weight"):
        open_checkpoint(folder).load_model()


TASKS: dict[str, tuple[str, str | None, str | None]] = {
    "marian": ("marian", None, "MarianMTModel"),
    "bart": ("bart", None, "BartForConditionalGeneration"),
    "mbart": ("mbart", None, "MBartForConditionalGeneration"),
    "nothing said": ("bart", None, None),
    **{
        f"{name} alone": (kind, f"{name}Model", f"{name}Model")
        for kind, name in (("marian", "Marian"), ("bart", "Bart"))
    },
    "nothing said of a body": ("mbart", "MBartModel", None),
}


@pytest.mark.parametrize("case", TASKS)
def test_task_is_found(tmp_path: Path, case: str) -> None:
    kind, saved, said = TASKS[case]
    save(randomized(kind, saved), tmp_path)
    configure(tmp_path, architectures=[said] if said else None)
    checkpoint = open_checkpoint(tmp_path)
    assert (checkpoint.family, checkpoint.model_type, checkpoint.task) == ("seq2seq", kind, "translate")
    assert isinstance(checkpoint.config, Seq2SeqConfig)
    assert checkpoint.config.output_bias == (saved is None)
    assert isinstance(checkpoint.load_model(), Seq2Seq)
    assert (checkpoint.max_tokens, checkpoint.default_tokens) == (19, 19)
    assert (checkpoint.head, checkpoint.head_names, checkpoint.labels) == (None, None, ())


@pytest.mark.parametrize("ending", ["ForSequenceClassification", "ForQuestionAnswering"])
@pytest.mark.parametrize("name", ["Bart", "MBart"])
def test_other_heads_are_refused_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, ending: str
) -> None:
    save(randomized(name.lower(), f"{name}{ending}"), tmp_path)
    task = {"ForSequenceClassification": "classify", "ForQuestionAnswering": "answer"}[ending]
    assert f"a {name.lower()} has no head for {task}; the tensors fit translate; give task" in message(tmp_path)
    with caplog.at_level(logging.INFO, "edgebert"):
        assert open_checkpoint(tmp_path, task="translate").notes == ()
    assert "passed over heads that translate does not use: " in caplog.text


def test_published_config_of_opus(tmp_path: Path) -> None:
    """The keys of a published Marian, of which none goes unnoticed."""
    published: dict[str, Any] = {
        "_name_or_path": "/tmp/Helsinki-NLP/opus-mt-en-de", "_num_labels": 3, "activation_dropout": 0.0,
        "add_bias_logits": False, "add_final_layer_norm": False, "attention_dropout": 0.0, "classif_dropout": 0.0,
        "classifier_dropout": 0.0, "decoder_layerdrop": 0.0, "decoder_vocab_size": 99, "dropout": 0.1,
        "encoder_layerdrop": 0.0, "extra_pos_embeddings": 98, "gradient_checkpointing": False,
        "id2label": {"0": "LABEL_0"}, "init_std": 0.02, "label2id": {"LABEL_0": 0}, "max_length": 512,
        "normalize_before": False, "normalize_embedding": False, "num_beams": 4, "num_hidden_layers": 3,
        "share_encoder_decoder_embeddings": True, "static_position_embeddings": True, "torch_dtype": "float16",
        "transformers_version": "4.22.0.dev0", "use_cache": True, "bos_token_id": 0, "early_stopping": None,
    }  # fmt: skip
    checkpoint = open_checkpoint(write(tmp_path, settings=published))
    assert checkpoint.notes == ()
    assert checkpoint.config == Seq2SeqConfig(**sizes("marian"))
    assert checkpoint.decoding == {
        "bad_words_ids": [[98]],
        "bos_token_id": 0,
        "decoder_start_token_id": 98,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "max_length": 512,
        "num_beams": 4,
        "pad_token_id": 98,
    }
