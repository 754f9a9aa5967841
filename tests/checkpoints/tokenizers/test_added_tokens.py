"""Added tokens have the ids and the flags that transformers gives them, in every layout in which files declare them."""

from __future__ import annotations

import itertools
import json
import logging
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import ByteLevelBPETokenizer, Tokenizer

from edgebert.checkpoints.folder import CheckpointFolder
from edgebert.checkpoints.tokenizers.tokenizer_json import read_tokenizer
from edgebert_runtime.errors import TokenizerError

Files = dict[str, dict[str, Any]]

SETTINGS, SPECIALS, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
TEXTS = ["The harbor was frozen and ships could not leave the port.", "Mail carriers in the countryside work early."]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"the harbor ships leave port new ##word a . u ##s ##er".split()]
FAIRSEQ = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
# The class of each family's tokenizer, the token whose flags are varied, and the key that names it.
CLASSES = {"bert": "BertTokenizer", "roberta": "RobertaTokenizer", "bart": "BartTokenizer", "gpt2": "GPT2Tokenizer"}
MASKS = {
    "bert": ("[MASK]", "mask_token"),
    "roberta": ("<mask>", "mask_token"),
    "bart": ("<mask>", "mask_token"),
    "gpt2": ("<|endoftext|>", "eos_token"),
}
PROBES = [
    "the harbor",
    "<|user|> the harbor <|user|>the newword newwords a newword.",
    "The  NEWWORD <|USER|> <|user|>  x",
    "ships{mask} leave {mask} port{mask}the",
    " <|user|>\tships",
]


def entry(content: str, **flags: bool) -> dict[str, Any]:
    """Return an added token as tokenizer_config.json writes it."""
    names = ("lstrip", "rstrip", "normalized", "single_word", "special")
    return {"content": content, **{name: flags.get(name, False) for name in names}}


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function from special tokens to a folder with vocab.json and merges.txt."""

    @cache
    def train(*special: str) -> Path:
        tokenizer = ByteLevelBPETokenizer()
        tokenizer.train_from_iterator(TEXTS, vocab_size=300, show_progress=False, special_tokens=list(special))
        folder = tmp_path_factory.mktemp("bytes")
        tokenizer.save_model(str(folder))
        return folder

    return train


@pytest.fixture(params=CLASSES)
def family(request: pytest.FixtureRequest, tmp_path: Path, byte_level: Any) -> tuple[str, Path, int]:
    """Return a model type, a folder with its vocabulary and nothing else, and the size of that."""
    name, folder = request.param, tmp_path / "base"
    if name == "bert":
        folder.mkdir()
        (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
        size = len(WORDS)
    else:
        shutil.copytree(byte_level(*(["<|endoftext|>"] if name == "gpt2" else FAIRSEQ)), folder)
        size = len(json.loads((folder / "vocab.json").read_text(encoding="utf-8")))
    (folder / "config.json").write_text(json.dumps({"model_type": name}), encoding="utf-8")
    return name, folder, size


def declarations(size: int) -> Iterator[Files]:
    """Yield the ways in which files declare two tokens beside a vocabulary of ``size``."""
    added = {"<|user|>": size, "newword": size + 1}
    plain = {str(size): entry("<|user|>", rstrip=True, special=True), str(size + 1): entry("newword", normalized=True)}
    strict = {
        str(size): entry("<|user|>", lstrip=True, rstrip=True, special=True),
        str(size + 1): entry("newword", normalized=True, single_word=True),
    }
    yield {}
    yield {ADDED: added}
    yield {SETTINGS: {"added_tokens_decoder": plain}}
    yield {SETTINGS: {"added_tokens_decoder": strict}}
    yield {ADDED: added, SETTINGS: {"added_tokens_decoder": plain}}
    yield {ADDED: added, SETTINGS: {"additional_special_tokens": ["<|user|>"]}}
    yield {ADDED: added, SPECIALS: {"additional_special_tokens": ["<|user|>"]}}
    yield {SETTINGS: {"extra_special_tokens": ["<|user|>", "newword"]}}
    yield {SETTINGS: {"extra_special_tokens": {"user_token": "<|user|>", "word_token": "newword"}}}
    yield {SETTINGS: {"user_token": "<|user|>", "additional_special_tokens": ["newword"]}}


def flag_declarations(mask: str, key: str, id: int) -> Iterator[Files]:
    """Yield the ways in which files give flags to a special token of the vocabulary."""
    yield {}
    for lstrip in (False, True):
        yield {SETTINGS: {"added_tokens_decoder": {str(id): entry(mask, lstrip=lstrip, special=True)}}}
        yield {SETTINGS: {key: {**entry(mask, lstrip=lstrip), "__type": "AddedToken"}}}
        yield {SPECIALS: {key: entry(mask, lstrip=lstrip)}}


def merged(first: Files, second: Files) -> Files:
    """Return the files of both, the entries of a file that both have together."""
    files = {name: dict(content) for name, content in first.items()}
    for name, content in second.items():
        target = files.setdefault(name, {})
        for key, value in content.items():
            target[key] = {**target.get(key, {}), **value} if key == "added_tokens_decoder" else value
    return files


def contradict(files: Files) -> bool:
    """Say whether added_tokens.json names a token that added_tokens_decoder lacks; transformers forgets it then."""
    decoder = files.get(SETTINGS, {}).get("added_tokens_decoder")
    return decoder is not None and any(str(id) not in decoder for id in files.get(ADDED, {}).values())


def write(folder: Path, base: Path, files: Files, ready: str) -> None:
    """Write a folder: the vocabulary of ``base``, or a tokenizer.json made of it, and the files beside."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(base, folder)
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    if ready:
        source = base if ready == "without the tokens" else folder
        transformers.AutoTokenizer.from_pretrained(source).backend_tokenizer.save(str(folder / "tokenizer.json"))
        for name in ("vocab.txt", "vocab.json", "merges.txt"):
            (folder / name).unlink(missing_ok=True)


@pytest.mark.parametrize("ready", ["", "with the tokens", "without the tokens"])
def test_ids_are_those_of_transformers(family: tuple[str, Path, int], ready: str, tmp_path: Path) -> None:
    name, base, size = family
    mask, key = MASKS[name]
    id = transformers.AutoTokenizer.from_pretrained(base).convert_tokens_to_ids(mask)
    folder, compared, refused = tmp_path / "model", 0, 0
    for index, pair in enumerate(itertools.product(declarations(size), flag_declarations(mask, key, id))):
        files = merged(*pair)
        if index % 2:
            files.setdefault(SETTINGS, {})["tokenizer_class"] = CLASSES[name]
        write(folder, base, files, ready)
        if contradict(files):
            with pytest.raises(TokenizerError, match=r"added_tokens\.json: '(newword|<\|user\|>)' has id"):
                read_tokenizer(CheckpointFolder.open(folder), size + 2, plain=name == "gpt2")
            refused += 1
            continue
        tokenizer = Tokenizer.from_str(
            read_tokenizer(CheckpointFolder.open(folder), size + 2, plain=name == "gpt2").text
        )
        reference = transformers.AutoTokenizer.from_pretrained(folder)
        for probe in (probe.format(mask=mask) for probe in PROBES):
            assert tokenizer.encode(probe).ids == reference(probe).input_ids, (files, probe)
        compared += 1
    assert (compared, refused) == (64, 6)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({SETTINGS: {"added_tokens_decoder": []}}, "added_tokens_decoder=[] is not an object of ids"),
        ({SETTINGS: {"added_tokens_decoder": {"x": entry("a")}}}, "tokenizer_config.json has ids that are none"),
        ({SETTINGS: {"added_tokens_decoder": {"3": {"lstrip": True}}}}, "is not a token; save the tokenizer again"),
        (
            {SETTINGS: {"added_tokens_decoder": {"3": {"content": "a", "lstrip": 1}}}},
            "lstrip=1 is neither true nor false",
        ),
        ({SETTINGS: {"extra_special_tokens": 7}}, "extra_special_tokens or additional_special_tokens: 7 is not a list"),
        ({ADDED: {"<a>": -1}}, "added_tokens.json has ids that are none: '<a>': -1"),
        ({ADDED: {"the": 99}}, "added_tokens.json: 'the' has id 99, the tokenizer gives 5"),
    ],
)
def test_faults_are_named(files: Files, message: str, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(TokenizerError) as error:
        read_tokenizer(CheckpointFolder.open(tmp_path), 100)
    assert message in str(error.value)


def test_a_special_token_without_an_embedding_is_left_out_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    (tmp_path / SETTINGS).write_text(json.dumps({"extra_special_tokens": ["<|extra|>"]}), encoding="utf-8")
    with caplog.at_level(logging.INFO, "edgebert"):
        file = read_tokenizer(CheckpointFolder.open(tmp_path), len(WORDS))
    assert "tokenizer_config.json: left out '<|extra|>', which the model has no embedding of" in caplog.messages
    assert Tokenizer.from_str(file.text).token_to_id("<|extra|>") is None
