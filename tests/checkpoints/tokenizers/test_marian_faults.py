"""Whatever is wrong with the tokenizer files of Marian is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgebert.checkpoints.folder import CheckpointFolder
from edgebert.checkpoints.tokenizers.translation import read_tokenizers
from edgebert_runtime.errors import CheckpointError, TokenizerError
from tests.checkpoints.broken import Change, remove, write
from tests.checkpoints.tokenizers.marian_folders import size, write_folder


def vocabulary(change: Callable[[dict[str, Any]], object]) -> Change:
    """Return a change of vocab.json."""

    def rewrite(folder: Path) -> None:
        ids = json.loads((folder / "vocab.json").read_text())
        change(ids)
        (folder / "vocab.json").write_text(json.dumps(ids))

    return rewrite


def add(token: str) -> Change:
    """Return a change that gives a token the id after the last one."""
    return vocabulary(lambda ids: ids.update({token: 1 + max(ids.values())}))


def setting(**changed: Any) -> Change:
    """Return a change of tokenizer_config.json."""
    return write("tokenizer_config.json", json.dumps(changed))


FAULTS: dict[str, tuple[Change, str]] = {
    "no source": (remove("source.spm"), r"^source\.spm is missing; save or download"),
    "no target": (remove("target.spm"), r"^target\.spm is missing; save or download"),
    "no vocabulary": (remove("vocab.json"), r"^vocab\.json is missing; save or download"),
    "no other vocabulary": (setting(separate_vocabs=True), r"^target_vocab\.json is missing"),
    "class": (setting(tokenizer_class="T5Tokenizer"), r"'T5Tokenizer' cannot be built from source\.spm"),
    "sampling": (setting(sp_model_kwargs={"enable_sampling": True}), r"sp_model_kwargs=.* is not followed"),
    "no end": (vocabulary(lambda ids: ids.pop("</s>")), r"^vocab\.json lacks the special tokens </s>"),
    "no padding": (vocabulary(lambda ids: ids.pop("<pad>")), r"^vocab\.json lacks the special tokens <pad>"),
    "no unknown": (vocabulary(lambda ids: ids.pop("<unk>")), r"^vocab\.json lacks the special tokens <unk>"),
    "beyond": (vocabulary(lambda ids: ids.update(x=4_000_000_000)), r"ids beyond the \d+ .*'x' \(4000000000\); use"),
    "negative": (vocabulary(lambda ids: ids.update(x=-1)), r"^vocab\.json has ids that are none: 'x': -1"),
    "fraction": (vocabulary(lambda ids: ids.update(x=1.5)), r"^vocab\.json has ids that are none: 'x': 1\.5"),
    "shared": (vocabulary(lambda ids: ids.update(x=0)), r"^vocab\.json: 1 ids belong to two tokens"),
    "no text": (add("\ud800"), r"^vocab\.json has tokens that are no text: '\\ud800'"),
    "empty": (add(""), r"^vocab\.json has tokens that are no text: ''"),
    "list": (write("vocab.json", "[1]"), r"^vocab\.json should hold tokens and their ids"),
    "not JSON": (write("vocab.json", "{"), r"^vocab\.json is not valid JSON"),
    "space": (add("a b"), r"^source\.spm: 'a b' has a space"),
    "end of text": (setting(eos_token="a"), r"^source\.spm: a text could give 'a'"),
    "damaged": (write("source.spm", b"\x0a\xff"), r"^source\.spm is not a whole model file"),
}


def test_embeddings_without_tokens_have_a_limit(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, dropped=0.5)
    with pytest.raises(TokenizerError, match=r"^source\.spm: there are \d+ tokens for 2147483648 embeddings"):
        read_tokenizers(CheckpointFolder.open(folder), "marian", 1 << 31)


@pytest.fixture(scope="module")
def sound_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that can be read and stays as it is."""
    return write_folder(tmp_path_factory.mktemp("files"))


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(tmp_path: Path, sound_files: Path, fault: str) -> None:
    change, message = FAULTS[fault]
    folder = Path(shutil.copytree(sound_files, tmp_path / "files"))
    vocab_size = size(folder)
    change(folder)
    with pytest.raises((CheckpointError, TokenizerError), match=message):
        read_tokenizers(CheckpointFolder.open(folder), "marian", vocab_size)
