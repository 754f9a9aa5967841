"""Whatever is wrong with the folder, its links and the modules beside the model is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edgebert.checkpoints import open_checkpoint
from edgebert.models.bert.checkpoint_names import BERT_FIELDS
from edgebert.models.bert.model import BertConfig
from tests.checkpoints.broken import (
    CONFIG,
    Faults,
    assert_named,
    config,
    link,
    message,
    modules,
    pipe,
    pooled,
    remove,
    weights,
    write,
)

AGAIN = "download it again"


def folder_for_a_file(folder: Path) -> None:
    remove("config.json")(folder)
    (folder / "config.json").mkdir()


FAULTS: Faults = {
    "folder for a file": (
        folder_for_a_file,
        ("config.json is not a regular file", "put the file itself"),
    ),
    "pipe for config.json": (pipe("config.json"), ("config.json is not a regular file",)),
    "pipe for weights": (pipe("model.safetensors"), ("model.safetensors is not a regular file",)),
    "pipe for the vocabulary": (pipe("vocab.txt"), ("vocab.txt is not a regular file",)),
    "device": (
        link("model.safetensors", "/dev/zero"),
        ("model.safetensors is a link to /dev/zero, outside", "replace"),
    ),
    "link out": (link("config.json", "../elsewhere.json"), ("config.json is a link to", "outside", "replace the link")),
    "link to itself": (link("config.json", "config.json"), ("config.json cannot be read", "check the file")),
    "dangling link": (link("vocab.txt", "nothing.txt"), ("vocab.txt is missing", "download")),
    "dense": (
        modules("Transformer", "Pooling", "Dense"),
        ("modules.json lists Transformer, Pooling, Dense; supported: Transformer, Pooling, and Normalize",),
    ),
    "layer norm": (modules("Transformer", "Pooling", "LayerNorm", "Normalize"), ("modules.json", "LayerNorm")),
    "normalize only": (modules("Transformer", "Normalize"), ("modules.json lists Transformer, Normalize;",)),
    "foreign": (
        modules("Transformer", "custom.code.Pooling"),
        ("modules.json", "custom.code.Pooling", "not supported"),
    ),
    "not a list": (write("modules.json", "{}"), ("modules.json should hold a list, holds {}", AGAIN)),
    "out of the folder": (modules("Transformer", "Pooling", path="../p"), ("modules.json: path '../p' leads out",)),
    "model in a subfolder": (
        write("modules.json", '[{"type": "sentence_transformers.models.Transformer", "path": "0_BERT"}]'),
        ("modules.json keeps the model in '0_BERT'", "copy the files"),
    ),
    "pooling missing": (
        modules("Transformer", "Pooling", path="1_Gone"),
        ("1_Gone/config.json is missing", "download"),
    ),
    "modules missing": (write("1_Pooling/config.json", "{}"), ("modules.json is missing beside 1_Pooling", "download")),
    "two poolings": (
        pooled(pooling_mode_cls_token=True, pooling_mode_mean_tokens=True),
        ("1_Pooling/config.json: cls and mean of the poolings", "one of cls, max, mean, mean_sqrt_len_tokens,"),
    ),
    "two poolings in a list": (pooled(pooling_mode=["mean", "max"]), ("1_Pooling/config.json: mean and max",)),
    "no pooling": (pooled(pooling_mode_mean_tokens=False), ("1_Pooling/config.json: none of the poolings",)),
    "other pooling": (
        pooled(pooling_mode="attention"),
        ("1_Pooling/config.json: pooling 'attention' is not supported; supported: cls",),
    ),
    "unknown switch": (pooled(pooling_mode_new=True), ("pooling 'pooling_mode_new' is not supported",)),
    "pooling of a wrong type": (pooled(pooling_mode=3), ("1_Pooling/config.json: pooling 3 is not supported",)),
    "pooling of another size": (
        pooled(word_embedding_dimension=9, pooling_mode="mean"),
        ("1_Pooling/config.json: word_embedding_dimension=9 is not the hidden_size=8 of config.json",),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(folder: Path, fault: str) -> None:
    assert_named(folder, FAULTS[fault])


def test_sound_folder_opens(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    assert checkpoint.path == folder
    assert checkpoint.config == BertConfig(**{field: CONFIG[key] for key, field in BERT_FIELDS.items()})
    assert (checkpoint.family, checkpoint.ignored) == ("bert", ())
    assert checkpoint.notes == ()
    assert len(repr(checkpoint)) < 1000


def test_all_faults_come_at_once(folder: Path) -> None:
    config(hidden_act="x", pad_token_id=-1, is_decoder=True, vocab_sise=3)(folder)
    weights(lambda content: content[:-4])(folder)
    write("vocab.txt", "a\na\n")(folder)
    modules("Transformer", "WordWeights")(folder)
    text = message(folder)
    for part in ("'x'", "is_decoder", "'vocab_sise'", "should have", "line 2 repeats 'a' of line 1", "WordWeights"):
        assert part in text


def test_folder_that_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "empty").mkdir()
    monkeypatch.chdir(folder)
    assert "vocab.txt is not a folder; give the folder" in message(folder / "vocab.txt")
    assert "does not exist; give the folder" in message(folder / "no" / "such")
    assert "hf download sentence-transformers/all-MiniLM-L6-v2" in message("sentence-transformers/all-MiniLM-L6-v2")
    assert "hf download bert-base-uncased" in message("bert-base-uncased")
    assert "does not exist" in message("a\0b\n")
    text = message("empty")
    for part in ("config.json is missing", "model.safetensors is missing (found nothing)", "vocab.txt are missing"):
        assert part in text


def test_links_within_the_folder_and_the_hub_cache(sound: Path, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "c0ffee"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for number, file in enumerate(sound.iterdir()):
        shutil.copy(file, blobs / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    open_checkpoint(snapshot).load_model()
    (tmp_path / "link").symlink_to(snapshot)
    open_checkpoint(tmp_path / "link").load_model()


def test_a_local_folder_of_links_into_the_hub_cache(sound: Path, tmp_path: Path) -> None:
    """What ``hf download --local-dir`` of older versions makes."""
    blobs, local = tmp_path / "cache" / "models--a--b" / "blobs", tmp_path / "local"
    blobs.mkdir(parents=True)
    local.mkdir()
    for number, file in enumerate(sound.iterdir()):
        shutil.copy(file, blobs / str(number))
        (local / file.name).symlink_to(blobs / str(number))
    open_checkpoint(local).load_model()
