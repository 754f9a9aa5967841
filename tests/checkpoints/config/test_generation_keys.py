"""Every key of transformers' generation settings is honoured, has no effect, or is named by a note."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import CompileConfig, GenerationConfig

from edgebert.checkpoints import open_checkpoint
from edgebert.checkpoints.config.generation_config import KNOWN, NOT_FOLLOWED
from tests.support.sharing import Once
from tests.support.tiny import write_checkpoint

KINDS = {"gpt2": "generate", "bart": "translate", "mbart": "translate", "marian": "translate"}
FILES = ("generation_config.json", "config.json")

# Keys that change no text, each with a value that is not its default.
INERT: dict[str, Any] = {
    "use_cache": False, "cache_implementation": "static", "cache_config": {"max_batch_size": 1}, "max_cache_len": 64,
    "output_attentions": True, "output_hidden_states": True, "output_scores": True, "output_logits": True,
    "return_dict_in_generate": True, "num_assistant_tokens": 3, "num_assistant_tokens_schedule": "constant",
    "assistant_confidence_threshold": 0.9, "prompt_lookup_num_tokens": 2, "max_matching_ngram_size": 2,
    "assistant_lookbehind": 3, "target_lookbehind": 3, "assistant_ensemble_weight": 0.5,
    "speculation_type": "lossless", "compile_config": {"dynamic": True}, "disable_compile": True,
    "continuous_batching_config": {"block_size": 32}, "low_memory": True, "diversity_penalty": 0.5,
    "prefill_chunk_size": 2, "remove_invalid_values": True,
}  # fmt: skip
# A value of each key that an engine honours.
HONOURED: dict[str, Any] = {
    "max_new_tokens": 7, "min_new_tokens": 3, "max_length": 30, "min_length": 4, "num_beams": 3,
    "num_return_sequences": 2, "length_penalty": 0.5, "early_stopping": True, "do_sample": True, "temperature": 0.5,
    "top_k": 7, "top_p": 0.5, "min_p": 0.1, "typical_p": 0.5, "repetition_penalty": 1.5, "no_repeat_ngram_size": 2,
    "bad_words_ids": [[4, 5]], "forced_bos_token_id": 5, "forced_eos_token_id": 6, "suppress_tokens": [5],
    "begin_suppress_tokens": [6], "stop_strings": ["end"], "eos_token_id": 7, "pad_token_id": 8, "bos_token_id": 9,
    "decoder_start_token_id": 10,
}  # fmt: skip
# A value of each key that is not followed.
NOTED: dict[str, Any] = {
    "assistant_early_exit": 1, "constraints": [1], "dola_layers": "low", "encoder_no_repeat_ngram_size": 2,
    "encoder_repetition_penalty": 1.5, "epsilon_cutoff": 0.1, "eta_cutoff": 0.1,
    "exponential_decay_length_penalty": [1, 1.5], "force_words_ids": [[4]], "guidance_scale": 1.5, "is_assistant": True,
    "max_time": 3.0, "num_beam_groups": 2, "penalty_alpha": 0.6, "renormalize_logits": True,
    "sequence_bias": [[[5], -10.0]], "token_healing": True, "top_h": 0.4, "use_mtp": True,
    "watermarking_config": {"bias": 2.0},
}  # fmt: skip


def write(folder: Path, kind: str, file: str, settings: dict[str, Any]) -> Path:
    """Write a checkpoint whose ``file`` has ``settings``; both files name the special tokens."""
    write_checkpoint(folder, task=KINDS[kind], model_type=kind)
    data = json.loads((folder / "config.json").read_text())
    if file == "config.json":
        (folder / file).write_text(json.dumps({**data, **settings}))
    else:
        ids = {key: value for key, value in data.items() if key.endswith(("_token_id", "_words_ids"))}
        (folder / file).write_text(json.dumps({**ids, **settings}))
    return folder


def test_no_key_is_forgotten() -> None:
    metadata = {"transformers_version", "generation_kwargs"}
    keys = {key for key in vars(GenerationConfig()) if not key.startswith("_")} - metadata
    assert keys == set(INERT) | set(HONOURED) | set(NOTED)
    assert set(HONOURED) == set(KNOWN)
    assert set(NOTED) == set(NOT_FOLLOWED)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("kind", ["gpt2", "marian"])
def test_keys_that_are_not_followed_are_noted(tmp_path: Path, kind: str, file: str) -> None:
    checkpoint = open_checkpoint(write(tmp_path, kind, file, NOTED))
    follows = "transformers follows it, this bundle does not"
    assert checkpoint.notes == tuple(f"{file}: {key}={json.dumps(value)}: {follows}" for key, value in NOTED.items())


@pytest.mark.parametrize("file", FILES)
def test_values_that_change_nothing_are_not_noted(tmp_path: Path, file: str) -> None:
    neutral = {key: values[0] for key, values in NOT_FOLLOWED.items() if values}
    nothing = dict.fromkeys(NOT_FOLLOWED)
    for settings in (neutral, nothing, INERT, {"a_key_of_nobody": 1, "forced_decoder_ids": [[1, 2]]}):
        assert open_checkpoint(write(tmp_path, "gpt2", file, settings)).notes == ()


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("key", HONOURED)
def test_keys_that_are_honoured_reach_the_bundle(tmp_path: Path, key: str, file: str) -> None:
    checkpoint = open_checkpoint(write(tmp_path, "bart", file, {key: HONOURED[key]}))
    assert checkpoint.decoding[KNOWN[key]] == HONOURED[key]
    assert checkpoint.notes == ()


def test_a_checkpoint_that_samples_draws_from_as_many_tokens_as_in_transformers(tmp_path: Path) -> None:
    usual = GenerationConfig._get_default_generation_params()["top_k"]
    for settings, top_k in (({}, usual), ({"top_k": 0}, None), ({"top_k": 3}, 3), ({"do_sample": False}, None)):
        write(tmp_path, "gpt2", "generation_config.json", {"do_sample": True, **settings})
        assert open_checkpoint(tmp_path).decoding.get("top_k") == top_k


class Reference:
    """A tiny model of transformers, and the tokens that it generates with more settings."""

    def __init__(self, folder: Path, kind: str) -> None:
        loader = transformers.AutoModelForCausalLM if kind == "gpt2" else transformers.AutoModelForSeq2SeqLM
        self.model = loader.from_pretrained(folder).eval()
        self.input = torch.tensor([[7, 9, 5, 11, 7, 9]])

    def generate(self, **settings: Any) -> list[int]:
        """Return the tokens; files have settings in the same way."""
        own = {key: value for key, value in self.model.generation_config.to_dict().items() if value is not None}
        if "compile_config" in settings:
            settings["compile_config"] = CompileConfig(**settings["compile_config"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = GenerationConfig.from_dict({**own, "max_length": 20, **settings})
            out = self.model.generate(self.input, generation_config=config)
        tokens: list[int] = (out if torch.is_tensor(out) else out.sequences)[0].tolist()
        return tokens


@pytest.fixture(scope="module")
def references(once: Once) -> list[Reference]:
    """Return a decoder, and an encoder with a decoder."""
    return [
        Reference(once(f"generation keys {kind}", lambda folder: write(folder, kind, "config.json", {})), kind)  # noqa: B023
        for kind in ("gpt2", "bart")
    ]


@pytest.mark.parametrize("key", INERT)
def test_keys_that_change_no_text_do_so_in_transformers(references: list[Reference], key: str) -> None:
    for reference in references:
        assert reference.generate(**{key: INERT[key]}) == reference.generate()


LAYOUTS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "config.json alone": ({}, None),
    "search settings in config.json": ({"num_beams": 3, "no_repeat_ngram_size": 2, "max_length": 31}, None),
    "no end": ({"eos_token_id": None}, None),
    "no forced end": ({"forced_eos_token_id": None}, None),
    "the older way to force a language": ({"force_bos_token_to_be_generated": True, "bos_token_id": 5}, None),
    "an empty generation_config.json": ({}, {}),
    "both, and the second counts": ({"num_beams": 3, "max_length": 31}, {"num_beams": 2, "eos_token_id": 5}),
    "the first token of the second": ({}, {"bos_token_id": 6, "eos_token_id": 5}),
    "made of config.json": ({}, {"_from_model_config": True, "bos_token_id": 6, "eos_token_id": 5}),
    "made of it in the older way": (
        {},
        {"_from_model_config": True, "force_bos_token_to_be_generated": True, "bos_token_id": 6, "eos_token_id": 5},
    ),
    "not made of it": ({}, {"force_bos_token_to_be_generated": True, "bos_token_id": 6, "eos_token_id": 5}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_settings_are_those_of_transformers_in_every_layout(tmp_path: Path, layout: str, kind: str) -> None:
    """Where transformers would never end, or could not begin, config.json is asked, with a note of the former."""
    settings, generation = LAYOUTS[layout]
    write_checkpoint(tmp_path, task=KINDS[kind], model_type=kind, settings=settings, generation=generation)
    reference = Reference(tmp_path, kind).model.generation_config.to_dict()
    checkpoint = open_checkpoint(tmp_path)
    own = json.loads((tmp_path / "config.json").read_text())
    expected = {name: reference[key] for key, name in KNOWN.items() if reference.get(key) is not None}
    if kind != "gpt2" and "decoder_start_token_id" not in expected and "bos_token_id" in expected:
        expected["decoder_start_token_id"] = expected["bos_token_id"]
    ids = ("bos_token_id", "pad_token_id", "eos_token_id", "decoder_start_token_id")
    asked = {name: own[name] for name in ids if name not in expected and own.get(name) is not None}
    asked = asked if generation is not None else {}
    assert checkpoint.decoding == expected | asked
    endless = [f"eos_token_id={asked['eos_token_id']} of config.json"] if "eos_token_id" in asked else []
    assert len(checkpoint.notes) == len(endless)
    assert all(end in note for end, note in zip(endless, checkpoint.notes, strict=True))
