"""Published checkpoints of proteins and chemical reactions, exported, quantized and run by their engines."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from fetch_checkpoint import fetch

import edgebert
from edgebert.checkpoints import open_checkpoint
from edgebert_exporters import export_checkpoint, quantize_bundle
from edgebert_runtime.errors import ReferenceWarning

pytestmark = [pytest.mark.network, pytest.mark.slow]
Bundles = Callable[[str], tuple[Path, Path]]
# Where the bundle differs from transformers on the same folder, and says so.
NOTES = {"antiberty": "do_lower_case", "rxnfp-10k": "id2label has 2 entries, the head has 50 outputs"}
REACTIONS = [
    "Nc1cccc2cnccc12.O=C(O)c1cc([N+](=O)[O-])c(Sc2c(Cl)cncc2Cl)s1>>O=C(Nc1cccc2cnccc12)c1cc([N+](=O)[O-])c(Sc2c(Cl)cncc2Cl)s1",
    "CCO.CC(=O)O>>CCOC(C)=O",
    "Brc1ccccc1.OB(O)c1ccccc1>>c1ccc(-c2ccccc2)cc1",
    "CC(=O)Cl.NC1CCCCC1>>CC(=O)NC1CCCCC1",
]


@pytest.fixture(scope="module")
def folders(pytestconfig: pytest.Config) -> Callable[[str], Path]:
    assert pytestconfig.cache is not None
    cache = pytestconfig.cache.mkdir("edgebert")
    return lru_cache(lambda name: fetch(name, cache / name))


@pytest.fixture(scope="module")
def bundles(folders: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Bundles:
    """Return a function that exports and quantizes a checkpoint: the folders of both bundles."""

    @lru_cache
    def make(name: str) -> tuple[Path, Path]:
        folder = tmp_path_factory.mktemp(name)
        note = NOTES.get(name)
        with contextlib.nullcontext() if note is None else pytest.warns(ReferenceWarning, match=note):
            exact = export_checkpoint(folders(name), folder / "fp32", allow_pickle=True)
            return exact.path, quantize_bundle(exact.path, folder / "int8").path

    return make


@pytest.mark.parametrize(("form", "accuracy", "perplexity"), [(0, 53 / 59, 1.701), (1, 53 / 59, 1.71)])
def test_residues_of_antibodies(
    bundles: Bundles, folders: Callable[[str], Path], form: int, accuracy: float, perplexity: float
) -> None:
    """Every fourth residue of two sequences, one masked at a time, with the figures known for PyTorch and for int8."""
    text = (folders("antiberty") / "METADATA").read_text(encoding="utf-8")
    sequences = list(dict.fromkeys(re.findall('"([A-Z]{50,})"', text)))[:2]
    sites = [(sequence, place) for sequence in sequences for place in range(0, len(sequence), 4)]
    model = edgebert.MaskFiller.load(bundles("antiberty")[form])
    masked = [f"{sequence[:place]}[MASK]{sequence[place + 1 :]}" for sequence, place in sites]
    found = [fillings for (fillings,) in model.fill(masked, top_k=25)]
    right = [fillings[0].token == sequence[place] for fillings, (sequence, place) in zip(found, sites, strict=True)]
    shares = [
        next(filling.score for filling in fillings if filling.token == sequence[place])
        for fillings, (sequence, place) in zip(found, sites, strict=True)
    ]
    assert len(sites) == 59
    assert np.mean(right) >= accuracy - 1e-9
    assert np.exp(-np.log(shares).mean()) == pytest.approx(perplexity, abs=0.001 if form == 0 else 0.03)


def test_classes_of_reactions(bundles: Bundles, folders: Callable[[str], Path]) -> None:
    exact, small = map(edgebert.Classifier.load, bundles("rxnfp-10k"))
    assert exact.labels == tuple(f"LABEL_{number}" for number in range(50))
    reference = open_checkpoint(folders("rxnfp-10k"), allow_pickle=True).load_model()
    found, rounded = exact.classify(REACTIONS), small.classify(REACTIONS)
    assert len({one.label for one in found}) > 1
    for text, one, other in zip(REACTIONS, found, rounded, strict=True):
        ids = torch.tensor([exact._tokenizer.encode_one(text, 512).ids])
        with torch.no_grad():
            expected = reference(ids, torch.ones_like(ids), torch.zeros_like(ids))[0].softmax(-1)
        np.testing.assert_allclose(one.scores, expected.numpy(), atol=1e-5)
        assert other.label == one.label


def test_tokens_of_reactions(bundles: Bundles) -> None:
    """The pre-trained model closes rings and keeps count of atoms."""
    gaps = {"CCO.CC(=O)O>>CCO[MASK](C)=O": "C", "Brc1ccccc1.OB(O)c1ccccc1>>c1ccc(-c2ccccc2)cc[MASK]": "1"}
    for path in bundles("rxnfp-pretrained"):
        for (fillings,), (text, token) in zip(
            edgebert.MaskFiller.load(path).fill([*gaps], top_k=2), gaps.items(), strict=True
        ):
            assert fillings[0].token == token
            assert fillings[0].score > 0.95
            assert fillings[0].text == text.replace("[MASK]", token)
