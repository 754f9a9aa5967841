"""Whatever is wrong with the files of the weights is named."""

from __future__ import annotations

import contextlib
import json
import math
import random
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from edgebert.checkpoints import open_checkpoint
from edgebert_runtime.errors import CheckpointError
from tests.checkpoints.broken import (
    QUERY,
    Faults,
    assert_named,
    header,
    message,
    pack,
    remove,
    shards,
    split,
    tensors,
    weights,
    write,
)

AGAIN = "download it again"


def many(folder: Path) -> None:
    entries = {f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(100_001)}
    (folder / "model.safetensors").write_bytes(pack(json.dumps(entries).encode(), b""))


def large_header(folder: Path) -> None:
    with open(folder / "model.safetensors", "wb") as stream:
        stream.write(struct.pack("<Q", 25_000_001) + b"{")
        stream.truncate(30_000_000)


def twice(content: bytes) -> bytes:
    text, data = split(content)
    entry = json.dumps(json.loads(text)[QUERY])
    return pack(text.rstrip()[:-1] + f', "{QUERY}": {entry}}}'.encode(), data)


FAULTS: Faults = {
    "missing": (remove("model.safetensors"), ("model.safetensors is missing", "config.json", "download")),
    "pickle only": (
        lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
        (
            "pytorch_model.bin is a pickle",
            "not read",
            "which is safer: python -c",
            "weights_only=True",
            "save_file",
            "with allow_pickle=True",
        ),
    ),
    "TensorFlow only": (
        lambda f: (f / "model.safetensors").rename(f / "tf_model.h5"),
        ("tf_model.h5 is TensorFlow weights of transformers, which is not read", "from_tf=True"),
    ),
    "empty": (write("model.safetensors", b""), ("model.safetensors (0 bytes)", AGAIN)),
    "web page": (write("model.safetensors", "<!DOCTYPE html>\n<p>"), ("model.safetensors is a web page", AGAIN)),
    "pointer": (
        write("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
        ("model.safetensors is a Git LFS pointer", "git lfs pull"),
    ),
    "pickle by name": (write("model.safetensors", b"PK\x03\x04" + b"x" * 40), ("model.safetensors is a pickle",)),
    "noise": (write("model.safetensors", bytes(range(200))), ("model.safetensors (200 bytes) is not a safe", AGAIN)),
    "truncated": (weights(lambda b: b[:-40]), ("model.safetensors should have", "bytes of tensors, has", AGAIN)),
    "truncated header": (weights(lambda b: b[:300]), ("model.safetensors should have at least", "has 300", AGAIN)),
    "trailing": (weights(lambda b: b + b"\0"), ("model.safetensors should have", AGAIN)),
    "header of no text": (weights(lambda b: b[:20] + b"\xff" + b[21:]), ("model.safetensors: the header", "byte 20")),
    "header of no JSON": (
        weights(lambda b: b[:9] + b"'" + b[10:]),
        ("model.safetensors: the header is not valid JSON",),
    ),
    "large header": (large_header, ("model.safetensors: the header says it has 25000001 bytes, at most 25000000",)),
    "many tensors": (many, ("model.safetensors lists 100001 tensors, at most 100000",)),
    "tensor twice": (weights(twice), ("model.safetensors: the header", repr(QUERY), "twice", AGAIN)),
    "entry": (header(lambda h: h.update({QUERY: [1]})), (f"tensor '{QUERY}' is not described by dtype", AGAIN)),
    "dtype": (
        header(lambda h: h[QUERY].update(dtype="F7")),
        (f"tensor '{QUERY}' has the unknown dtype 'F7'", "float32"),
    ),
    "shape": (header(lambda h: h[QUERY].update(shape=[-1, 8])), (f"'{QUERY}' has the impossible shape [-1, 8]", AGAIN)),
    "size": (header(lambda h: h[QUERY].update(shape=[8, 9])), (f"'{QUERY}' of shape [8, 9] in F32 needs 288", AGAIN)),
    "overflow": (
        header(lambda h: h[QUERY].update(shape=[1 << 62, 1 << 62])),
        (f"'{QUERY}' of shape", str(4 << 124), AGAIN),
    ),
    "offsets": (header(lambda h: h[QUERY].update(data_offsets=[9, 2])), ("impossible data_offsets [9, 2]", AGAIN)),
    "hole": (
        header(lambda h: [e.update(data_offsets=[n + 4 for n in e["data_offsets"]]) for e in h.values()]),
        ("starts at byte 4 and leaves a hole before it", AGAIN),
    ),
    "overlap": (
        header(
            lambda h: h["encoder.layer.0.output.dense.bias"].update(
                data_offsets=h["embeddings.LayerNorm.bias"]["data_offsets"]
            )
        ),
        ("overlaps the tensor before it", AGAIN),
    ),
    "missing tensor": (tensors(lambda t: t.pop(QUERY)), (f"tensors missing: {QUERY};", "one and the same model")),
    "unexpected tensor": (
        tensors(lambda t: t.update({"encoder.layer.1.output.dense.bias": torch.ones(8)})),
        ("tensors unexpected: encoder.layer.1.output.dense.bias;", "one and the same model"),
    ),
    "transposed": (
        tensors(lambda t: t.update({"encoder.layer.0.output.dense.weight": torch.ones(12, 8)})),
        ("encoder.layer.0.output.dense.weight has shape [12, 8], should have [8, 12];", "one and the same model"),
    ),
    "integers": (
        tensors(lambda t: t.update({QUERY: torch.ones(8, 8, dtype=torch.int8)})),
        (f"{QUERY} is I8, should be one of F64, F32, F16, BF16;",),
    ),
    "scalar": (
        tensors(lambda t: t.update({"encoder.layer.0.output.dense.bias": torch.tensor(1.0)})),
        ("encoder.layer.0.output.dense.bias has shape [], should have [8];",),
    ),
    "two names": (
        tensors(lambda t: t.update({f"bert.{QUERY}": torch.ones(8, 8)})),
        (f"tensors twice: bert.{QUERY} and {QUERY}",),
    ),
    "all renamed": (
        tensors(lambda t: [t.update({f"{name}.x": t.pop(name)}) for name in list(t)]),
        ("tensors missing: embeddings.word_embeddings.weight, ", "(21 in all)", "tensors unexpected: "),
    ),
    "index empty": (
        lambda f: (remove("model.safetensors")(f), write("model.safetensors.index.json", "{}")(f)),
        ("model.safetensors.index.json has no weight_map", AGAIN),
    ),
    "shard missing": (shards(**{QUERY: "model-2.safetensors"}), ("lists model-2.safetensors, which the folder lacks",)),
    "shard without its tensor": (
        shards(**{"extra.weight": "model-1.safetensors"}),
        ("model-1.safetensors lacks tensor 'extra.weight'", "download"),
    ),
    "tensor in two shards": (
        lambda f: (
            shards(**{"other.weight": "model-2.safetensors"})(f),
            save_file({"other.weight": torch.ones(1), QUERY: torch.ones(8, 8)}, f / "model-2.safetensors"),
        ),
        (f"tensor '{QUERY}' stands in model-1.safetensors and in model-2.safetensors", "download"),
    ),
}
FAULTS |= {
    f"shard {name!r}": (shards(**{QUERY: name}), ("index.json names", repr(name), "trusted"))
    for name in ("/etc/passwd", "../x.safetensors", "a/b.safetensors", "C:\\x", "x\0.safetensors", "..", "", 7, None)
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(folder: Path, fault: str) -> None:
    assert_named(folder, FAULTS[fault])


def test_all_faults_of_tensors_come_at_once(folder: Path) -> None:
    change = {"encoder.layer.0.output.dense.bias": torch.ones(9), "surprise": torch.ones(1)}
    tensors(lambda t: (t.pop(QUERY), t.update(change)))(folder)
    text = message(folder)
    for part in (
        f"missing: {QUERY}",
        "unexpected: surprise",
        "encoder.layer.0.output.dense.bias has shape [9], should have [8]",
    ):
        assert part in text


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weights_that_are_no_numbers(folder: Path, value: float) -> None:
    tensors(lambda t: t["encoder.layer.0.output.dense.bias"].__setitem__(slice(2, 5), value))(folder)
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(folder).load_model()
    assert "weights are NaN or infinite: encoder.layer.0.output.dense.bias (3 of 8); train" in str(caught.value)


def test_doubles_beyond_float32(folder: Path) -> None:
    tensors(lambda t: t.update({QUERY: torch.full((8, 8), 1e300, dtype=torch.float64)}))(folder)
    with pytest.raises(CheckpointError, match=r"query\.weight \(64 of 64\)"):
        open_checkpoint(folder).load_model()


def test_weights_that_change_after_opening(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    tensors(lambda t: t.pop(QUERY))(folder)
    with pytest.raises(CheckpointError, match="weights changed while they were read"):
        checkpoint.load_model()
    remove("model.safetensors")(folder)
    with pytest.raises(CheckpointError, match=r"model\.safetensors is missing"):
        checkpoint.load_model()


def test_model_keeps_its_weights_when_the_file_goes(folder: Path) -> None:
    model = open_checkpoint(folder).load_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with open(folder / "model.safetensors", "r+b") as stream:
        stream.write(b"\0" * (folder / "model.safetensors").stat().st_size)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_damaged_weights_are_an_error_of_ours_or_harmless(folder: Path) -> None:
    rng = random.Random(4)
    file = folder / "model.safetensors"
    content = file.read_bytes()
    end = 8 + len(split(content)[0])
    for _ in range(300):
        damaged = bytearray(content)
        for _ in range(rng.choice([1, 1, 2, 10])):
            damaged[rng.randrange(end)] = rng.randrange(256)
        file.write_bytes(damaged)
        with contextlib.suppress(CheckpointError):
            open_checkpoint(folder).load_model()
