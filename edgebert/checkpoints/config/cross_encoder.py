"""Read what sentence-transformers saves of a CrossEncoder: the activation of its scores, and its prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from edgebert.checkpoints.folder import CheckpointFolder, some
from edgebert_runtime.errors import CheckpointError, ConfigError

CONFIG = "config.json"
MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
KIND = "CrossEncoder"

# Classes of torch.nn, and our names of them (see edgebert_runtime.tasks.activations).
ACTIVATIONS = {
    name: name.lower()
    for name in (
        "Identity", "Sigmoid", "Softmax", "Tanh", "ReLU", "Softplus", "Softsign", "LogSigmoid", "LogSoftmax",
        "Hardsigmoid", "Hardtanh",
    )
}  # fmt: skip
TORCH_CLASS = re.compile(r"torch\.nn\.(?:modules\.\w+\.)?(\w+)")


@dataclass(frozen=True)
class CrossEncoder:
    """The settings of a CrossEncoder.

    ``activation`` is None where the default counts: a sigmoid of one output, and the numbers of several. ``prompt``
    stands before the first text of every pair.
    """

    activation: str | None = None
    prompt: str = ""
    notes: tuple[str, ...] = ()


def read_cross_encoder(folder: CheckpointFolder, data: dict[str, Any]) -> CrossEncoder | None:
    """Return the settings of a CrossEncoder, None where neither its files nor config.json, ``data``, say it is one.

    Without modules.json its own file does not count, as in sentence-transformers.

    Raises:
        CheckpointError: naming modules that change the score, or a prompt that is not there.
        ConfigError: naming an activation that we do not have.
    """
    settings = folder.json(SETTINGS) if folder.has(MODULES) and folder.has(SETTINGS) else {}
    is_saved = settings.get("model_type") == KIND
    places = [(SETTINGS, settings.get("activation_fn"))] if is_saved else []
    places += config_activation(data)
    if not is_saved and not places:
        return None
    notes: list[str] = []
    activation = next(known_activations(places, notes), None)
    if not is_saved:
        return CrossEncoder(activation, notes=tuple(notes))
    check_modules(folder)
    prompt = default_prompt(settings)
    if others := sorted(name for name, text in (settings.get("prompts") or {}).items() if text and text != prompt):
        notes.append(f"{SETTINGS}: the prompts {some(others)} are left out; put them before the query yourself")
    return CrossEncoder(activation, prompt, tuple(notes))


def config_activation(data: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the activation in config.json, of the newer or the older key."""
    newer = data.get("sentence_transformers")
    if isinstance(newer, dict) and "activation_fn" in newer:
        return [(f"{CONFIG}: sentence_transformers", newer["activation_fn"])]
    older = data.get("sbert_ce_default_activation_function")
    return [] if older is None else [(CONFIG, older)]


def known_activations(places: list[tuple[str, Any]], notes: list[str]) -> Iterator[str]:
    """Yield our names of the activations, those of other packages left out with a note.

    Raises:
        ConfigError: naming one of PyTorch that we do not have.
    """
    for place, path in places:
        if path is None:
            continue
        if not isinstance(path, str):
            raise ConfigError(f"{place}: activation_fn={path!r:.60} is not the name of a class; correct or remove it")
        name = TORCH_CLASS.fullmatch(path)
        if name and name[1] in ACTIVATIONS:
            yield ACTIVATIONS[name[1]]
        elif path.startswith("torch."):
            raise ConfigError(
                f"{place}: activation {path!r:.80} is not supported; supported: {', '.join(ACTIVATIONS)} of torch.nn"
            )
        else:
            notes.append(f"{place}: activation {path!r:.80} is code that is not run; took the default in its place")


def check_modules(folder: CheckpointFolder) -> None:
    """Make sure that nothing but the transformer makes the score.

    Raises:
        CheckpointError: naming the modules.
    """
    kinds = [
        str(entry.get("type") if isinstance(entry, dict) else entry).rsplit(".", 1)[-1]
        for entry in folder.json(MODULES, list)
    ]
    if kinds != ["Transformer"]:
        raise CheckpointError(
            f"{MODULES} lists {some(kinds) or 'no modules'}, which make the score of this {KIND}; supported: a "
            "Transformer alone, whose classification head gives it"
        )


def default_prompt(settings: dict[str, Any]) -> str:
    """Return the text of the default prompt, empty where there is none.

    Raises:
        CheckpointError: if its name is not that of a text.
    """
    name, prompts = settings.get("default_prompt_name"), settings.get("prompts") or {}
    if name is None:
        return ""
    text = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else None
    if not isinstance(text, str):
        raise CheckpointError(f"{SETTINGS}: default_prompt_name={name!r:.60} is none of its prompts; name one, or null")
    return text
