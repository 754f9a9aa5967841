"""Read how sentence-transformers prepares texts: where they are cut, and the prompts before them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from edgebert.checkpoints.folder import CheckpointFolder
from edgebert_runtime.errors import CheckpointError

# The settings of the Transformer module; the first that says something is read.
SETTINGS = tuple(
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
PROMPTS = "config_sentence_transformers.json"

# Today's names of the arguments of from_pretrained, and those that older versions saved.
OLD_NAMES = {"model_args": "model_kwargs", "tokenizer_args": "processor_kwargs", "config_args": "config_kwargs"}
# Arguments of from_pretrained that say where and how files are loaded, not what is computed.
LOADING = (
    "attn_implementation", "cache_dir", "device_map", "dtype", "force_download", "local_files_only",
    "low_cpu_mem_usage", "revision", "subfolder", "token", "torch_dtype", "trust_remote_code", "use_fast",
    "use_safetensors",
)  # fmt: skip
# Of the call of a tokenizer: padding and form of its result, which change no vector.
HARMLESS = ("padding", "pad_to_multiple_of", "return_tensors", "return_attention_mask", "return_token_type_ids")
# How the module may run the model; anything else is another computation.
USUAL: dict[str, tuple[Any, ...]] = {
    "transformer_task": ("feature-extraction", "sequence-classification", None),
    "query_length": (None,),
    "document_length": (None,),
    "query_expansion": (None,),
    "tokenizer_name_or_path": (None,),
}
READ = (
    *USUAL, *OLD_NAMES, *OLD_NAMES.values(), "max_seq_length", "do_lower_case", "processing_kwargs", "modality_config",
    "module_output_name", "unpad_inputs", "cache_dir", "backend",
)  # fmt: skip
# Outputs of the model that the module may pass on, and its names of them.
OUTPUTS = {"last_hidden_state": "token_embeddings", "logits": "scores", "pooler_output": "sentence_embedding"}
SENTENCE_MODEL = "SentenceTransformer"
# Prompts that every model has, empty where the folder does not give them.
ROLES = ("query", "document")


@dataclass(frozen=True)
class TextSettings:
    """Where texts are cut; None where unspecified. ``output`` is the output of the model that is passed on."""

    max_seq_length: int | None = None
    lowercase: bool = False
    truncation_side: str | None = None
    output: str = "last_hidden_state"


@dataclass(frozen=True)
class Prompts:
    """The prompts by name, the name of the default, and the size of vectors after the cut."""

    texts: dict[str, str] = field(default_factory=dict)
    default: str | None = None
    dim: int | None = None


def read_settings(folder: CheckpointFolder) -> TextSettings:
    """Read the settings of the Transformer module.

    Raises:
        CheckpointError: naming the first setting that would change vectors and is not supported.
    """
    name, data = SETTINGS[0], dict[str, Any]()
    for name in SETTINGS:
        if folder.has(name) and (data := folder.json(name)):
            break
    if unknown := sorted(data.keys() - set(READ)):
        raise CheckpointError(f"{name}: {unknown[0]!r:.80} is no setting of sentence-transformers; remove it")
    for key, usual in USUAL.items():
        if data.get(key) not in usual:
            raise CheckpointError(f"{name}: {key}={data[key]!r:.60} is not supported; export another checkpoint")
    lowercase = data.get("do_lower_case", False)
    if type(lowercase) is not bool:
        raise CheckpointError(f"{name}: do_lower_case={lowercase!r:.60} is neither true nor false")
    for kind, home in (("model_kwargs", "config.json"), ("config_kwargs", "config.json")):
        arguments(name, data, kind, (), home)
    loaded = arguments(name, data, "processor_kwargs", ("model_max_length", "truncation_side"), "tokenizer_config.json")
    lengths = {"max_seq_length": data.get("max_seq_length"), **loaded, **called(name, data)}
    side = lengths.pop("truncation_side", None)
    if side not in ("left", "right", None):
        raise CheckpointError(f"{name}: truncation_side={side!r:.60} is neither 'left' nor 'right'")
    for key, value in lengths.items():
        if value is not None and (type(value) is not int or value < 1):
            raise CheckpointError(f"{name}: {key}={value!r:.60} is not a whole number of tokens from 1; correct it")
    order = ("max_length", "model_max_length", "max_seq_length")
    length = next((lengths[key] for key in order if lengths.get(key) is not None), None)
    return TextSettings(length, lowercase, side, model_output(name, data))


def arguments(name: str, data: dict[str, Any], kind: str, used: tuple[str, ...], home: str) -> dict[str, Any]:
    """Return the arguments ``kind`` of from_pretrained, of which ``used`` are honoured.

    Raises:
        CheckpointError: for one that may change vectors, with the file that it belongs into.
    """
    for key in (kind, *(old for old, new in OLD_NAMES.items() if new == kind)):
        values = entry(name, data, key)
        if others := sorted(values.keys() - {*LOADING, *used, "padding_side"}):
            raise CheckpointError(
                f"{name}: {key} sets {others[0]}={values[others[0]]!r:.60}, which is not read here; put it into {home}"
            )
    # The old name replaces the new one, as sentence-transformers reads them.
    old = next(old for old, new in OLD_NAMES.items() if new == kind)
    values = entry(name, data, old if old in data else kind)
    return {key: value for key, value in values.items() if key in used}


def called(name: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the length among the arguments of each call of the tokenizer.

    Raises:
        CheckpointError: for an argument that may change vectors.
    """
    calls = entry(name, data, "processing_kwargs")
    values = {**entry(name, calls, "text"), **entry(name, calls, "common")}
    if values.get("truncation", True) in (True, "longest_first"):
        values.pop("truncation", None)
    if others := sorted(values.keys() - {*HARMLESS, "max_length"}):
        raise CheckpointError(
            f"{name}: processing_kwargs sets {others[0]}={values[others[0]]!r:.60}, which is not supported; remove it"
        )
    return {"max_length": values["max_length"]} if "max_length" in values else {}


def model_output(name: str, data: dict[str, Any]) -> str:
    """Return the output of the model that the module passes on.

    Raises:
        CheckpointError: if it is none of :data:`OUTPUTS`.
    """
    usual = "logits" if data.get("transformer_task") == "sequence-classification" else "last_hidden_state"
    text = entry(name, entry(name, data, "modality_config"), "text")
    method, output = text.get("method", "forward"), text.get("method_output_name", usual)
    result = data.get("module_output_name")
    if method == "forward" and isinstance(output, str) and output in OUTPUTS and result in (OUTPUTS[output], None):
        return output
    raise CheckpointError(
        f"{name}: modality_config takes {output!r:.60} of {method!r:.40} as {result!r:.60}, which is not supported; "
        f"supported: {', '.join(OUTPUTS)} of 'forward'"
    )


def entry(name: str, data: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the object at ``key``, empty where there is none.

    Raises:
        CheckpointError: if it is something else.
    """
    value = data.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise CheckpointError(f"{name}: {key}={value!r:.60} is not an object")
    return value


def read_prompts(folder: CheckpointFolder) -> Prompts:
    """Read prompts, the default prompt and the size of vectors.

    Raises:
        CheckpointError: naming an entry that sentence-transformers would fail at.
    """
    data = folder.json(PROMPTS) if folder.has(PROMPTS) else {}
    if data.get("model_type", SENTENCE_MODEL) != SENTENCE_MODEL:
        raise CheckpointError(
            f"{PROMPTS}: model_type={data['model_type']!r:.60} is not supported beside a pooling, only {SENTENCE_MODEL}"
        )
    texts, default, dim = data.get("prompts", {}), data.get("default_prompt_name"), data.get("truncate_dim")
    if not isinstance(texts, dict):
        raise CheckpointError(f"{PROMPTS}: prompts={texts!r:.60} is not an object of names and texts")
    for key, text in texts.items():
        if not isinstance(text, str | None):
            raise CheckpointError(f"{PROMPTS}: the prompt {key!r:.60} is {text!r:.60}, not a text")
    if default is not None and default not in (*texts, *ROLES):
        raise CheckpointError(
            f"{PROMPTS}: default_prompt_name={default!r:.60} is none of the prompts "
            f"({', '.join(map(repr, texts)) or 'there are none'}); name one of them, or null"
        )
    if dim is not None and (type(dim) is not int or dim < 1):
        raise CheckpointError(f"{PROMPTS}: truncate_dim={dim!r:.60} is not a whole number from 1; correct it, or null")
    return Prompts({key: text or "" for key, text in texts.items()}, default if texts.get(default) else None, dim)
