"""Fixtures of the runtime's tests: a tiny BERT with its tokenizer, exported into a bundle."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import models, normalizers, pre_tokenizers, processors

from edgebert.models.bert import Bert, BertConfig, SentenceEncoder
from edgebert.models.operators import rendering
from edgebert_runtime import Bundle, Embedder
from edgebert_runtime.bundle import sha256
from edgebert_runtime.manifest import MANIFEST_NAME, FileEntry, GraphSpec, Limits, Manifest, TensorSpec, Weights

MAX_TOKENS = 40
DIM = 32
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "the cat sat on a mat and dog ran ##ing in rain , . [ ] é ü 日 本".split()
LETTERS = [prefix + chr(code) for prefix in ("", "##") for code in range(ord("b"), ord("z") + 1)]
VOCAB = [*SPECIALS, *WORDS, *LETTERS]
BATCH_SEQUENCE = ("batch", "sequence")

Rewrite = Callable[..., Path]


@pytest.fixture(scope="session")
def tokenizer_json() -> str:
    """Make a WordPiece tokenizer with the truncation and padding that its author last used still in the file."""
    tokenizer = tokenizers.Tokenizer(models.WordPiece({w: i for i, w in enumerate(VOCAB)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(SPECIALS)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=6)
    text: str = tokenizer.to_str()
    return text


@pytest.fixture(scope="session")
def reference() -> SentenceEncoder:
    """Make the PyTorch model of the bundle."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(VOCAB),
        hidden_size=DIM,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=MAX_TOKENS,
    )
    model = SentenceEncoder(Bert(config), "mean", True).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3)
    return model


def export(model: SentenceEncoder, target: str, file: Path) -> None:
    """Write the graph of ``model`` with its weights inside."""
    ids = torch.arange(14).reshape(2, 7)
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
    names = ["input_ids", "attention_mask", "token_type_ids"]
    with rendering(target), contextlib.redirect_stdout(io.StringIO()):
        program = torch.onnx.export(
            model,
            (ids, mask, torch.zeros_like(ids)),
            dynamo=True,
            opset_version=21,
            input_names=names,
            output_names=["sentence_embedding"],
            dynamic_shapes=(dims, dims, dims),
            verbose=False,
        )
    assert program is not None
    program.save(file)


def manifest_of(folder: Path, target: str) -> Manifest:
    """Describe the files in ``folder``."""
    inputs = tuple(TensorSpec(n, "int64", BATCH_SEQUENCE) for n in ("input_ids", "attention_mask", "token_type_ids"))
    graph = GraphSpec("model.onnx", inputs, (TensorSpec("sentence_embedding", "float32", ("batch", DIM)),))
    names = ("model.onnx", "tokenizer.json")
    return Manifest(
        edgebert_version="0.1.0",
        family="bert",
        task="embed",
        target=target,
        config={},
        graphs={"model": graph},
        settings={"pooling": "mean", "normalize": True},
        limits=Limits(len(VOCAB), MAX_TOKENS, 16),
        weights=Weights("fp32", (folder / "model.onnx").stat().st_size),
        files={name: FileEntry((folder / name).stat().st_size, sha256(folder / name)) for name in names},
    )


@pytest.fixture(scope="session", params=["cpu", "portable"])
def folder(
    request: pytest.FixtureRequest,
    reference: SentenceEncoder,
    tokenizer_json: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Make a bundle, once for each target; ``rewrite`` makes changed copies."""
    target: str = request.param
    folder = tmp_path_factory.mktemp(target)
    export(reference, target, folder / "model.onnx")
    (folder / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    (folder / MANIFEST_NAME).write_text(manifest_of(folder, target).to_json(), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def engine(folder: Path) -> Embedder:
    """Load the bundle."""
    return Embedder(Bundle.open(folder))


@pytest.fixture
def rewrite(folder: Path, tmp_path: Path) -> Rewrite:
    """Return a function that copies the bundle with other files or manifest entries, sizes and hashes up to date."""

    def write(files: dict[str, bytes] | None = None, change: Callable[[dict[str, Any]], None] | None = None) -> Path:
        new = tmp_path / "bundle"
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(folder, new)
        manifest = Manifest.from_json((new / MANIFEST_NAME).read_text())
        for name, content in (files or {}).items():
            (new / name).write_bytes(content)
            entry = FileEntry(len(content), sha256(new / name))
            manifest = dataclasses.replace(manifest, files={**manifest.files, name: entry})
        data = copy.deepcopy(json.loads(manifest.to_json()))
        if change is not None:
            change(data)
        (new / MANIFEST_NAME).write_text(json.dumps(data), encoding="utf-8")
        return new

    return write


@pytest.fixture
def encode(reference: SentenceEncoder) -> Callable[[list[int]], Any]:
    """Return a function that gives the reference's vector of token ids."""

    def run(ids: list[int]) -> Any:
        row = torch.tensor([ids])
        with torch.no_grad():
            return reference(row, torch.ones_like(row), torch.zeros_like(row))[0].numpy()

    return run
