"""Train a classifier of dictionary definitions on a frozen all-MiniLM-L6-v2, and ship it as one bundle.

    python samples/wordnet_classifier.py wordnet.demo

WordNet has 117,659 definitions in 45 classes, such as animal, food or feeling. MiniLM embeds each definition, and a
logistic regression is trained on the vectors. Encoder and linear layer are saved as one checkpoint and exported. The
bundle is tested on held-out definitions in float32 and int8, beside a naive Bayes classifier of words. Six minutes on
two cores, most of them for the vectors; ``--definitions 30000`` takes three.

WordNet comes from the Debian package wordnet-base, which ``apt-get`` downloads and nobody installs.
``--wordnet DIR`` takes its files (``data.noun`` and others) from a folder instead.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file

import edgebert
from edgebert_exporters import export_checkpoint, quantize_bundle

sys.path.insert(0, str(Path(__file__).parent))
from fetch_minilm import fetch  # noqa: E402
from training_run import is_held_out, say  # noqa: E402

Floats = npt.NDArray[np.float32]
Definition = tuple[str, int]  # a text and the number of its class

PACKAGE = "wordnet-base=1:3.0-37"
SHA256 = "61060d960f9ada8fa120872312eccd3ecebfbab8c4579e4f5a74e1cf67620752"
FILES = ("data.noun", "data.verb", "data.adj", "data.adv")
# The lexicographer files of WordNet 3.0, in the order of their numbers (man 5 lexnames).
CLASSES = (
    "adj.all adj.pert adv.all noun.Tops noun.act noun.animal noun.artifact noun.attribute noun.body noun.cognition "
    "noun.communication noun.event noun.feeling noun.food noun.group noun.location noun.motive noun.object "
    "noun.person noun.phenomenon noun.plant noun.possession noun.process noun.quantity noun.relation noun.shape "
    "noun.state noun.substance noun.time verb.body verb.change verb.cognition verb.communication verb.competition "
    "verb.consumption verb.contact verb.creation verb.emotion verb.motion verb.perception verb.possession verb.social "
    "verb.stative verb.weather adj.ppl"
).split()
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
BATCH, EPOCHS, RATE, SMOOTHING = 1024, 12, 1e-2, 0.1


def main(folder: Path, wordnet: Path | None = None, definitions: int | None = None, tests: int | None = None) -> None:
    """Run it all, keeping what is made in ``folder``; the counts shorten it."""
    folder.mkdir(exist_ok=True)
    minilm = fetch(folder / "minilm")
    train, test = split(read_definitions(wordnet or fetch_wordnet(folder / "wordnet")))
    shuffled = np.random.default_rng(0).permutation(len(train))[:definitions]
    train, test = [train[i] for i in shuffled], test[:tests]
    say(f"{len(train):,} definitions to train on, {len(test):,} to test, {len(CLASSES)} classes")
    encoder = export_checkpoint(minilm, folder / "encoder.bundle", pooling="mean", normalize=False, force=True)
    start = time.perf_counter()
    vectors = edgebert.Embedder.load(encoder.path).embed([text for text, _ in train])
    say(f"vectors in {time.perf_counter() - start:.0f} s")
    start = time.perf_counter()
    weight, bias = train_linear(vectors, np.array([label for _, label in train]))
    say(f"linear layer trained in {time.perf_counter() - start:.0f} s")
    checkpoint = write_checkpoint(folder / "classifier", minilm, weight, bias)
    exact = export_checkpoint(checkpoint, folder / "classifier.bundle", force=True)
    small = quantize_bundle(
        exact.path, folder / "classifier.int8", calibration=[text for text, _ in train[:400]], force=True
    )
    report(train, test, [("fp32 bundle", exact.path), ("int8 bundle", small.path)])


def report(train: list[Definition], test: list[Definition], bundles: Sequence[tuple[str, Path]]) -> None:
    """Print size, speed and accuracy on the definitions held out, beside two baselines."""
    labels = np.array([label for _, label in test])
    commonest = Counter(label for _, label in train).most_common(1)[0][0]
    print(f"\n  {len(test):,} definitions    size      speed   accuracy")
    print(f"  always {CLASSES[commonest]:<26} {(labels == commonest).mean():9.1%}")
    print(f"  {'naive Bayes on words':<33} {(naive_bayes(train, test) == labels).mean():9.1%}")
    guesses = []
    for name, path in bundles:
        model = edgebert.Classifier.load(path)
        start = time.perf_counter()
        results = model.classify([text for text, _ in test])
        speed = len(test) / (time.perf_counter() - start)
        guesses.append(np.array([CLASSES.index(result.label) for result in results]))
        megabytes = sum(file.stat().st_size for file in path.iterdir()) / 1e6
        print(f"  {name:<12} {megabytes:10.1f} MB {speed:6.0f}/s {(guesses[-1] == labels).mean():9.1%}")
    print(f"\n  int8 gives another label than fp32 for {(guesses[0] != guesses[-1]).mean():.1%} of them")


def fetch_wordnet(folder: Path) -> Path:
    """Download WordNet 3.0 into ``folder`` unless it is there, and return the folder with its files.

    Raises:
        RuntimeError: if that fails, or the package is not the one expected.
    """
    data = folder / "usr" / "share" / "wordnet"
    if all((data / name).is_file() for name in FILES):
        return data
    folder.mkdir(parents=True, exist_ok=True)
    run("apt-get", "download", PACKAGE, folder=folder)
    package = next(folder.glob("wordnet-base_*.deb"))
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    if digest != SHA256:
        raise RuntimeError(f"{package} has SHA-256 {digest}, expected {SHA256}; remove it and try again")
    run("dpkg-deb", "--extract", package.name, ".", folder=folder)
    return data


def run(*command: str, folder: Path) -> None:
    """Run a command in ``folder``."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise RuntimeError(f"{command[0]} is not there; give the folder of WordNet's files with --wordnet") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"{' '.join(command)} failed ({last}); give the folder of WordNet's files with --wordnet")


def read_definitions(folder: Path) -> list[Definition]:
    """Return every definition, without examples, and the number of its class."""
    definitions = []
    for name in FILES:
        for line in (folder / name).read_text(encoding="utf-8").splitlines():
            if not line.startswith("  "):  # the licence
                entry, _, gloss = line.partition(" | ")
                definitions.append((re.sub(r';?\s*"[^"]*"', "", gloss).strip(), int(entry.split()[1])))
    return definitions


def split(definitions: list[Definition]) -> tuple[list[Definition], list[Definition]]:
    """Hold out one definition in twenty; equal texts go to the same side."""
    parts: tuple[list[Definition], list[Definition]] = ([], [])
    for text, label in definitions:
        parts[is_held_out(text)].append((text, label))
    return parts


def train_linear(vectors: Floats, labels: npt.NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
    """Fit a logistic regression; return weight (classes, dim) and bias (classes,).

    Features are standardized for training; the returned weight includes that.
    """
    torch.manual_seed(0)
    x, y = torch.from_numpy(vectors), torch.from_numpy(labels)
    mean, deviation = x.mean(0), x.std(0)
    x = (x - mean) / deviation
    linear = torch.nn.Linear(x.shape[1], len(CLASSES))
    optimizer = torch.optim.AdamW(linear.parameters(), RATE)
    steps = -(-len(x) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=EPOCHS * steps)
    for _ in range(EPOCHS):
        for rows in torch.split(torch.randperm(len(x)), BATCH):
            loss = torch.nn.functional.cross_entropy(linear(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    weight = linear.weight.detach() / deviation
    return weight, linear.bias.detach() - weight @ mean


def write_checkpoint(folder: Path, encoder: Path, weight: torch.Tensor, bias: torch.Tensor) -> Path:
    """Save the encoder and the linear layer as one checkpoint, and return its folder."""
    folder.mkdir(exist_ok=True)
    for name in TOKENIZER_FILES:
        shutil.copyfile(encoder / name, folder / name)
    tensors = load_file(encoder / "model.safetensors")
    save_file({**tensors, "classifier.weight": weight, "classifier.bias": bias}, folder / "model.safetensors")
    config = json.loads((encoder / "config.json").read_text(encoding="utf-8"))
    config |= {
        "architectures": ["BertForSequenceClassification"],
        "classifier_pooling": "mean",  # the layer reads the mean of all tokens, not BERT's pooler
        "id2label": {str(number): name for number, name in enumerate(CLASSES)},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return folder


def naive_bayes(train: list[Definition], test: list[Definition]) -> npt.NDArray[np.int64]:
    """Return the classes that a multinomial naive Bayes classifier of words gives."""
    counts: dict[str, npt.NDArray[np.float64]] = defaultdict(lambda: np.zeros(len(CLASSES)))
    priors = np.full(len(CLASSES), SMOOTHING)
    for text, label in train:
        priors[label] += 1
        for word in words(text):
            counts[word][label] += 1
    index = {word: number for number, word in enumerate(counts)}
    table = np.stack(list(counts.values())) + SMOOTHING  # (words, classes)
    scores = np.log(table / table.sum(0))
    columns = [[index[word] for word in words(text) if word in index] for text, _ in test]
    return np.array([(np.log(priors) + scores[rows].sum(0)).argmax() for rows in columns])


def words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return re.findall(r"\w+", text.lower())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where everything is kept")
    parser.add_argument("--wordnet", type=Path, help="folder with data.noun and others")
    parser.add_argument("--definitions", type=int, help="train on so many only")
    chosen = parser.parse_args()
    try:
        main(chosen.folder, chosen.wordnet, chosen.definitions)
    except (RuntimeError, edgebert.EdgebertError) as error:
        sys.exit(f"wordnet_classifier: {error}")
