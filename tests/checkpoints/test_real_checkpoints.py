"""Published checkpoints of proteins and chemical reactions open, and compute what they are known to compute."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest
import torch
import transformers
from fetch_checkpoint import CHECKPOINTS, SMILES, fetch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from edgebert.checkpoints import Checkpoint, open_checkpoint
from edgebert.models.bert.heads import HeadedBert
from edgebert_runtime.errors import CheckpointError

pytestmark = pytest.mark.network
Real = Callable[[str], Path]
NAMES = sorted(set(CHECKPOINTS) - {"minilm"})
REACTION = (
    "Nc1cccc2cnccc12.O=C(O)c1cc([N+](=O)[O-])c(Sc2c(Cl)cncc2Cl)s1>>"
    "O=C(Nc1cccc2cnccc12)c1cc([N+](=O)[O-])c(Sc2c(Cl)cncc2Cl)s1"
)


@pytest.fixture(scope="module")
def real(pytestconfig: pytest.Config) -> Real:
    assert pytestconfig.cache is not None
    cache = pytestconfig.cache.mkdir("edgebert")
    return lru_cache(lambda name: fetch(name, cache / name))


def headed(checkpoint: Checkpoint) -> HeadedBert:
    model = checkpoint.load_model()
    assert isinstance(model, HeadedBert)
    return model


def sequences(folder: Path) -> list[str]:
    """Return the two sequences, a heavy and a light chain, of the package's description."""
    return list(dict.fromkeys(re.findall('"([A-Z]{50,})"', (folder / "METADATA").read_text())))[:2]


def example(name: str, folder: Path, checkpoint: Checkpoint) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids, mask and segments of two texts of different length."""
    texts = sequences(folder) if name == "antiberty" else [REACTION, "CCO.CC(=O)O>>CCOC(C)=O"]
    tokenizer = Tokenizer.from_str(checkpoint.tokenizer_json)
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(texts)
    ids, mask = (torch.tensor([getattr(e, key) for e in encoded]) for key in ("ids", "attention_mask"))
    return ids, mask, torch.zeros_like(ids)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_encoder_is_that_of_transformers(real: Real, name: str) -> None:
    folder = real(name)
    data = json.loads((folder / "config.json").read_text())
    sizes = {
        key: value for key, value in data.items() if key.endswith(("size", "_eps", "_act", "embeddings", "layers"))
    }
    config = transformers.BertConfig(**sizes, num_attention_heads=data["num_attention_heads"])
    reference = transformers.BertModel(config).eval()
    stored = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    tensors = {key.removeprefix("bert."): value for key, value in stored.items()}
    loaded = reference.load_state_dict(tensors, strict=False)
    assert not loaded.missing_keys
    checkpoint = open_checkpoint(folder, task="embed", allow_pickle=True)
    ids, mask, types = example(name, folder, checkpoint)
    actual, expected = checkpoint.load_model()(ids, mask, types), reference(ids, mask, types).last_hidden_state
    real_tokens = mask.bool()
    assert (actual - expected)[real_tokens].abs().max() < 1e-5 * expected[real_tokens].abs().max()


# The task of each, its labels, and what its notes say. The residues of antiberty are upper-case letters.
TASKS = {
    "antiberty": ("fill-mask", (), ["this bundle false, as tokenizer.json has it"]),
    "rxnfp-pretrained": ("fill-mask", (), []),
    "rxnfp-ft": ("embed", (), []),
    "rxnfp-10k": ("classify", tuple(f"LABEL_{i}" for i in range(50)), ["id2label has 2 entries, the head has 50"]),
}


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_what_each_is_for(real: Real, name: str) -> None:
    folder = real(name)
    task, labels, parts = TASKS[name]
    checkpoint = open_checkpoint(folder, allow_pickle=True)
    assert (checkpoint.task, checkpoint.labels) == (task, labels)
    assert len(checkpoint.notes) == len(parts)
    assert all(part in note for part, note in zip(parts, checkpoint.notes, strict=True))
    ids, mask, types = example(name, folder, checkpoint)
    model = checkpoint.load_model()
    chosen = [torch.arange(ids.numel())] if task == "fill-mask" else []
    assert model(ids, mask, types, *chosen).isfinite().all()
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin is a pickle"):
        open_checkpoint(folder)


@torch.no_grad()
def test_both_heads_of_pre_training(real: Real) -> None:
    folder = real("rxnfp-pretrained")
    reference = transformers.BertForPreTraining.from_pretrained(folder).eval()
    words, pairs = (open_checkpoint(folder, task=task, allow_pickle=True) for task in ("fill-mask", "next-sentence"))
    ids, mask, types = example("rxnfp-pretrained", folder, words)
    expected = reference(ids, mask, types)
    chosen = mask.flatten().nonzero()[:, 0]
    actual = headed(words)(ids, mask, types, chosen)
    target = expected.prediction_logits.flatten(0, 1)[chosen]
    assert isinstance(actual, Tensor)
    assert (actual - target).abs().max() < 1e-5 * target.abs().max()
    target = expected.seq_relationship_logits
    assert (headed(pairs)(ids, mask, types) - target).abs().max() < 1e-5 * target.abs().max()


@torch.no_grad()
def test_residues_of_antibodies_are_guessed(real: Real) -> None:
    """Every fourth residue of the package's two sequences, one masked at a time: 53 of 59 right."""
    folder = real("antiberty")
    checkpoint = open_checkpoint(folder, allow_pickle=True)
    model, tokenizer = headed(checkpoint), Tokenizer.from_str(checkpoint.tokenizer_json)
    mask_id = tokenizer.token_to_id("[MASK]")
    assert mask_id is not None
    assert checkpoint.mask_token == "[MASK]"
    guesses, answers = [], []
    for sequence in sequences(folder):
        ids = torch.tensor(tokenizer.encode(sequence).ids)
        places = torch.arange(1, len(ids) - 1, 4)
        rows = torch.arange(len(places))
        masked = ids.repeat(len(places), 1)
        masked[rows, places] = mask_id
        guesses.append(model(masked, torch.ones_like(masked), None, rows * len(ids) + places))
        answers.append(ids[places])
    logits, expected = torch.cat(guesses), torch.cat(answers)
    assert len(expected) == 59
    assert int((logits.argmax(1) == expected).sum()) == 53
    assert round(float(functional.cross_entropy(logits, expected).exp()), 3) == 1.701


def test_residues_are_tokens(real: Real) -> None:
    checkpoint = open_checkpoint(real("antiberty"), allow_pickle=True)
    tokenizer = Tokenizer.from_str(checkpoint.tokenizer_json)
    reference = transformers.BertTokenizer(str(real("antiberty") / "vocab.txt"), do_lower_case=False)
    for text in ("EVQLV", "E V Q L V", "EV[MASK]LV", "E  V\nQ", "EXB z", "", "é(日"):
        spaced = " ".join(text.replace("[MASK]", "_")).replace("_", "[MASK]")
        assert tokenizer.encode(text).ids == reference(spaced)["input_ids"]


def test_reactions_are_split_as_the_package_does(real: Real) -> None:
    folder = real("rxnfp-10k")
    tokenizer = Tokenizer.from_str(open_checkpoint(folder, allow_pickle=True).tokenizer_json)
    ids = {token: number for number, token in enumerate((folder / "vocab.txt").read_text().split("\n"))}
    for text in (REACTION, "C[C@@H](Br)%12.[Na+]>>CCl", "c1 cc\\C=C/é?X", "[unknown]%(100)$", ""):
        pieces = [ids.get(piece, ids["[UNK]"]) for piece in re.findall(SMILES, text)]
        assert tokenizer.encode(text).ids == [ids["[CLS]"], *pieces, ids["[SEP]"]]
