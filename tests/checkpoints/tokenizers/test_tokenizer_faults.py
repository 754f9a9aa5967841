"""Whatever is wrong with the files of the tokenizer is named."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgebert.checkpoints.folder import CheckpointFolder
from edgebert.checkpoints.tokenizers.tokenizer_json import probed, read_tokenizer
from edgebert_runtime.errors import EdgebertError
from tests.checkpoints.broken import Change, Faults, assert_named, remove, write

AGAIN = "download it again"
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def ready(folder: Path) -> dict[str, Any]:
    """Return what tokenizer.json would hold for the vocabulary of the folder."""
    data: dict[str, Any] = json.loads(read_tokenizer(CheckpointFolder.open(folder), 11).text)
    return data


def lines(*tokens: str) -> Change:
    """Return a change of vocab.txt."""
    return write("vocab.txt", "".join(f"{token}\n" for token in tokens))


def edit(change: Callable[[dict[str, Any]], object]) -> Change:
    """Return a function that writes a changed tokenizer.json into a folder."""

    def write(folder: Path) -> None:
        data = ready(folder)
        change(data)
        (folder / "tokenizer.json").write_text(json.dumps(data))

    return write


def words(kind: str, **model: Any) -> Change:
    """Return a function that writes a tokenizer.json with another model and nothing around it."""
    parts: dict[str, Any] = {
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "added_tokens": [],
    }
    return edit(lambda data: data.update(parts, model={"type": kind, **model}))


FAULTS: Faults = {
    "none": (remove("vocab.txt"), ("tokenizer.json", "vocab.txt", "missing", "save")),
    "sentencepiece": (
        lambda f: (f / "vocab.txt").rename(f / "sentencepiece.bpe.model"),
        ("sentencepiece.bpe.model", "save the tokenizer as tokenizer.json"),
    ),
    "empty vocabulary": (write("vocab.txt", ""), ("vocab.txt is empty", "download")),
    "blank vocabulary": (write("vocab.txt", "\n\n"), ("vocab.txt is empty",)),
    "repeated line": (
        lines(*SPECIALS, "a", "b", "a"),
        ("vocab.txt: line 8 repeats 'a' of line 6", "use the file"),
    ),
    "no special tokens": (
        lines("[PAD]", "[UNK]", "a"),
        ("vocab.txt lacks the special tokens [CLS], [SEP]", "use the one"),
    ),
    "not UTF-8": (write("vocab.txt", b"[PAD]\n\xff\n"), ("vocab.txt is not UTF-8", "byte 6")),
    "UTF-16": (write("vocab.txt", "[PAD]".encode("utf-16")), ("vocab.txt is UTF-16", "save")),
    "too many tokens": (
        lines(*SPECIALS, *(f"t{i}" for i in range(20))),
        ("vocab.txt", "ids beyond the 11", "'t6' (11)", "(14 in all)", "tokenizer of the model"),
    ),
    "other class": (
        write("tokenizer_config.json", '{"tokenizer_class": "BertJapaneseTokenizer"}'),
        ("tokenizer_config.json", "'BertJapaneseTokenizer'", "save"),
    ),
    "wrong type": (
        write("tokenizer_config.json", '{"do_lower_case": "yes"}'),
        ("tokenizer_config.json", "do_lower_case='yes'", "neither true nor false"),
    ),
    "token of a wrong type": (
        write("tokenizer_config.json", '{"cls_token": 7}'),
        ("tokenizer_config.json", "cls_token=7"),
    ),
    "settings not JSON": (
        write("tokenizer_config.json", "{"),
        ("tokenizer_config.json is not valid JSON", "line 1", "download"),
    ),
    "truncated": (
        lambda f: write("tokenizer.json", json.dumps(ready(f))[:500])(f),
        ("tokenizer.json is not valid JSON", "line", "download it again"),
    ),
    "web page": (
        write("tokenizer.json", "<!doctype html><p>404"),
        ("tokenizer.json is a web page", "download it again"),
    ),
    "pointer": (
        write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n"),
        ("tokenizer.json is a Git LFS pointer", "git lfs pull"),
    ),
    "list": (write("tokenizer.json", "[]"), ("tokenizer.json should hold an object", "[]")),
    "future version": (edit(lambda d: d.update(version="9.0")), ("tokenizer.json cannot be used by tokenizers", "9.0")),
    "unknown model": (edit(lambda d: d["model"].update(type="X")), ("tokenizer.json cannot be used", "update")),
    "id beyond": (
        edit(lambda d: d["model"]["vocab"].update(z=1 << 31)),
        ("tokenizer.json", "ids beyond the 11", "'z' (2147483648)"),
    ),
    "shared id": (edit(lambda d: d["model"]["vocab"].update(z=5)), ("tokenizer.json", "1 ids belong to two tokens")),
    "id beyond in the template": (
        edit(lambda d: d["post_processor"]["special_tokens"]["[CLS]"].update(ids=[4_000_000_000])),
        ("tokenizer.json", "'[CLS]' (4000000000)", "its id is 2"),
    ),
    "other id in the template": (
        edit(lambda d: d["post_processor"]["special_tokens"]["[SEP]"].update(ids=[4])),
        ("tokenizer.json: post_processor adds '[SEP]' as id 4, its id is 3", "save it again"),
    ),
    "other id of an added token": (
        edit(lambda d: d["added_tokens"].append({**d["added_tokens"][0], "content": "<new>", "id": 90})),
        ("tokenizer.json", "'<new>'", "90", "save it again"),
    ),
    "named token missing": (
        lambda f: (edit(lambda d: None)(f), write("tokenizer_config.json", '{"sep_token": "</s>"}')(f)),
        ("tokenizer.json", "lacks '</s>', the sep_token"),
    ),
    "lone surrogate": (edit(lambda d: d["model"]["vocab"].update({"\ud800": 6})), ("tokenizer.json cannot be used",)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(folder: Path, fault: str) -> None:
    assert_named(folder, FAULTS[fault])


@pytest.mark.parametrize(
    "change",
    [edit(lambda d: d["model"].update(unk_token="<none>")), words("BPE", vocab={"a": 0}, merges=[])],
    ids=["WordPiece", "BPE"],
)
def test_without_an_unknown_token_there_is_a_note(folder: Path, change: Change) -> None:
    change(folder)
    (note,) = (note for note in read_tokenizer(CheckpointFolder.open(folder), 11).notes if "unknown" in note)
    assert note == "tokenizer.json has no unknown token: a text with a character outside its vocabulary is refused"


def test_damaged_bytes_are_an_error_of_ours_or_harmless(folder: Path) -> None:
    rng = random.Random(2)
    text = json.dumps(ready(folder)).encode()
    for _ in range(300):
        damaged = bytearray(text)
        for _ in range(rng.choice([1, 1, 2, 20])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        (folder / "tokenizer.json").write_bytes(damaged)
        try:
            text_now = read_tokenizer(CheckpointFolder.open(folder), 11).text
            actual = probed(text_now).encode("a b zz é [MASK]").ids
        except EdgebertError:
            continue
        assert max(actual, default=0) <= 11
