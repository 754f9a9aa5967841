"""Read the generation options of a checkpoint.

They are in generation_config.json, or in the config.json of older checkpoints.

Options of :class:`edgebert_runtime.generation.options.Options` are read, under its names.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from edgebert.checkpoints.config.config_reader import NAME, ModelConfig
from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert.checkpoints.folder import CheckpointFolder, some
from edgebert.models.seq2seq.config import Seq2SeqConfig
from edgebert_runtime.errors import ConfigError, InputError
from edgebert_runtime.generation.option_parsers import CHECKS, token
from edgebert_runtime.generation.options import ENGINE_ONLY, Options

log = logging.getLogger(__name__)

GENERATION = "generation_config.json"

# Options that a call gives and no file does, and those that files call by another name.
CALL_ONLY = ("prefix_allowed_tokens_fn", "stop", "seed")
RENAMED = {"stop_strings": "stop"}
KNOWN = {**{name: name for name in (*CHECKS, *ENGINE_ONLY) if name not in CALL_ONLY}, **RENAMED}

START, FORCED_END = "decoder_start_token_id", "forced_eos_token_id"
# The tokens that are read from config.json even where there is a generation_config.json that does not name them.
SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", START)
# Options that are one token id, a list of them, or a list of lists; a forced token, and the one that a translation
# begins with, must be one of the model.
FORCED = ("forced_bos_token_id", FORCED_END)
IDS = (*SPECIAL_IDS, "suppress_tokens", "begin_suppress_tokens", "bad_words_ids")

# Values with which an option says nothing. 20 is where transformers stops if nothing says where.
SILENT: dict[str, tuple[Any, ...]] = {"max_length": (20,), "min_length": (0,), "top_k": (0,)}

# Keys with which transformers generates other text and an engine does not, with the values that change nothing.
# Every other key changes no text.
NOT_FOLLOWED: dict[str, tuple[Any, ...]] = {
    "assistant_early_exit": (),
    "constraints": ([],),
    "dola_layers": (),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": ([],),
    "guidance_scale": (1,),
    "is_assistant": (False,),
    "max_time": (),
    "num_beam_groups": (1,),
    "penalty_alpha": (0,),
    "renormalize_logits": (False,),
    "sequence_bias": ([], {}),
    "token_healing": (False,),
    "top_h": (),
    "use_mtp": (False,),
    "watermarking_config": (),
}
# The tokens to draw from where a checkpoint draws at random and does not say.
USUAL_TOP_K = 50


def read_decoding(folder: CheckpointFolder, model: ModelConfig) -> tuple[dict[str, Any], list[str]]:
    """Return the generation options of a checkpoint, and notes.

    Ids of tokens that the model does not have are left out.

    Raises:
        CheckpointError: if generation_config.json cannot be read.
        ConfigError: naming the file and every option in it that is impossible.
    """
    options, notes = read_options(folder, model)
    decoding: dict[str, Any] = {}
    problems: list[str] = []
    size, translates = decoded_size(model), isinstance(model.model, Seq2SeqConfig)
    needed = (*FORCED, START) if translates else FORCED
    for name, (file, value) in options.items():
        allowed, beyond = known_ids(value, size) if name in IDS and name not in needed else (value, [])
        if beyond:
            log.info("%s: left out %s=%s: the model has ids from 0 to %d", file, name, some(beyond), size - 1)
        if allowed is None:
            continue
        decoding[name] = allowed
        if problem := fault(name, allowed, size if name in needed else None):
            problems.append(f"{file}: {problem}")
    if translates:
        problems += settle_start(decoding, model.model_type)
    if not problems and (problem := contradiction(decoding)):
        problems.append(f"{GENERATION if folder.has(GENERATION) else NAME}: {problem}")
    if problems:
        raise ConfigError("; ".join(problems) + "; correct or remove it")
    return decoding, notes


def decoded_size(model: ModelConfig) -> int:
    """Return the size of the vocabulary of generated text."""
    config = model.model
    return config.target_vocab_size if isinstance(config, Seq2SeqConfig) else config.vocab_size


def settle_start(decoding: dict[str, Any], model_type: str) -> list[str]:
    """Set the first token of targets, or return the missing key."""
    usual = "pad_token_id" if model_type == "marian" else "bos_token_id"
    if (start := decoding.get(START, decoding.get(usual))) is None:
        return [f"{NAME} names neither {START} nor {usual}, the token that a target begins with; add the former"]
    decoding[START] = start
    return []


def read_options(folder: CheckpointFolder, model: ModelConfig) -> tuple[dict[str, tuple[str, Any]], list[str]]:
    """Return options by name, each with its file, and notes.

    As in transformers 5 they come from generation_config.json, or, where there is none, from config.json. Special
    tokens that this file does not name come from config.json, or are the usual ones.
    """
    source = GENERATION if folder.has(GENERATION) else NAME
    settings = dict(folder.json(GENERATION) if source == GENERATION else model.data)
    if settings.get("force_bos_token_to_be_generated") is True and (
        source == NAME or settings.get("_from_model_config")
    ):
        settings["forced_bos_token_id"] = settings.get("bos_token_id")  # an older way
    notes = [
        f"{source}: {key}={json.dumps(settings[key]):.60}: transformers follows it, this bundle does not"
        for key, neutral in NOT_FOLLOWED.items()
        if settings.get(key) is not None and settings[key] not in neutral
    ]
    if settings.get("do_sample") is True and "top_k" not in settings:
        settings["top_k"] = USUAL_TOP_K
    options = {name: (source, settings[key]) for key, name in KNOWN.items() if key in settings}
    translates = isinstance(model.model, Seq2SeqConfig)
    usual = MODEL_TYPES[model.model_type].defaults
    for name in SPECIAL_IDS:
        if name in settings:
            continue
        default = usual.get(name, decoded_size(model))
        value = model.data.get(name, default if default < decoded_size(model) else None)
        if name == START and translates and settings.get("bos_token_id") is not None:
            value = settings["bos_token_id"]  # as transformers begins then
        if name == "eos_token_id" and value is not None:
            origin = f"of {NAME}" if name in model.data else f"as every {model.model_type} does"
            ends = f"this bundle ends at eos_token_id={json.dumps(value)} {origin}"
            notes.append(f"{source} names no eos_token_id: transformers generates up to the length limit, {ends}")
        options[name] = (NAME, value)
    return {name: (file, value) for name, (file, value) in options.items() if not silent(name, value)}, notes


def silent(name: str, value: Any) -> bool:
    """Say whether an option with this value says nothing."""
    return value in (None, []) or any(
        type(value) is type(silence) and value == silence for silence in SILENT.get(name, ())
    )


def known_ids(value: Any, vocab_size: int) -> tuple[Any, list[str]]:
    """Split ids into those of the model, None if none, and others."""
    if type(value) is int:
        return (value, []) if 0 <= value < vocab_size else (None, [str(value)])
    if not isinstance(value, list):
        return value, []
    beyond = [item for item in value if any(known_ids(id, vocab_size)[1] for id in nested(item))]
    return [item for item in value if item not in beyond] or None, [str(item) for item in beyond]


def nested(value: Any) -> list[Any]:
    """Return the items of a list, or the value itself."""
    return value if isinstance(value, list) else [value]


def fault(name: str, value: Any, vocab_size: int | None) -> str | None:
    """Return the fault of an option by itself, or None.

    With ``vocab_size`` its ids must be below that.
    """
    if vocab_size is not None and (beyond := known_ids(value, vocab_size)[1]):
        return f"{name}={some(beyond)} is not an id below the vocabulary of {vocab_size}"
    try:
        CHECKS.get(name, token)(name, value)
    except InputError as error:
        return str(error)
    return None


def contradiction(decoding: dict[str, Any]) -> str | None:
    """Say which options cannot go together."""
    try:
        Options.read(decoding)
    except InputError as error:
        return str(error)
    return None
