"""A sound checkpoint folder, and the ways to break it."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from torch import Tensor

from edgebert.checkpoints import open_checkpoint
from edgebert.models.bert.checkpoint_names import BERT_FIELDS
from edgebert_runtime.errors import CheckpointError
from tests.support.tiny import write_checkpoint

CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "vocab_size": 11,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 7,
    "type_vocab_size": 3,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "pad_token_id": 0,
}
QUERY = "encoder.layer.0.attention.self.query.weight"
Change = Callable[[Path], object]
Faults = dict[str, tuple[Change, tuple[str, ...]]]  # what to break, and what the message must say


def write(name: str, content: str | bytes) -> Change:
    """Return a change that gives a file of the folder another content."""
    data = content.encode() if isinstance(content, str) else content

    def change(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)

    return change


def remove(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def config(*missing: str, **changed: Any) -> Change:
    """Return a change of config.json."""
    remaining = {key: value for key, value in {**CONFIG, **changed}.items() if key not in missing}
    return write("config.json", json.dumps(remaining))


def tensors(change: Callable[[dict[str, Tensor]], object]) -> Change:
    """Return a change of the weights, in a sound file."""

    def rewrite(folder: Path) -> None:
        loaded = load_file(folder / "model.safetensors")
        change(loaded)
        save_file({name: tensor.contiguous() for name, tensor in loaded.items()}, folder / "model.safetensors")

    return rewrite


def weights(change: Callable[[bytes], bytes]) -> Change:
    """Return a change of the bytes of the weights."""

    def rewrite(folder: Path) -> None:
        file = folder / "model.safetensors"
        file.write_bytes(change(file.read_bytes()))

    return rewrite


def pack(header: bytes, data: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def split(content: bytes) -> tuple[bytes, bytes]:
    (length,) = struct.unpack("<Q", content[:8])
    return content[8 : 8 + length], content[8 + length :]


def header(change: Callable[[dict[str, Any]], object]) -> Change:
    """Return a change of the header of the weights, which leaves the data alone."""

    def rewrite(content: bytes) -> bytes:
        text, data = split(content)
        entries = json.loads(text)
        change(entries)
        return pack(json.dumps(entries).encode(), data)

    return weights(rewrite)


def shards(**listed: Any) -> Change:
    """Return a change that moves the weights into one shard, with ``listed`` changes of the index."""

    def rewrite(folder: Path) -> None:
        names = list(load_file(folder / "model.safetensors"))
        (folder / "model.safetensors").rename(folder / "model-1.safetensors")
        index = {"metadata": {}, "weight_map": {**dict.fromkeys(names, "model-1.safetensors"), **listed}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    return rewrite


def modules(*kinds: str, pooling: dict[str, Any] | None = None, path: str = "1_Pooling") -> Change:
    """Return a change that adds modules of sentence-transformers."""

    def add(folder: Path) -> None:
        paths = ["", path, "2_Normalize", "3_More"]
        types = [kind if "." in kind else f"sentence_transformers.models.{kind}" for kind in kinds]
        entries = [{"idx": i, "name": str(i), "path": paths[i], "type": kind} for i, kind in enumerate(types)]
        write("modules.json", json.dumps(entries))(folder)
        content = pooling or {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True}
        write("1_Pooling/config.json", json.dumps(content))(folder)

    return add


def pooled(**content: Any) -> Change:
    return modules("Transformer", "Pooling", pooling={"word_embedding_dimension": 8, **content})


def link(name: str, target: str) -> Change:
    """Return a change that replaces a file by a link."""

    def replace(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return replace


def pipe(name: str) -> Change:
    """Return a change that replaces a file by a named pipe, into which nobody writes."""

    def replace(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return replace


def write_task(folder: Path, **changed: Any) -> Path:
    """Write a tiny checkpoint; keys of ``settings`` that are None are taken out of its config.json."""
    write_checkpoint(folder, **changed)
    data = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({key: data[key] for key in data if data[key] is not None}))
    return folder


def write_sound(folder: Path) -> Path:
    """Fill a folder with a checkpoint that can be opened."""
    sizes = {field: CONFIG[key] for key, field in BERT_FIELDS.items()}
    write_checkpoint(folder, pooling=None, **sizes)
    config()(folder)
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]) + "\n")
    return folder


def message(folder: str | Path, **options: Any) -> str:
    """Open a broken folder and return the message, which must be one printable line."""
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(folder, **options)
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 2500
    return text


def assert_named(folder: Path, fault: tuple[Change, tuple[str, ...]]) -> None:
    """Break a folder and make sure that the message says what is wrong, where, and what to do."""
    change, expected = fault
    change(folder)
    text = message(folder)
    assert str(folder) in text
    for part in expected:
        assert part in text
