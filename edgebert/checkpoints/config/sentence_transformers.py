"""Read the modules of sentence-transformers: the transformer, its pooling and normalization."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from edgebert.checkpoints.config.sentence_settings import Prompts, TextSettings, read_prompts, read_settings
from edgebert.checkpoints.folder import CheckpointFolder, is_plain, some
from edgebert_runtime.errors import CheckpointError

MODULES = "modules.json"

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
POOLING_MODES = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean": "weightedmean",
    "lasttoken": "last",
}
# Our name of the vector that a model's own pooler makes.
POOLER = "pooler"
# The vector that a Normalize module scales.
VECTOR = "sentence_embedding"


@dataclass(frozen=True)
class SentenceModules:
    """Pooling, truncation and prompts of a folder; None where unspecified.

    ``include_prompt`` says whether the tokens of a prompt are pooled.
    """

    pooling: str | None = None
    normalize: bool | None = None
    include_prompt: bool = True
    text: TextSettings = TextSettings()
    prompts: Prompts = field(default_factory=Prompts)


def read_sentence_modules(folder: CheckpointFolder, dim: int | None) -> SentenceModules:
    """Read the modules of sentence-transformers, if there are any.

    Without modules.json no other file of theirs counts, as in sentence-transformers.

    Raises:
        CheckpointError: if they do something that an edgebert model does not.
    """
    if not folder.has(MODULES):
        if folder.has("1_Pooling"):
            raise CheckpointError(f"{MODULES} is missing beside 1_Pooling; save or download the checkpoint again")
        return SentenceModules()
    kinds, paths = read_modules(folder)
    text = read_settings(folder)
    normalize = kinds[-1:] == [NORMALIZE_MODULE]
    if normalize:
        check_normalize(folder, f"{paths[-1]}/config.json")
        kinds, paths = kinds[:-1], paths[:-1]
    if kinds == [TRANSFORMER_MODULE] and text.output == "pooler_output":
        return SentenceModules(POOLER, normalize, text=text, prompts=read_prompts(folder))
    if kinds == [TRANSFORMER_MODULE] and not normalize:
        return SentenceModules(text=text)
    if kinds != [TRANSFORMER_MODULE, POOLING_MODULE]:
        listed = some([*kinds, NORMALIZE_MODULE] if normalize else kinds)
        raise CheckpointError(
            f"{MODULES} lists {listed or 'no modules'}; supported: {TRANSFORMER_MODULE}, {POOLING_MODULE}, "
            f"and {NORMALIZE_MODULE} or nothing, in this order"
        )
    if text.output != "last_hidden_state":
        raise CheckpointError(f"{MODULES} pools {text.output}; supported: the last_hidden_state of the model")
    pooling, include_prompt = read_pooling(folder, f"{paths[1]}/config.json", dim)
    return SentenceModules(pooling, normalize, include_prompt, text, read_prompts(folder))


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


def check_normalize(folder: CheckpointFolder, name: str) -> None:
    """Make sure that Normalize scales the vectors of texts. Older versions saved no file.

    Raises:
        CheckpointError: if it scales something else.
    """
    data = folder.json(name) if folder.has(name) else {}
    for key in ("module_input_name", "module_output_name"):
        if data.get(key) not in (VECTOR, None):
            raise CheckpointError(f"{name}: {key}={data[key]!r:.60} is not supported, only {VECTOR!r}")


def read_pooling(folder: CheckpointFolder, name: str, dim: int | None) -> tuple[str, bool]:
    """Return the pooling, checked against ``dim`` features if given, and whether it includes prompts."""
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
    include_prompt = data.get("include_prompt", True)
    if type(include_prompt) is not bool:
        raise CheckpointError(f"{name}: include_prompt={include_prompt!r:.60} is neither true nor false")
    return POOLING_MODES[modes[0]], include_prompt


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
