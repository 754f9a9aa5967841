"""Read config.json into the configuration of one of our models."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass, field
from typing import Any

from edgebert.checkpoints.config.model_factory import CONFIGS, Config
from edgebert.checkpoints.config.model_types import MODEL_TYPES, PROJECT_IF_NARROWER, ModelType
from edgebert.checkpoints.config.name_tables import CODE_KEYS, IGNORED, PROBABILITIES
from edgebert.checkpoints.folder import CheckpointFolder, some
from edgebert_runtime.errors import ConfigError

NAME = "config.json"
# What stands in for a size that is missing, where 1 might be at odds with those that are there.
STAND_INS = {"hidden_size": 2, "max_position_embeddings": 1 << 20}


@dataclass(frozen=True)
class ModelConfig:
    """The model that config.json describes, all that stands there, and notes on keys that were passed over."""

    model_type: str
    model: Config
    data: dict[str, Any] = field(repr=False)
    notes: tuple[str, ...]

    @property
    def architecture(self) -> str | None:
        """The name of the class that saved the checkpoint, if it is known."""
        names = self.data.get("architectures")
        first = names[0] if isinstance(names, list) and names else None
        return first if isinstance(first, str) else None


def read_config(folder: CheckpointFolder) -> ModelConfig:
    """Read the configuration of the model.

    Raises:
        CheckpointError: if config.json cannot be read.
        ConfigError: naming everything in it that is impossible or unsupported.
    """
    data = folder.json(NAME)
    problems = code_problems(data)
    name = data.get("model_type")
    if not isinstance(name, str) or name not in MODEL_TYPES:
        found = f"model_type is {name!r:.60}" if "model_type" in data else "there is no model_type"
        hint = "" if "model_type" in data else '; add the one it is of, as in "model_type": "bert"'
        raise ConfigError("; ".join([*problems, f"{NAME}: {found}, supported: {', '.join(MODEL_TYPES)}{hint}"]))
    kind = MODEL_TYPES[name]
    problems += required_problems(data, kind.required) + probability_problems(data)
    known = {*kind.keys, *kind.older.values(), *kind.required, *IGNORED, *CODE_KEYS, *PROBABILITIES}
    unknown = [key for key in data if key not in known]
    for key in list(unknown):
        if near := difflib.get_close_matches(key, [*kind.keys, *kind.required], n=1, cutoff=0.87):
            problems.append(f"{NAME}: unknown key {key!r:.80}, did you mean {near[0]!r}? Correct or remove it")
            unknown.remove(key)
    config = build_config(name, data, problems)
    if config is None or problems:
        raise ConfigError("; ".join(problems))
    notes = (f"{NAME}: passed over unknown keys {some(sorted(unknown))}",) if unknown else ()
    return ModelConfig(name, config, data, notes)


def build_config(model_type: str, data: dict[str, Any], problems: list[str]) -> Config | None:
    """Build the configuration, or say in ``problems`` why not."""
    kind = MODEL_TYPES[model_type]
    given = {**kind.defaults, **{key: data[old] for key, old in kind.older.items() if old in data}, **data}
    values = {field: given[key] for key, field in kind.keys.items() if key in given}
    for name, (times, of) in kind.multiples.items():
        if values.get(name) is None:
            values[name] = times * values[of] if type(values.get(of)) is int else 1
    required = {f.name for f in dataclasses.fields(CONFIGS[kind.family]) if f.default is dataclasses.MISSING}
    missing = [key for key, field in kind.keys.items() if field in required and field not in values]
    if missing:
        problems.append(f"{NAME} lacks {', '.join(missing)}; use the {NAME} that came with the weights")
    if kind.family == "seq2seq":
        values |= tables(data, values)
    if model_type in PROJECT_IF_NARROWER and values["embedding_size"] == values.get("hidden_size"):
        values["embedding_size"] = None
    pad = data.get("pad_token_id", kind.pads)
    offset = {"position_offset": pad + 1} if kind.pads is not None and type(pad) is int and pad >= 0 else {}
    # The values that are there are checked even if others are missing: a number stands in for each.
    filled = {**{name: STAND_INS.get(name, 1) for name in required}, **values, **offset, **kind.fixed}
    try:
        config = CONFIGS[kind.family](**filled)
    except ValueError as error:
        problems.append(f"{NAME}: {in_their_words(str(error), kind)}; use the {NAME} that came with the weights")
        return None
    sound = type(pad) is int and 0 <= pad < config.vocab_size
    needed = kind.pads is not None or (pad is not None and not kind.plain)
    if not sound and "vocab_size" in data and needed:
        problems.append(f"{NAME}: pad_token_id={pad!r:.60} is not an id below vocab_size={config.vocab_size}")
    return config


def tables(data: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return which tables a model with an encoder and a decoder has: one for all that need one, unless told otherwise.

    Where nothing is tied, each side has its own, and the head another.
    """
    tied = data.get("tie_word_embeddings") is not False
    shared = tied and data.get("share_encoder_decoder_embeddings") is not False
    own = data.get("decoder_vocab_size")
    return {"tied_head": tied, "decoder_vocab_size": None if shared else own or values.get("vocab_size")}


def in_their_words(message: str, kind: ModelType) -> str:
    """Put the keys of config.json in the place of our names of fields."""
    for key, name in kind.keys.items():
        message = message.replace(f"{name}=", f"{key}=") if key != name else message
    return message


def code_problems(data: dict[str, Any]) -> list[str]:
    """Name the keys that ask for code."""
    return [
        f"{NAME}: {key} asks for program code from the folder, which is never run; use a checkpoint without it"
        for key in CODE_KEYS
        if data.get(key)
    ]


def required_problems(data: dict[str, Any], required: dict[str, tuple[Any, ...]]) -> list[str]:
    """Name the keys with values that our model does not compute."""
    return [
        f"{NAME}: {key}={data[key]!r:.60} is not supported, only {allowed[0]!r}"
        for key, allowed in required.items()
        if key in data and not any(type(data[key]) is type(value) and data[key] == value for value in allowed)
    ]


def probability_problems(data: dict[str, Any]) -> list[str]:
    """Name the dropout rates that are none."""
    return [
        f"{NAME}: {key}={data[key]!r:.60} is not a number from 0 to 1"
        for key in PROBABILITIES
        if data.get(key) is not None and not (type(data[key]) in (int, float) and 0 <= data[key] <= 1)
    ]
