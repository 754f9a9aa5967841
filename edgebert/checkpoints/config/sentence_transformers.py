"""Read the files of sentence-transformers: pooling, normalization, truncation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgebert.checkpoints.folder import CheckpointFolder, is_plain, some
from edgebert_runtime.errors import CheckpointError

MODULES = "modules.json"
SETTINGS = "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"

# Modules of sentence-transformers by the last part of their dotted type; any other changes the vector.
TRANSFORMER_MODULE = "Transformer"
POOLING_MODULE = "Pooling"
NORMALIZE_MODULE = "Normalize"

# The older way of 1_Pooling/config.json to say what ``pooling_mode`` says in the newer.
POOLING_SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}

# Their names of poolings and ours.
POOLING_MODES = {"cls": "cls", "max": "max", "mean": "mean", "lasttoken": "last"}


@dataclass(frozen=True)
class SentenceModules:
    """Pooling and truncation of a folder; None where unspecified."""

    pooling: str | None = None
    normalize: bool | None = None
    max_seq_length: int | None = None
    lowercase: bool = False
    notes: tuple[str, ...] = ()


def read_sentence_modules(folder: CheckpointFolder, dim: int | None) -> SentenceModules:
    """Read the modules of sentence-transformers, if there are any.

    Raises:
        CheckpointError: if they do something that an edgebert model does not.
    """
    length, lowercase = read_settings(folder)
    if not folder.has(MODULES):
        if folder.has("1_Pooling"):
            raise CheckpointError(f"{MODULES} is missing beside 1_Pooling; download the checkpoint again")
        return SentenceModules(max_seq_length=length, lowercase=lowercase)
    kinds, paths = read_modules(folder)
    if kinds == [TRANSFORMER_MODULE]:
        return SentenceModules(max_seq_length=length, lowercase=lowercase)
    if kinds not in ([TRANSFORMER_MODULE, POOLING_MODULE], [TRANSFORMER_MODULE, POOLING_MODULE, NORMALIZE_MODULE]):
        raise CheckpointError(
            f"{MODULES} lists {some(kinds) or 'no modules'}; supported: {TRANSFORMER_MODULE}, {POOLING_MODULE}, "
            f"and {NORMALIZE_MODULE} or nothing, in this order"
        )
    pooling = read_pooling(folder, f"{paths[1]}/config.json", dim)
    return SentenceModules(pooling, kinds[-1] == NORMALIZE_MODULE, length, lowercase, read_prompts(folder))


def read_modules(folder: CheckpointFolder) -> tuple[list[str], list[str]]:
    """Return kind and subfolder of every module, in order."""
    kinds, paths = [], []
    for entry in folder.json(MODULES, list):
        kind, path = (entry.get("type"), entry.get("path")) if isinstance(entry, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(path, str) or not kind.startswith("sentence_transformers."):
            raise CheckpointError(
                f"{MODULES}: module {entry!r:.120} is none of sentence-transformers' own; not supported"
            )
        kinds.append(kind.rsplit(".", 1)[-1])
        paths.append(path)
        if kinds[-1] == TRANSFORMER_MODULE and path:
            raise CheckpointError(
                f"{MODULES} keeps the model in {path!r:.80}; copy the files from there into the folder"
            )
        if path and not is_plain(path):
            raise CheckpointError(
                f"{MODULES}: path {path!r:.120} leads out of the folder; is the checkpoint to be trusted?"
            )
    return kinds, paths


def read_pooling(folder: CheckpointFolder, name: str, dim: int | None) -> str:
    """Return the pooling, checked against ``dim`` features if given."""
    data = folder.json(name)
    modes = pooling_modes(data)
    if len(modes) != 1:
        active = " and ".join(f"{mode!s:.40}" for mode in modes[:5]) or "none"
        raise CheckpointError(f"{name}: {active} of the poolings is switched on; supported: one of {supported()}")
    if not isinstance(modes[0], str) or modes[0] not in POOLING_MODES:
        raise CheckpointError(f"{name}: pooling {modes[0]!r:.60} is not supported; supported: {supported()}")
    for key in ("word_embedding_dimension", "embedding_dimension"):
        if dim is not None and data.get(key, dim) != dim:
            raise CheckpointError(f"{name}: {key}={data[key]!r:.60} is not the hidden_size={dim} of config.json")
    return POOLING_MODES[modes[0]]


def pooling_modes(data: dict[str, Any]) -> list[Any]:
    """Return the enabled poolings, in either notation."""
    if "pooling_mode" in data:
        mode = data["pooling_mode"]
        return mode if isinstance(mode, list) else [mode]
    switches = {key: value for key, value in data.items() if key.startswith("pooling_mode_")}
    if not switches:
        return ["mean"]  # what sentence-transformers takes then
    return [POOLING_SWITCHES.get(key, key) for key, value in switches.items() if value is not False]


def supported() -> str:
    """Return their names of the poolings that we have."""
    return ", ".join(POOLING_MODES)


def read_settings(folder: CheckpointFolder) -> tuple[int | None, bool]:
    """Return the maximum length, and whether texts are lowercased."""
    data = folder.json(SETTINGS) if folder.has(SETTINGS) else {}
    length, lowercase = data.get("max_seq_length"), data.get("do_lower_case", False)
    if length is not None and (type(length) is not int or length < 1):
        raise CheckpointError(f"{SETTINGS}: max_seq_length={length!r:.60} is not a whole number of tokens")
    if type(lowercase) is not bool:
        raise CheckpointError(f"{SETTINGS}: do_lower_case={lowercase!r:.60} is neither true nor false")
    return length, lowercase


def read_prompts(folder: CheckpointFolder) -> tuple[str, ...]:
    """Note a prompt that sentence-transformers would put before every text."""
    data = folder.json(PROMPTS) if folder.has(PROMPTS) else {}
    if (prompt := data.get("default_prompt_name")) is None:
        return ()
    return (f"{PROMPTS} puts the prompt {prompt!r:.60} before each text; put it there yourself",)
