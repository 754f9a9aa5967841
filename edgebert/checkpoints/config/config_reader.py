"""Read config.json into the configuration of one of our models."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass, field
from typing import Any

from edgebert.checkpoints.config.model_factory import CONFIGS, Config
from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert.checkpoints.folder import CheckpointFolder
from edgebert.models.checkpoint_tables import ModelType
from edgebert_runtime.errors import ConfigError

NAME = "config.json"
# Placeholders of missing sizes, where 1 might contradict the sizes that are there.
PLACEHOLDERS = {"hidden_size": 2, "max_position_embeddings": 1 << 20}
# Keys that ask for program code from the folder.
CODE_KEYS = ("auto_map", "custom_pipelines", "custom_ops_library", "trust_remote_code")
# Keys that are probabilities, and matter in training only.
PROBABILITIES = (
    "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "classifier_dropout_prob", "dropout",
    "attention_dropout", "qa_dropout", "seq_classif_dropout", "summary_last_dropout", "attn_pdrop", "embd_pdrop",
    "resid_pdrop", "activation_dropout", "classif_dropout", "encoder_layerdrop", "decoder_layerdrop",
)  # fmt: skip
# Keys of older files that look like a misspelt one and are none.
LOOKALIKES = ("tie_encoder_decoder",)  # is_encoder_decoder


@dataclass(frozen=True)
class ModelConfig:
    """The model that config.json describes, and everything that stands there.

    ``tied_head`` says whether the head over the vocabulary is the token embedding.
    """

    model_type: str
    model: Config
    data: dict[str, Any] = field(repr=False)
    tied_head: bool = True

    @property
    def shares_vocabulary(self) -> bool:
        """Whether source and target of an encoder-decoder have one vocabulary."""
        return self.data.get("share_encoder_decoder_embeddings") is not False

    @property
    def architecture(self) -> str | None:
        """The class that saved the checkpoint, if known."""
        names = self.data.get("architectures")
        first = names[0] if isinstance(names, list) and names else None
        return first if isinstance(first, str) else None


def read_config(folder: CheckpointFolder) -> ModelConfig:
    """Read the configuration of the model.

    Unknown keys change nothing, but one that resembles a known key is refused as misspelt.

    Raises:
        CheckpointError: if config.json cannot be read.
        ConfigError: naming everything in it that is impossible or unsupported.
    """
    if not folder.has(NAME):
        raise ConfigError(
            f"{NAME} is missing; download it with the checkpoint, or write it for a model of your own, as "
            "docs/own_transformer.md says"
        )
    data = folder.json(NAME)
    problems = code_problems(data)
    name = data.get("model_type")
    if not isinstance(name, str) or name not in MODEL_TYPES:
        fault = f"model_type is {name!r:.60}" if "model_type" in data else "there is no model_type"
        hint = "" if "model_type" in data else '; add the one it is of, as in "model_type": "bert"'
        raise ConfigError("; ".join([*problems, f"{NAME}: {fault}, supported: {', '.join(MODEL_TYPES)}{hint}"]))
    kind = MODEL_TYPES[name]
    problems += required_problems(data, kind.required) + probability_problems(data) + misspelt_keys(data, kind)
    tied = data.get("tie_word_embeddings", True)
    if type(tied) is not bool:
        problems.append(f"{NAME}: tie_word_embeddings={tied!r:.60} is neither true nor false")
    config = build_config(name, data, problems)
    if config is None or problems:
        raise ConfigError("; ".join(problems))
    return ModelConfig(name, config, data, tied)


def misspelt_keys(data: dict[str, Any], kind: ModelType) -> list[str]:
    """Name the unknown keys that resemble a known one."""
    keys = [*kind.keys, *kind.required]
    accepted = {*keys, *kind.legacy_keys.values(), *PROBABILITIES, *LOOKALIKES}
    matches = {key: difflib.get_close_matches(key, keys, n=1, cutoff=0.87) for key in data if key not in accepted}
    return [
        f"{NAME}: unknown key {key!r:.80}, did you mean {near[0]!r}? Correct or remove it"
        for key, near in matches.items()
        if near
    ]


def build_config(model_type: str, data: dict[str, Any], problems: list[str]) -> Config | None:
    """Build the configuration, or add to ``problems`` and return None."""
    kind = MODEL_TYPES[model_type]
    legacy = {key: data[old] for key, old in kind.legacy_keys.items() if old in data}
    settings = {**kind.defaults, **legacy, **data}
    values = {field: settings[key] for key, field in kind.keys.items() if key in settings}
    if values.get("scale_embedding", False) is None:
        del values["scale_embedding"]
    for name, (factor, base) in kind.derived_sizes.items():
        if values.get(name) is None:
            values[name] = factor * values[base] if type(values.get(base)) is int else 1
    required = {f.name for f in dataclasses.fields(CONFIGS[kind.family]) if f.default is dataclasses.MISSING}
    missing = [key for key, field in kind.keys.items() if field in required and field not in values]
    if missing:
        problems.append(f"{NAME} lacks {', '.join(missing)}; use the {NAME} that came with the weights")
    if kind.family == "seq2seq":
        values |= embedding_tables(data, values)
    if kind.projects_if_narrower and values["embedding_size"] == values.get("hidden_size"):
        values["embedding_size"] = None
    pad = data.get("pad_token_id", kind.default_pad_id)
    offset = {"position_offset": pad + 1} if kind.default_pad_id is not None and type(pad) is int and pad >= 0 else {}
    # Placeholders, so that values are checked even where others are missing.
    filled = {**{name: PLACEHOLDERS.get(name, 1) for name in required}, **values, **offset, **kind.constants}
    try:
        config = CONFIGS[kind.family](**filled)
    except ValueError as error:
        problems.append(f"{NAME}: {with_config_keys(str(error), kind)}; use the {NAME} that came with the weights")
        return None
    sound = type(pad) is int and 0 <= pad < config.vocab_size
    needed = kind.default_pad_id is not None or (pad is not None and not kind.no_special_tokens)
    if not sound and "vocab_size" in data and needed:
        problems.append(f"{NAME}: pad_token_id={pad!r:.60} is not an id below vocab_size={config.vocab_size}")
    return config


def embedding_tables(data: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return which token embeddings of an encoder-decoder are shared.

    Source, target and head share one unless config.json says otherwise.

    Without ``tie_word_embeddings`` each has its own.
    """
    tied = data.get("tie_word_embeddings") is not False
    shared = tied and data.get("share_encoder_decoder_embeddings") is not False
    own = data.get("decoder_vocab_size")
    return {"tied_head": tied, "decoder_vocab_size": None if shared else own or values.get("vocab_size")}


def with_config_keys(message: str, kind: ModelType) -> str:
    """Replace our field names by the keys of config.json."""
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
    """Name the keys whose values our model does not support."""
    return [
        f"{NAME}: {key}={data[key]!r:.60} is not supported, only {allowed[0]!r}"
        for key, allowed in required.items()
        if key in data and not any(type(data[key]) is type(value) and data[key] == value for value in allowed)
    ]


def probability_problems(data: dict[str, Any]) -> list[str]:
    """Name the dropout rates that are not between 0 and 1."""
    return [
        f"{NAME}: {key}={data[key]!r:.60} is not a number from 0 to 1"
        for key in PROBABILITIES
        if data.get(key) is not None and not (type(data[key]) in (int, float) and 0 <= data[key] <= 1)
    ]
