"""Read config.json into the configuration of one of our models."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any

from edgebert.checkpoint_files import CheckpointFolder, some
from edgebert.models.bert import BertConfig
from edgebert.weight_names import (
    BERT_FIELDS,
    BERT_IGNORED,
    BERT_REQUIRED,
    CODE_KEYS,
    MODEL_TYPES,
    PROBABILITIES,
)
from edgebert_runtime.errors import ConfigError

NAME = "config.json"


def read_config(folder: CheckpointFolder) -> tuple[BertConfig, list[str]]:
    """Return the configuration of the model, and notes on the keys that were passed over.

    Raises:
        CheckpointError: if config.json cannot be read.
        ConfigError: naming everything in it that is impossible or unsupported.
    """
    data = folder.json(NAME)
    problems = code_problems(data)
    model_type = data.get("model_type")
    if not isinstance(model_type, str) or model_type not in MODEL_TYPES:
        found = f"model_type is {model_type!r:.60}" if "model_type" in data else "there is no model_type"
        raise ConfigError("; ".join([*problems, f"{NAME}: {found}, supported: {', '.join(MODEL_TYPES)}"]))
    problems += required_problems(data) + probability_problems(data)
    known = {*BERT_FIELDS, *BERT_REQUIRED, *BERT_IGNORED, *CODE_KEYS, *PROBABILITIES}
    unknown = [key for key in data if key not in known]
    for key in list(unknown):
        if near := difflib.get_close_matches(key, [*BERT_FIELDS, *BERT_REQUIRED], n=1, cutoff=0.87):
            problems.append(f"{NAME}: unknown key {key!r:.80}, did you mean {near[0]!r}? Correct or remove it")
            unknown.remove(key)
    notes = [f"{NAME}: passed over unknown keys {some(sorted(unknown))}"] if unknown else []
    config = build_config(data, problems)
    if config is None or problems:
        raise ConfigError("; ".join(problems))
    return config, notes


def build_config(data: dict[str, Any], problems: list[str]) -> BertConfig | None:
    """Build the configuration, or say in ``problems`` why not."""
    values = {field: data[key] for key, field in BERT_FIELDS.items() if key in data}
    required = {f.name for f in dataclasses.fields(BertConfig) if f.default is dataclasses.MISSING}
    missing = [key for key, field in BERT_FIELDS.items() if field in required and key not in data]
    if missing:
        problems.append(f"{NAME} lacks {', '.join(missing)}; use the {NAME} that came with the weights")
    # The values that are there are checked even if others are missing: one stands in for each missing number.
    filled = {**dict.fromkeys(required, 1), **values}
    try:
        config = BertConfig(**filled)
    except ValueError as error:
        problems.append(f"{NAME}: {error}; use the {NAME} that came with the weights")
        return None
    pad = data.get("pad_token_id")
    if pad is not None and (type(pad) is not int or not 0 <= pad < config.vocab_size) and "vocab_size" in data:
        problems.append(f"{NAME}: pad_token_id={pad!r:.60} is not an id below vocab_size={config.vocab_size}")
    return config


def code_problems(data: dict[str, Any]) -> list[str]:
    """Name the keys that ask for code."""
    return [
        f"{NAME}: {key} asks for program code from the folder, which is never run; use a checkpoint without it"
        for key in CODE_KEYS
        if data.get(key)
    ]


def required_problems(data: dict[str, Any]) -> list[str]:
    """Name the keys with values that our model does not compute."""
    return [
        f"{NAME}: {key}={data[key]!r:.60} is not supported, only {allowed[0]!r}"
        for key, allowed in BERT_REQUIRED.items()
        if key in data and not any(type(data[key]) is type(value) and data[key] == value for value in allowed)
    ]


def probability_problems(data: dict[str, Any]) -> list[str]:
    """Name the dropout rates that are none."""
    return [
        f"{NAME}: {key}={data[key]!r:.60} is not a number from 0 to 1"
        for key in PROBABILITIES
        if data.get(key) is not None and not (type(data[key]) in (int, float) and 0 <= data[key] <= 1)
    ]
