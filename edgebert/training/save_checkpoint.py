"""Save a trained model as a checkpoint: the folder that ``edgebert export`` reads, and ``transformers`` too."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from tokenizers import Tokenizer
from torch import Tensor

from edgebert.checkpoints import open_checkpoint
from edgebert.checkpoints.config.config_reader import build_config
from edgebert.checkpoints.config.head_tables import HEADS
from edgebert.checkpoints.config.model_factory import Reference
from edgebert.checkpoints.config.model_types import MODEL_TYPES
from edgebert.checkpoints.tokenizers.tokenizer_json import READY
from edgebert.checkpoints.tokenizers.translation import SOURCE_READY, TARGET_READY
from edgebert.checkpoints.weights.name_mapping import to_published
from edgebert.models.bert.heads import HeadedBert
from edgebert.models.bert.pretraining import BertPreTraining
from edgebert.models.seq2seq.config import Seq2SeqConfig
from edgebert_runtime.errors import InputError
from edgebert_runtime.task_specs import TASKS


def save_checkpoint(
    folder: Path,
    model: Reference | BertPreTraining,
    tokenizer: Tokenizer,
    *,
    model_type: str,
    task: str,
    config: Mapping[str, Any],
    target_tokenizer: Tokenizer | None = None,
    files: Mapping[str, str | Mapping[str, Any]] | None = None,
    half: bool = False,
) -> Path:
    """Write config.json, model.safetensors and tokenizer.json to ``folder``, and return it.

    ``model_type`` and ``task`` decide the names of the tensors. A model with both pre-training heads of BERT opens for
    either task. ``config`` adds keys to config.json, at least ``architectures``. With a ``target_tokenizer`` the files
    are source_tokenizer.json and target_tokenizer.json. ``files`` adds files by name, with a text or JSON content.
    ``half`` stores the weights as float16. An existing checkpoint is replaced only by one that is complete and opens.

    Raises:
        CheckpointError: if it does not open, as when the tokenizer has more tokens than the model.
        InputError: if ``folder`` is there and is no checkpoint, or models of this type compute something else.
    """
    if folder.exists() and not (folder / "config.json").is_file():
        raise InputError(f"{folder} is there already and is no checkpoint; give another folder")
    tasks = [*model.heads] if isinstance(model, BertPreTraining) else [task]
    dtype = torch.float16 if half else torch.float32
    tensors = {name: tensor.to("cpu", dtype).contiguous() for name, tensor in publish(model, model_type, task).items()}
    described = {**describe(model, model_type), "dtype": str(dtype).removeprefix("torch."), **config}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".checkpoint-") as scratch:
        complete = Path(scratch) / folder.name
        complete.mkdir()
        (complete / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
        tokenizer.save(str(complete / (SOURCE_READY if target_tokenizer else READY)))
        if target_tokenizer:
            target_tokenizer.save(str(complete / TARGET_READY))
        for name, content in {"config.json": described, **(files or {})}.items():
            text = content if isinstance(content, str) else json.dumps(content, indent=2, ensure_ascii=False) + "\n"
            (complete / name).write_text(text, encoding="utf-8")
        for each in dict.fromkeys([task, *tasks]):
            open_checkpoint(complete, task=each)
        replace(folder, complete, Path(scratch) / "replaced")
    return folder


def publish(model: Reference | BertPreTraining, model_type: str, task: str) -> dict[str, Tensor]:
    """Return the tensors of a model and its heads by published name.

    Raises:
        InputError: if models of this type do not have all of them.
    """
    if isinstance(model, BertPreTraining):
        if lacking := [each for each in model.heads if each not in HEADS[model_type]]:
            raise InputError(f"models of the type {model_type} have no head for {', '.join(lacking)}; give 'bert'")
        parts = [publish(model.with_head(each), model_type, each) for each in model.heads]
        return {name: tensor for part in parts for name, tensor in part.items()}
    if not TASKS[task].own_head:
        return to_published(model.state_dict(), model_type)
    heads = HEADS[model_type][task]
    head = model.head.config if isinstance(model, HeadedBert) else None
    alike = (names for names in heads if head and (names.reads, names.binary) == (head.reads, head.binary))
    return to_published(model.state_dict(), model_type, next(alike, heads[0]))


def describe(model: Reference | BertPreTraining, model_type: str) -> dict[str, Any]:
    """Return the sizes of a model as config.json has them.

    Raises:
        InputError: if models of this type cannot have this configuration.
    """
    kind = MODEL_TYPES[model_type]
    config: Any = getattr(model, kind.family, model).config
    sizes = {key: getattr(config, field) for key, field in kind.keys.items()}
    if sizes.get("embedding_size", 1) is None:
        sizes["embedding_size"] = config.hidden_size
    if kind.default_pad_id is not None:
        sizes["pad_token_id"] = config.position_offset - 1
    if isinstance(config, Seq2SeqConfig):
        sizes |= describe_tables(config, model_type)
        config = dataclasses.replace(config, output_bias=True)  # the tensors say it
    problems: list[str] = []
    said = build_config(model_type, sizes, problems)
    if problems or said is None:
        raise InputError("; ".join(problems))
    theirs, ours = asdict(said), asdict(config)
    if differences := [f"{name}={theirs[name]!r}, not {ours[name]!r}" for name in ours if theirs[name] != ours[name]]:
        hint = "; give model_type='seq2seq'" if kind.family == "seq2seq" else ""
        raise InputError(f"models of the type {model_type} have {', '.join(differences)}{hint}")
    return {"model_type": model_type, **sizes}


def describe_tables(config: Seq2SeqConfig, model_type: str) -> dict[str, Any]:
    """Return the keys of config.json about shared token embeddings."""
    said = {"is_encoder_decoder": True, "tie_word_embeddings": config.tied_head}
    if "share_encoder_decoder_embeddings" not in MODEL_TYPES[model_type].required:
        said["share_encoder_decoder_embeddings"] = config.decoder_vocab_size is None
    return {**said, "decoder_vocab_size": config.target_vocab_size}


def replace(folder: Path, new: Path, old: Path) -> None:
    """Move ``new`` to ``folder``, and the former content to ``old``."""
    there = folder.exists()
    if there:
        os.rename(folder, old)
    try:
        os.rename(new, folder)
    except OSError:
        if there:
            os.rename(old, folder)
        raise
