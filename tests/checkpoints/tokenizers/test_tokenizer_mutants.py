"""A tokenizer.json with one wrong place is refused by an error of ours, or works."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from edgebert.checkpoints.folder import CheckpointFolder
from edgebert.checkpoints.tokenizers.tokenizer_json import read_tokenizer
from edgebert_runtime.errors import EdgebertError
from edgebert_runtime.inputs.tokenizer import ModelTokenizer

VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    3,
    2**31,
    2**63,
    0.5,
    "",
    "\ud800",
    "[MASK]",
    [],
    ["a"],
    [[]],
    {},
    {"a": 0},
)
DELETED = object()
TEXT = "the cat[MASK] caf\u00e9 \U00013000 "
Path_ = tuple[Any, ...]


def wordpiece() -> Tokenizer:
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat ##s a ##b".split()
    tokenizer = Tokenizer(models.WordPiece({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False)])
    return tokenizer


def byte_level() -> Tokenizer:
    letters = ["<s>", "</s>", "<mask>", *sorted(pre_tokenizers.ByteLevel.alphabet())[:120], "th"]
    vocabulary = {letter: index for index, letter in enumerate(letters)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("t", "h")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    tokenizer.add_special_tokens(["<mask>"])
    return tokenizer


def unigram() -> Tokenizer:
    pieces = [
        ("<s>", 0.0),
        ("</s>", 0.0),
        ("<unk>", 0.0),
        ("\u2581the", -1.0),
        ("\u2581", -2.0),
        ("a", -3.0),
        ("t", -3.0),
    ]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("``", '"')])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    tokenizer.add_special_tokens(["<mask>"])
    return tokenizer


def paths(node: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Yield the place of every node, of long lists and vocabularies the first two entries."""
    if path:
        yield path
    if isinstance(node, dict | list) and node:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        for key in keys if len(keys) < 12 else keys[:2]:
            yield from paths(node[key], (*path, key))


def mutant(data: Any, path: Path_, value: Any) -> Any:
    """Return a copy with another value at a place, or without that place."""
    result = copy.deepcopy(data)
    node = result
    for key in path[:-1]:
        node = node[key]
    if value is DELETED:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return result


@pytest.mark.parametrize("make", [wordpiece, byte_level, unigram])
def test_one_wrong_place_is_an_error_of_ours_or_harmless(make: Callable[[], Tokenizer], tmp_path: Path) -> None:
    data = json.loads(make().to_str())
    size, rng, outcomes = make().get_vocab_size(), random.Random(7), [0, 0]
    read_bundle(tmp_path, json.dumps(data), size)
    for path in paths(data):
        for value in (DELETED, *rng.sample(VALUES, 6)):
            text = json.dumps(mutant(data, path, value))
            errors = [error_of(read, tmp_path, text, size) for read in (read_checkpoint, read_bundle)]
            for error in filter(None, errors):
                assert isinstance(error, EdgebertError), f"{path} = {value!r}: {error!r}"
                assert "\n" not in str(error), (path, value)
            outcomes[not any(errors)] += 1
    assert min(outcomes) > 20


def error_of(read: Callable[..., None], *arguments: Any) -> BaseException | None:
    """Return the error of a call, a panic of Rust included, or None."""
    try:
        read(*arguments)
    except BaseException as error:
        return error
    return None


def read_checkpoint(folder: Path, text: str, size: int) -> None:
    """Read a checkpoint's file, as export does."""
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    read_tokenizer(CheckpointFolder(folder), size)


def read_bundle(folder: Path, text: str, size: int) -> None:
    """Load a bundle's file, as engines do, and tokenize."""
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    for mask in (None, "[MASK]" if "[MASK]" in text else "<mask>"):
        tokenizer = ModelTokenizer.load(folder / "tokenizer.json", size, mask)
        for special in (False, True):
            assert all(index < size for index in tokenizer.ids(TEXT, special))
