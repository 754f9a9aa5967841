"""What config.json says of a Marian, a BART or an mBART, and of how it translates."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from edgebert.checkpoints import Checkpoint, open_checkpoint
from edgebert_runtime.generation.options import Options
from tests.checkpoints.broken import message
from tests.checkpoints.test_seq2seq import rewrite, without, write
from tests.models.tiny_seq2seq import configure, randomized, save
from tests.support.tiny_tokenizers import ROBERTA, write_tokenizer

REFUSED: dict[str, tuple[str, dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "embed": ("marian", {}, {"task": "embed"}, ("a marian has no head for embed; the tensors fit translate",)),
    "no width": ("bart", {"d_model": None}, {}, ("config.json lacks d_model; use the config.json",)),
    "heads": (
        "bart",
        {"encoder_attention_heads": 5},
        {},
        ("d_model=48 is not divisible by encoder_attention_heads=5",),
    ),
    "layers": ("bart", {"decoder_layers": 3}, {}, ("tensors missing: decoder.layers.2.self_attn.q_proj", "use the")),
    "fewer layers": ("bart", {"encoder_layers": 2}, {}, ("tensors unexpected: model.encoder.layers.2.fc1.bias",)),
    "width": ("mbart", {"encoder_ffn_dim": 71}, {}, ("fc1.weight has shape [72, 48], should have [71, 48]",)),
    "positions": ("bart", {"max_position_embeddings": 39}, {}, ("embed_positions.weight has shape [42, 48]",)),
    "flag": ("bart", {"scale_embedding": 1}, {}, ("scale_embedding=1 is neither true nor false",)),
    "activation": ("marian", {"activation_function": "geglu"}, {}, ("activation_function='geglu' is not one of",)),
    "untied": (
        "marian",
        {"tie_word_embeddings": False},
        {},
        ("tensors missing for translate: lm_head.weight",),
    ),
    "two tables": (
        "marian",
        {"share_encoder_decoder_embeddings": False},
        {},
        ("tensors missing: encoder.embed_tokens.weight, decoder.embed_tokens.weight",),
    ),
    "decoder only": (
        "bart",
        {"is_encoder_decoder": False},
        {},
        ("is_encoder_decoder=False is not supported, only True",),
    ),
    "norms of another": (
        "marian",
        {"normalize_before": True},
        {},
        ("normalize_before=True is not supported, only False",),
    ),
    "norms at the end": (
        "mbart",
        {"add_final_layer_norm": False},
        {},
        ("add_final_layer_norm=False is not supported",),
    ),
    "positions of another": ("bart", {"static_position_embeddings": True}, {}, ("only False",)),
    "misspelt": ("marian", {"decoder_layers": None, "decoder_layer": 2}, {}, ("unknown key 'decoder_layer', did you",)),
    "start": (
        "marian",
        {"decoder_start_token_id": 99},
        {},
        ("config.json: decoder_start_token_id=99 is not an id below",),
    ),
    "forced": (
        "mbart",
        {"forced_bos_token_id": 200},
        {},
        ("forced_bos_token_id=200 is not an id below the vocabulary",),
    ),
    "no start": (
        "seq2seq",
        {"decoder_start_token_id": None, "bos_token_id": None},
        {},
        ("names neither decoder_start_token_id nor bos_token_id, the token that a target begins with; add the former",),
    ),
    "an impossible beginning": (
        "mbart",
        {"decoder_start_token_id": None, "bos_token_id": 500},
        {},
        ("decoder_start_token_id=500 is not an id below the vocabulary of 104",),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_named(tmp_path: Path, case: str) -> None:
    kind, changed, options, expected = REFUSED[case]
    configure(write(tmp_path, kind), **changed)
    said = message(tmp_path, **options)
    for part in expected:
        assert part in said


@pytest.mark.parametrize("ready", [False, True])
def test_a_mask_without_an_embedding(tmp_path: Path, caplog: pytest.LogCaptureFixture, ready: bool) -> None:
    """As in bart-large-cnn, whose model has a token less than its tokenizer: the last one, for which it has no use."""
    folder = write(tmp_path, "bart", vocab_size=len(ROBERTA) - 1)
    write_tokenizer(folder, "bart", len(ROBERTA))
    if ready:
        AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    with caplog.at_level(logging.INFO, "edgebert"):
        checkpoint = open_checkpoint(folder)
    source = "tokenizer.json" if ready else "vocab.json"
    assert caplog.messages == [f"{source}: left out <mask>, which the model has no embedding of"]
    assert checkpoint.notes == ()
    tokenizer = Tokenizer.from_str(checkpoint.tokenizer_json)
    assert tokenizer.token_to_id("<mask>") is None
    ids = tokenizer.encode("the <mask> ran").ids
    assert max(ids) < len(ROBERTA) - 1
    assert tokenizer.decode(ids) == "the <mask> ran"


def test_all_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    configure(write(tmp_path), encoder_ffn_dim=70, decoder_start_token_id=400, max_length=-3)
    rewrite(tmp_path, without("model.decoder.layers.1.fc2.bias"))
    (tmp_path / "tokenizer.json").write_text("{")
    said = message(tmp_path)
    for part in ("fc1.weight has shape [72, 48]", "decoder_start_token_id=400", "max_length=-3", "layers.1.fc2.bias"):
        assert part in said
    assert "tokenizer.json is not valid JSON" in said


def opened(folder: Path, kind: str, **options: Any) -> Checkpoint:
    settings = options.pop("settings", {})
    checkpoint = open_checkpoint(configure(write(folder, kind, **options), **settings))
    Options.read(checkpoint.decoding)
    return checkpoint


MARIAN = {"bad_words_ids": [[98]], "eos_token_id": 0, "forced_eos_token_id": 0, "pad_token_id": 98}
BART = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": 2}
DECODING: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None, dict[str, Any]]] = {
    "marian": ("marian", {}, None, {**MARIAN, "decoder_start_token_id": 98}),
    "marian starts with padding": (
        "marian",
        {"decoder_start_token_id": None},
        None,
        {**MARIAN, "decoder_start_token_id": 98},
    ),
    "bart": ("bart", {}, None, BART),
    "usual tokens": ("bart", dict.fromkeys(BART), None, {k: v for k, v in BART.items() if not k.startswith("forced")}),
    "mbart starts with the beginning": (
        "mbart",
        {"decoder_start_token_id": None},
        None,
        {**BART, "decoder_start_token_id": 0},
    ),
    "a language": ("mbart", {"forced_bos_token_id": 101}, None, {**BART, "forced_bos_token_id": 101}),
    "a forced beginning": ("bart", {"force_bos_token_to_be_generated": True}, None, {**BART, "forced_bos_token_id": 0}),
    "another forced beginning": (
        "bart",
        {"force_bos_token_to_be_generated": True, "forced_bos_token_id": 7},
        None,
        {**BART, "forced_bos_token_id": 0},
    ),
    "a file about generating": (
        "marian",
        {"num_beams": 2, "forced_eos_token_id": 7},
        {"num_beams": 6, "bad_words_ids": [[98]], "max_length": 512, "decoder_start_token_id": 98},
        {
            "num_beams": 6,
            "bad_words_ids": [[98]],
            "max_length": 512,
            "decoder_start_token_id": 98,
            "eos_token_id": 0,
            "pad_token_id": 98,
        },
    ),
    "a summary": (
        "bart",
        {"length_penalty": 2.0, "no_repeat_ngram_size": 3, "num_beams": 4, "min_length": 5, "early_stopping": True},
        None,
        {
            **BART,
            "length_penalty": 2.0,
            "no_repeat_ngram_size": 3,
            "num_beams": 4,
            "min_length": 5,
            "early_stopping": True,
        },
    ),
}


@pytest.mark.parametrize("case", DECODING)
def test_decoding(tmp_path: Path, case: str) -> None:
    kind, settings, generation, expected = DECODING[case]
    checkpoint = opened(tmp_path, kind, settings=settings, generation=generation)
    assert checkpoint.decoding == expected
    assert [note for note in checkpoint.notes if "names no eos_token_id" not in note] == []


def test_ids_are_those_of_the_target(tmp_path: Path) -> None:
    """A forced token and an end are looked for in the vocabulary that they are generated from."""
    save(randomized("marian", share_encoder_decoder_embeddings=False, decoder_vocab_size=47), tmp_path)
    (tmp_path / "generation_config.json").unlink()
    configure(tmp_path, forced_bos_token_id=46, suppress_tokens=[46, 47])
    checkpoint = open_checkpoint(tmp_path)
    assert (checkpoint.decoding["forced_bos_token_id"], checkpoint.decoding["suppress_tokens"]) == (46, [46])
    configure(tmp_path, forced_bos_token_id=47)
    assert "forced_bos_token_id=47 is not an id below the vocabulary of 47" in message(tmp_path)
