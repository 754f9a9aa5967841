"""Save a trained model as a checkpoint: the folder that ``edgebert export`` reads, and ``transformers`` too."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from tokenizers import Tokenizer

from edgebert.checkpoints import open_checkpoint
from edgebert.families import Reference
from edgebert.head_names import HEADS
from edgebert.model_types import MODEL_TYPES
from edgebert.weight_files import to_published
from edgebert_runtime.errors import InputError


def save_checkpoint(
    folder: Path,
    model: Reference,
    tokenizer: Tokenizer,
    *,
    model_type: str,
    task: str,
    config: Mapping[str, Any],
    files: Mapping[str, str | Mapping[str, Any]] | None = None,
    half: bool = False,
) -> Path:
    """Write config.json, model.safetensors and tokenizer.json to ``folder``, and return it.

    ``model_type`` and ``task`` decide what the tensors are called. To the sizes in config.json ``config`` is added:
    the ``architectures`` at least. ``files`` are further ones by their names, a text or what is to be JSON. ``half``
    stores the weights as float16, in half the bytes. A checkpoint that was in the folder is replaced, and only by one
    that is complete and opens.

    Raises:
        CheckpointError: if it does not open, as when the tokenizer has more tokens than the model.
        InputError: if ``folder`` is there and is no checkpoint.
    """
    if folder.exists() and not (folder / "config.json").is_file():
        raise InputError(f"{folder} is there already and is no checkpoint; give another folder")
    names = None if task == "embed" else HEADS[model_type][task][0]
    dtype = torch.float16 if half else torch.float32
    published = to_published(model.state_dict(), model_type, names)
    tensors = {name: tensor.to("cpu", dtype).contiguous() for name, tensor in published.items()}
    described = {**describe(model, model_type), "dtype": str(dtype).removeprefix("torch."), **config}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".checkpoint-") as scratch:
        complete = Path(scratch) / folder.name
        complete.mkdir()
        (complete / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
        tokenizer.save(str(complete / "tokenizer.json"))
        for name, content in {"config.json": described, **(files or {})}.items():
            text = content if isinstance(content, str) else json.dumps(content, indent=2, ensure_ascii=False) + "\n"
            (complete / name).write_text(text, encoding="utf-8")
        open_checkpoint(complete, task=task)
        replace(folder, complete, Path(scratch) / "replaced")
    return folder


def describe(model: Reference, model_type: str) -> dict[str, Any]:
    """Return what config.json says of the model's sizes."""
    kind = MODEL_TYPES[model_type]
    config: Any = getattr(model, kind.family, model).config
    sizes = {key: getattr(config, field) for key, field in kind.keys.items()}
    if sizes.get("embedding_size", 1) is None:
        sizes["embedding_size"] = config.hidden_size
    if kind.pads is not None:
        sizes["pad_token_id"] = config.position_offset - 1
    return {"model_type": model_type, **sizes}


def replace(folder: Path, new: Path, old: Path) -> None:
    """Move ``new`` to ``folder``, and what was there to ``old``."""
    there = folder.exists()
    if there:
        os.rename(folder, old)
    try:
        os.rename(new, folder)
    except OSError:
        if there:
            os.rename(old, folder)
        raise
